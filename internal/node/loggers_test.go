package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestLoggers(t *testing.T) {
	var out bytes.Buffer
	l := newLoggers(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.Level(-100), ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}), slog.LevelInfo)
	isr, log := l.room("isr").With("topic", "t").WithGroup("g"), l.room("log")
	write := func() string {
		out.Reset()
		for _, level := range []slog.Level{-8, -4, 0, 4, 8, 12} {
			isr.Log(t.Context(), level, "x")
			log.Log(t.Context(), level, "y")
		}
		return fmt.Sprint(strings.Count(out.String(), "logger=isr"), strings.Count(out.String(), "logger=log"))
	}
	for _, tc := range []struct {
		name, level, lines, levels string
	}{
		{"", "", "4 4", "isr INFO, log INFO, root INFO"},
		{"isr", "TRACE", "6 4", "isr TRACE, log INFO, root INFO"},
		{"isr", "bad", "6 4", "isr TRACE, log INFO, root INFO"},
		{"nobody", "DEBUG", "6 4", "isr TRACE, log INFO, root INFO"},
		{"root", "WARN", "6 3", "isr TRACE, log WARN, root WARN"},
		{"root", "", "6 3", "isr TRACE, log WARN, root WARN"},
		{"log", "FATAL", "6 1", "isr TRACE, log FATAL, root WARN"},
		{"isr", "", "3 1", "isr WARN, log FATAL, root WARN"},
		{"log", "DEBUG", "3 5", "isr WARN, log DEBUG, root WARN"},
		{"log", "ERROR", "3 2", "isr WARN, log ERROR, root WARN"},
	} {
		l.SetLevel(tc.name, tc.level)
		levels := l.Levels()
		if got := fmt.Sprintf("isr %s, log %s, root %s", levels["isr"], levels["log"], levels["root"]); got != tc.levels {
			t.Errorf("%s=%s: %s, want %s", tc.name, tc.level, got, tc.levels)
		}
		if got := write(); got != tc.lines {
			t.Errorf("%s=%s: lines %s, want %s", tc.name, tc.level, got, tc.lines)
		}
	}
	if !l.Has("root") || !l.Has("quorum") || l.Has("vfs") || len(l.Levels()) != len(roomNames)+1 {
		t.Error(l.Levels())
	}
	defer func() {
		if recover() == nil {
			t.Error("a room that has no level was given a logger, whose first line would end the process")
		}
	}()
	l.room("vfs")
}

// Levels are read and changed as Kafka's tool does, with effect at once.
func TestLevelsChangeOverTheWire(t *testing.T) {
	n, err := start(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(n.Address()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	levels := func() string {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "1"}}
		resp, err := req.RequestWith(t.Context(), client)
		if err != nil || resp.Resources[0].ErrorCode != 0 {
			t.Fatalf("%v %+v", err, resp)
		}
		var s []string
		for _, c := range resp.Resources[0].Configs {
			s = append(s, c.Name+"="+*c.Value)
		}
		return strings.Join(s, " ")
	}
	want := append([]string{"root=INFO"}, roomNames[:]...)
	for i := range roomNames {
		want[i+1] += "=INFO"
	}
	slices.Sort(want)
	if got, want := levels(), strings.Join(want, " "); got != want {
		t.Errorf("levels %s, want %s", got, want)
	}
	if n.log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("DEBUG before it is set")
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	debug := "DEBUG"
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "1",
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "node", Value: &debug}},
	}}
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("%v %+v", err, resp)
	}
	if got := levels(); !strings.Contains(got, " node=DEBUG ") || !n.log.Enabled(t.Context(), slog.LevelDebug) {
		t.Errorf("levels %s", got)
	}
}
