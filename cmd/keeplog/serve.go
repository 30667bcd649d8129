package main

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/internal/node"
)

// exitStorage is EX_IOERR of sysexits.h: the disk failed, and going on would not be safe.
const exitStorage = 74

// baseMemory is what a broker needs beside the requests in flight, in bytes.
const baseMemory = 128 << 20

// serveFlags are the flags of serve.
type serveFlags struct {
	brokerFlags
	dataDir   string
	listen    []string
	advertise []string
	join      []string
	check     bool
}

func newServeCommand(a *app) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Run one broker", Args: wantsArgs(0, 0),
		Long: "Runs one broker in the foreground until SIGTERM or Ctrl-C, which stop it cleanly. Settings are taken from, each above the one\n" +
			"before: built-in defaults, --config FILE, the environment (KEEPLOG_NUM_PARTITIONS=3), --set, the flags below.",
	}
	cmd.RunE = a.run(func(ctx context.Context, _ []string) error { return a.serve(ctx, f) })
	f.add(cmd)
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "data `DIR` (log.dirs), ./keeplog-data unless set")
	cmd.Flags().StringArrayVar(&f.listen, "listen", nil, "`HOST:PORT` or NAME://HOST:PORT to listen on (repeatable), 127.0.0.1:9092 unless set")
	cmd.Flags().StringArrayVar(&f.advertise, "advertise", nil, "`HOST:PORT` or NAME://HOST:PORT that clients are told (repeatable)")
	cmd.Flags().StringSliceVar(&f.join, "join", nil, "`HOST:PORT` of a member of a running cluster to join: its CONTROLLER listener (repeatable)")
	cmd.Flags().BoolVar(&f.check, "check", false, "check the configuration and exit")
	a.outputFlags(cmd)
	return cmd
}

// named turns the flags into settings.
func (f serveFlags) named() []config.Flag {
	var out []config.Flag
	if f.dataDir != "" {
		out = append(out, config.Flag{Name: "--data-dir", Key: "log.dirs", Value: f.dataDir})
	}
	if len(f.listen) > 0 {
		out = append(out, config.Flag{Name: "--listen", Key: "listeners", Value: listenerList(f.listen)})
	}
	if len(f.advertise) > 0 {
		out = append(out, config.Flag{Name: "--advertise", Key: "advertised.listeners", Value: listenerList(f.advertise)})
	}
	if len(f.join) > 0 {
		out = append(out, config.Flag{Name: "--join", Key: "keeplog.join", Value: strings.Join(f.join, ",")})
	}
	return out
}

// listenerList writes HOST:PORT as Kafka writes a listener; what has a name stays as it is.
func listenerList(addrs []string) string {
	out := make([]string, len(addrs))
	for i, s := range addrs {
		if !strings.Contains(s, "://") {
			s = "PLAINTEXT://" + s
		}
		out[i] = s
	}
	return strings.Join(out, ",")
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	started := time.Now()
	cfg, err := a.load(f.brokerFlags, f.named())
	if err != nil {
		return err
	}
	if f.check {
		return a.show(result{body: struct {
			Version int  `json:"version"`
			OK      bool `json:"ok"`
		}{1, true}, text: func(t *text) { t.line("ok") }})
	}
	setMemoryLimit(cfg)
	logger, level := a.logger(cfg)
	if set := cfg.NonDefault(); len(set) > 0 && level <= slog.LevelInfo {
		logger.Info("configuration", "event", "config", "set", strings.Join(set, " "))
	}
	n, err := node.Open(ctx, node.Options{Config: cfg, Logger: logger, Level: level, Fatal: a.fatal})
	switch {
	case err != nil && ctx.Err() != nil:
		a.words("stopped while it was starting")
		return nil
	case err != nil:
		return a.startError(cfg, err)
	}
	a.ready(cfg, n, time.Since(started))
	var refused error
	select {
	case <-ctx.Done():
	case <-n.Refused():
		refused = n.Err()
	}
	stopped, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Duration("keeplog.shutdown.timeout.ms"))
	defer cancel()
	if err := n.Close(stopped); err != nil {
		return failf("clean stop: %v", err)
	}
	if refused != nil {
		return a.startError(cfg, refused)
	}
	a.words("stopped")
	return nil
}

// fatal ends the process at once: what the disk holds since its error can not be trusted, so nothing more is written to it.
func (a *app) fatal(err error) {
	if errors.Is(err, syscall.ENOSPC) {
		a.printError(&cliError{
			msg: withoutRooms(err.Error()), why: "the disk is full, what was kept in reserve for the broker's own files too",
			try: "make room on the disk, then start again: nothing that was acknowledged is lost", code: "STORAGE_FAILED", exit: exitStorage,
		})
		os.Exit(exitStorage)
	}
	a.printError(&cliError{
		msg: withoutRooms(err.Error()), why: "the disk reported an error; what was written since the last good fsync is not trusted",
		try: "check the disk, then start again: what was acknowledged is recovered", code: "STORAGE_FAILED", exit: exitStorage,
	})
	os.Exit(exitStorage)
}

// garbagePercent is how much the heap grows between two collections. What is live is small, most of it the stacks of connections, and is
// looked through less often so: of 512 clients' commits that is a twentieth of the processor time.
const garbagePercent = 200

// setMemoryLimit tells the runtime how much memory to aim at, unless GOMEMLIMIT and GOGC already do.
func setMemoryLimit(cfg *config.Broker) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(cfg.Int64("keeplog.memory.max.bytes") + baseMemory)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}

// everyLevel is below every level: what is written is decided by the broker's loggers, whose levels change while it runs.
const everyLevel = slog.Level(math.MinInt)

// logger writes to stderr: text for people on a terminal, JSON otherwise, as keeplog.log.format says. It takes every level; the one returned
// is what the broker begins with.
func (a *app) logger(cfg *config.Broker) (to *slog.Logger, level slog.Level) {
	_ = level.UnmarshalText([]byte(cfg.String("keeplog.log.level"))) // checked when the configuration was loaded
	switch {
	case a.flags.verbose:
		level = slog.LevelDebug
	case a.flags.quiet:
		level = slog.LevelWarn
	}
	format := cfg.String("keeplog.log.format")
	if format == "text" || format == "auto" && a.eTTY {
		return slog.New(tint.NewTextHandler(a.err, &tint.Options{Level: everyLevel, TimeFormat: time.TimeOnly, NoColor: !a.colour()})), level
	}
	return slog.New(slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: everyLevel})), level
}

// ready tells where the broker is and what to try.
func (a *app) ready(cfg *config.Broker, n *node.Node, took time.Duration) {
	brokers := ""
	if addr := n.Address(); addr != "127.0.0.1:9092" {
		brokers = " -b " + reachable(addr)
	}
	a.words("node %d  kafka %s  data %s", cfg.NodeID(), n.Address(), strings.Join(cfg.LogDirs(), ","))
	a.words("ready in %d ms", took.Milliseconds())
	a.words("Try:  echo hello | %s produce%s greetings", shellWord(program()), brokers)
	a.words("      %s consume%s greetings --exit", shellWord(program()), brokers)
}

// reachable is an address that a client on this machine can dial.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
