package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// text is a text of n lines, none of them empty: kcat drops those.
func text(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d %s\n", i, strings.Repeat("word ", i%37))
	}
	return b.String()
}

// TestKcat writes with kcat in every codec and reads with it from the beginning, from an offset, from the end and by time.
func TestKcat(t *testing.T) {
	need(t, "kcat", installed("kcat"))
	for _, codec := range codecs {
		t.Run(codec, func(t *testing.T) {
			topic := newTopic(t)
			in := text(5000)
			command(t, strings.NewReader(in), "kcat", "-b", addr, "-P", "-t", topic, "-p", "0", "-z", codec)
			storedIn(t, "kcat", codec, storedCodecs(t, topic, 0, 5000))
			out := command(t, nil, "kcat", "-b", addr, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
			if sum(out) != sum(in) {
				t.Errorf("kcat read %d bytes that differ from the %d written", len(out), len(in))
			}
			lines := strings.SplitAfter(strings.TrimSuffix(in, "\n"), "\n")
			if got, want := command(t, nil, "kcat", "-b", addr, "-C", "-t", topic, "-p", "0", "-o", "4321", "-e", "-q"), strings.Join(lines[4321:], "")+"\n"; got != want {
				t.Errorf("from an offset: %d bytes, want %d", len(got), len(want))
			}
			if got, want := command(t, nil, "kcat", "-b", addr, "-C", "-t", topic, "-p", "0", "-o", "-5", "-e", "-q"), strings.Join(lines[4995:], "")+"\n"; got != want {
				t.Errorf("the last five: %q, want %q", got, want)
			}
			since := fmt.Sprintf("s@%d", time.Now().Add(-time.Hour).UnixMilli())
			if got := command(t, nil, "kcat", "-b", addr, "-C", "-t", topic, "-p", "0", "-o", since, "-e", "-q"); sum(got) != sum(in) {
				t.Errorf("from a time: %d bytes, want %d", len(got), len(in))
			}
		})
	}
	if out := command(t, nil, "kcat", "-b", addr, "-L"); !strings.Contains(out, "broker") {
		t.Errorf("kcat -L: %s", out)
	}
	topic := newTopic(t)
	command(t, strings.NewReader(text(10)), "kcat", "-b", addr, "-P", "-t", topic)
	if out := command(t, nil, "kcat", "-b", addr, "-Q", "-t", topic+":0:-1"); !strings.Contains(out, "offset 10") {
		t.Errorf("kcat -Q: %s", out)
	}
}

// systemPython is the interpreter that Debian's packages belong to.
const systemPython = "/usr/bin/python3"

func pythonHas(module string) bool {
	return exec.Command(systemPython, "-c", "import "+module).Run() == nil
}

// TestPythonClients runs Debian's two Python clients: every codec written, all read by assignment with auto-commit off.
func TestPythonClients(t *testing.T) {
	for _, c := range []struct{ pkg, module, script string }{
		{"python3-kafka", "kafka", "kafka_python.py"},
		{"python3-confluent-kafka", "confluent_kafka", "confluent.py"},
	} {
		t.Run(c.pkg, func(t *testing.T) {
			need(t, c.pkg, pythonHas(c.module))
			topic := newTopic(t)
			if out := command(t, nil, systemPython, filepath.Join("scripts", c.script), addr, topic); !strings.Contains(out, "OK 1500") {
				t.Errorf("%s", out)
			} else {
				for i, codec := range codecs {
					if !strings.Contains(out, "without "+codec) { // its library is not installed
						storedIn(t, c.pkg, codec, storedCodecs(t, topic, int64(i)*300, int64(i+1)*300))
					}
				}
			}
		})
	}
}

// TestKafkaJS runs kafkajs's producer and admin client.
func TestKafkaJS(t *testing.T) {
	dir, _ := filepath.Abs("scripts")
	_, err := os.Stat(filepath.Join(dir, "node_modules", "kafkajs"))
	need(t, "kafkajs", installed("node") && err == nil)
	topic := newTopic(t)
	if out := command(t, nil, "node", filepath.Join(dir, "kafkajs.js"), addr, topic); !strings.Contains(out, "OK") {
		t.Errorf("%s", out)
	}
	for i, codec := range []string{"none", "gzip", "gzip"} {
		storedIn(t, "kafkajs", codec, storedCodecs(t, topic, int64(i)*100, int64(i+1)*100))
	}
	want := make([]message, 300)
	for i := range want {
		want[i] = message{int64(i), fmt.Sprintf("k%d", i), fmt.Sprintf("v%d", i)}
	}
	same(t, "franz-go", franzRead(t, topic, position{}, 300), want)
}

// TestRsyslog lets rsyslog's omkafka deliver lines that were logged to a socket of its own.
func TestRsyslog(t *testing.T) {
	module := false
	for _, f := range []string{"/usr/lib/x86_64-linux-gnu/rsyslog/omkafka.so", "/usr/lib/aarch64-linux-gnu/rsyslog/omkafka.so"} {
		if _, err := os.Stat(f); err == nil {
			module = true
		}
	}
	need(t, "rsyslog-kafka", module && installed("rsyslogd"))
	topic := newTopic(t)
	dir := t.TempDir()
	input := filepath.Join(dir, "input.log")
	conf := fmt.Sprintf(`module(load="imfile" mode="polling" pollingInterval="1")
module(load="omkafka")
global(workDirectory=%q)
template(name="plain" type="string" string="%%msg%%")
input(type="imfile" file=%q tag="t:" freshStartTail="off")
action(type="omkafka" broker=[%q] topic=%q template="plain" confParam=["enable.idempotence=true"])
`, dir, input, addr, topic)
	if err := os.WriteFile(filepath.Join(dir, "rsyslog.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(input, []byte(text(200)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("rsyslogd", "-n", "-f", filepath.Join(dir, "rsyslog.conf"), "-i", filepath.Join(dir, "pid"))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	got := franzRead(t, topic, position{}, 200)
	for i, line := range strings.Split(strings.TrimSuffix(text(200), "\n"), "\n") {
		if strings.TrimSpace(got[i].value) != strings.TrimSpace(line) {
			t.Fatalf("record %d is %q, want %q\n%s", i, got[i].value, line, log.String())
		}
	}
}
