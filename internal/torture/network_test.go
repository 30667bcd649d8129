package torture

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// echo is a node that answers each line with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// fresh is an address that nothing listens on.
func fresh(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// talk is a connection that says lines and waits for their echo.
type talk struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *talk {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &talk{t, c, bufio.NewReader(c)}
}

func (k *talk) say(line string) error {
	_, err := fmt.Fprintln(k.c, line)
	return err
}

// hear is the next line within limit.
func (k *talk) hear(limit time.Duration) (string, error) {
	_ = k.c.SetReadDeadline(time.Now().Add(limit))
	line, err := k.r.ReadString('\n')
	return line, err
}

func (k *talk) echoes(line string) {
	k.t.Helper()
	if err := k.say(line); err != nil {
		k.t.Fatal(err)
	}
	if got, err := k.hear(10 * time.Second); err != nil || got != line+"\n" {
		k.t.Fatalf("%q comes back as %q, %v", line, got, err)
	}
}

func (k *talk) silent() {
	k.t.Helper()
	var late net.Error
	if got, err := k.hear(100 * time.Millisecond); !errors.As(err, &late) || !late.Timeout() {
		k.t.Fatalf("heard %q, %v", got, err)
	}
}

func (k *talk) broken() {
	k.t.Helper()
	_ = k.say("x")
	var late net.Error
	if got, err := k.hear(10 * time.Second); err == nil || errors.As(err, &late) && late.Timeout() {
		k.t.Fatalf("the connection lives: %q, %v", got, err)
	}
}

func newNet(t *testing.T, node int32) (*Network, string) {
	t.Helper()
	n := NewNetwork(func(int32) int { return 0 })
	t.Cleanup(n.Close)
	at := fresh(t)
	n.Add(node, at, echo(t))
	if err := n.Up(node); err != nil {
		t.Fatal(err)
	}
	return n, at
}

// TestCutHolds: what is sent over a cut line comes when it is mended, in order, also over a connection made meanwhile; each direction for itself.
func TestCutHolds(t *testing.T) {
	for _, l := range []Link{{Clients, 2}, {2, Clients}} {
		n, at := newNet(t, 2)
		old := dial(t, at)
		old.echoes("before")
		n.Cut([]Link{l}, false)
		for _, line := range []string{"one", "two"} {
			if err := old.say(line); err != nil {
				t.Fatal(err)
			}
		}
		late := dial(t, at)
		if err := late.say("three"); err != nil {
			t.Fatal(err)
		}
		old.silent()
		late.silent()
		n.Heal()
		for k, lines := range map[*talk][]string{old: {"one\n", "two\n"}, late: {"three\n"}} {
			for _, want := range lines {
				if got, err := k.hear(10 * time.Second); got != want {
					t.Fatalf("%v: %q, %v instead of %q", l, got, err, want)
				}
			}
		}
	}
}

// TestRefusedAndDropped: a line that refuses ends what there is and takes nothing new; a drop ends what there is and no more.
func TestRefusedAndDropped(t *testing.T) {
	n, at := newNet(t, 2)
	other := fresh(t)
	n.Add(3, other, echo(t))
	if err := n.Up(3); err != nil {
		t.Fatal(err)
	}
	two, three := dial(t, at), dial(t, other)
	two.echoes("a")
	three.echoes("a")
	n.Cut([]Link{{2, Clients}}, true)
	two.broken()
	dial(t, at).broken()
	three.echoes("b")
	n.Heal()
	again := dial(t, at)
	again.echoes("c")
	n.Drop(among([]Link{{Clients, 3}}))
	three.broken()
	again.echoes("d")
	dial(t, other).echoes("e")
}

// TestDownRefuses: a node that is down is refused at its gate, as it is at itself.
func TestDownRefuses(t *testing.T) {
	n, at := newNet(t, 2)
	dial(t, at).echoes("a")
	n.Down(2)
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Fatal("the gate of a node that is down is open")
	}
	if err := n.Up(2); err != nil {
		t.Fatal(err)
	}
	dial(t, at).echoes("b")
	n.Close()
	if err := n.Up(2); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Fatal("a network that is closed has an open gate")
	}
}

func TestSlow(t *testing.T) {
	n, at := newNet(t, 2)
	k := dial(t, at)
	k.echoes("a")
	const latency = 150 * time.Millisecond
	n.Slow([]Link{{Clients, 2}, {2, Clients}}, latency, 0)
	began := time.Now()
	k.echoes("b")
	if took := time.Since(began); took < 2*latency {
		t.Errorf("there and back in %v with a latency of %v each way", took, latency)
	}
	n.Slow([]Link{{Clients, 2}}, 0, 1<<20)
	line := newLine()
	line.slow(0, 1<<20)
	first := line.due(1 << 19)
	if second := line.due(1 << 19); second.Sub(first) < 499*time.Millisecond {
		t.Errorf("half a MiB takes %v at 1 MiB/s", second.Sub(first))
	}
	n.Heal()
	k.echoes("c")
}

// TestWhose: a connection is known by the process that made it.
func TestWhose(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash makes the connection of another process here")
	}
	pid := make(chan int, 1)
	started := sync.OnceValue(func() int { return <-pid })
	n := NewNetwork(func(node int32) int {
		if node != 1 {
			return 0
		}
		return started()
	})
	t.Cleanup(n.Close)
	at, one := fresh(t), fresh(t)
	n.Add(2, at, echo(t))
	n.Add(1, one, echo(t))
	if err := n.Up(2); err != nil {
		t.Fatal(err)
	}
	n.Cut([]Link{{2, 1}}, false) // from 2 to 1 nothing arrives
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("exec 3<>/dev/tcp/%s/%s; echo hello >&3; read -r line <&3; echo $line", host, port)
	cmd := exec.Command(bash, "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid <- cmd.Process.Pid
	heard := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		heard <- line
	}()
	dial(t, at).echoes("clients are not node 1")
	select {
	case line := <-heard:
		t.Errorf("node 1 hears %q over a line that is cut", line)
	case <-time.After(200 * time.Millisecond):
	}
	n.Heal()
	if line := <-heard; line != "hello\n" {
		t.Errorf("node 1 hears %q", line)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
