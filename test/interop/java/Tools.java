import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command-line tools one after another in one process, because starting one takes longer than what it does. A line of standard
 * input is the class of a tool, below org.apache.kafka.tools, and its arguments, parted by tabs. What it prints follows, and then a line
 * "\u0001 STATUS".
 */
public class Tools {
  static class Ended extends RuntimeException {
    Ended() {
      super(null, null, false, false);
    }
  }

  // The first status counts: some tools catch what ends them, and end again.
  static Integer status;

  static void end(int with, String message) {
    if (status == null) status = with;
    throw new Ended();
  }

  public static void main(String[] none) throws Exception {
    Exit.setExitProcedure(Tools::end);
    Exit.setHaltProcedure(Tools::end);
    PrintStream out = System.out;
    System.setErr(out);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      String[] words = line.split("\t", -1);
      status = null;
      try {
        Class.forName("org.apache.kafka.tools." + words[0]).getMethod("main", String[].class)
            .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
      } catch (Throwable t) {
        if (status == null) {
          status = 70;
          t.printStackTrace(out);
        }
      }
      out.println();
      out.println("\u0001 " + (status == null ? 0 : status));
      out.flush();
    }
    Runtime.getRuntime().halt(0);
  }
}
