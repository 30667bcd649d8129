package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The binary of the test stands in for the program, so scripts need no build. Most tests wait for a broker that is silent or late, so more of
// them run beside each other than there are cores, unless -parallel says otherwise.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"keeplog": main})
}

// The scripts in testdata/script run one command after another and compare what they print. Beside testscript's own
// commands they have:
//
//	broker [arg...]      starts a broker on a free port and waits until it answers; args go to "keeplog serve".
//	                     KEEPLOG_BROKERS is its address. A second call starts it again on the same directory.
//	stopbroker [kill]    stops it with SIGTERM, or kills it
//	exit CODE cmd...     runs cmd, which must end with CODE
//	await TEXT cmd...    runs cmd until its stdout holds TEXT (20 s)
//	repeat FILE N TEXT   writes N copies of TEXT to FILE; \n in TEXT is a newline
//
// KEEPLOG_SCRIPT_BROKERS names a running broker to use instead, for example Kafka's own (go test -parallel 1). Every
// script begins by deleting all topics there.
func TestScripts(t *testing.T) {
	busy := make(chan struct{}, runtime.GOMAXPROCS(0)) // scripts have servers and clusters of their own
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("..", "..", "testdata", "script"),
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"broker": scriptBroker, "stopbroker": scriptStopBroker, "exit": scriptExit, "repeat": scriptRepeat,
			"await": scriptAwait,
		},
		Condition: func(cond string) (bool, error) {
			given := os.Getenv("KEEPLOG_SCRIPT_BROKERS") != ""
			switch cond {
			case "serve": // a broker that judges as Kafka does, not the small fake
				return hasServe() || given, nil
			case "restart": // a broker that stopbroker stops
				return hasServe() && !given, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Setup: func(e *testscript.Env) error {
			busy <- struct{}{}
			e.Defer(func() { <-busy })
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("NO_COLOR", "1")
			e.Values[runningKey{}] = &running{}
			return nil
		},
	})
}

type runningKey struct{}

// running is the broker of one script.
type running struct {
	cmd    *exec.Cmd
	log    bytes.Buffer
	addr   string
	exited chan error
}

func (r *running) stop(kill bool) error {
	if r.cmd == nil {
		return nil
	}
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	_ = r.cmd.Process.Signal(signal)
	r.cmd = nil
	select {
	case err := <-r.exited:
		if kill {
			return nil
		}
		return err
	case <-time.After(20 * time.Second):
		return errors.New("the broker does not stop")
	}
}

func scriptBroker(ts *testscript.TestScript, neg bool, args []string) {
	r := ts.Value(runningKey{}).(*running)
	if neg || r.cmd != nil {
		ts.Fatalf("broker: it runs already, or a negation")
	}
	if given := os.Getenv("KEEPLOG_SCRIPT_BROKERS"); given != "" {
		ts.Setenv("KEEPLOG_BROKERS", given)
		ts.Check(deleteAllTopics(given))
		return
	}
	if !hasServe() {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(1), kfake.AllowAutoTopicCreation())
		ts.Check(err)
		ts.Defer(cluster.Close)
		ts.Setenv("KEEPLOG_BROKERS", cluster.ListenAddrs()[0])
		return
	}
	if r.addr == "" {
		r.addr = freeAddr(ts)
		ts.Defer(func() {
			if err := r.stop(false); err != nil {
				ts.Logf("broker: %v\n%s", err, &r.log)
			}
		})
	}
	ts.Check(r.start(ts, append([]string{"keeplog", "serve", "--data-dir", ts.MkAbs("data"), "--listen", r.addr}, args...)))
	ts.Setenv("KEEPLOG_BROKERS", r.addr)
}

func (r *running) start(ts *testscript.TestScript, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Args = args // the name at the front picks the program
	cmd.Dir = ts.MkAbs(".")
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	r.cmd, r.exited = cmd, exited
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.addr))
	if err != nil {
		return err
	}
	defer client.Close()
	for client.Ping(ctx) != nil {
		select {
		case err := <-exited:
			r.cmd = nil
			return fmt.Errorf("the broker ended: %w\n%s", err, &r.log)
		case <-ctx.Done():
			return fmt.Errorf("the broker does not answer\n%s", &r.log)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func deleteAllTopics(addr string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx)
	if err != nil || len(topics) == 0 {
		return err
	}
	_, err = admin.DeleteTopics(ctx, topics.Names()...)
	return err
}

func hasServe() bool {
	found, _, err := newRootCommand(&app{streams: standardStreams()}).Find([]string{"serve"})
	return err == nil && found.Name() == "serve"
}

func freeAddr(ts *testscript.TestScript) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	defer l.Close()
	return l.Addr().String()
}

func scriptStopBroker(ts *testscript.TestScript, neg bool, args []string) {
	r := ts.Value(runningKey{}).(*running)
	if err := r.stop(len(args) == 1 && args[0] == "kill"); err != nil {
		ts.Fatalf("stopbroker: %v\n%s", err, &r.log)
	}
}

func scriptExit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE command [arg...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func scriptRepeat(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: repeat FILE N TEXT")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	text := strings.Repeat(strings.ReplaceAll(args[2], `\n`, "\n"), n)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o644))
}

func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await TEXT command [arg...]")
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		if err := ts.Exec(args[1], args[2:]...); err == nil && strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%q does not appear", args[0])
		}
	}
}
