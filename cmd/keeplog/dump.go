package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keeplog/keeplog/internal/dump"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// dumpFlags are the flags of dump.
type dumpFlags struct {
	records, values, hex, summary bool
	from, to, decode, format      string
	summarySet                    bool
}

func newDumpCommand(a *app) *cobra.Command {
	var f dumpFlags
	cmd := &cobra.Command{
		Use:   "dump PATH...",
		Short: "Look inside the files of a data directory",
		Long: `Shows what is in a file, a partition's directory or a whole data directory: segments, their indexes, producer snapshots, checkpoints,
marks and the metadata store, of keeplog and of Apache Kafka. Reads only, takes no lock, works beside a running server.

A data directory is shown in summary, one line a file, unless --records or --summary=false is given.
Exit code 5: something is damaged. Exit code 3: something is in a format that this version cannot read.`,
		Example: `  keeplog dump keeplog-data/orders-0
  keeplog dump keeplog-data/orders-0/00000000000000000000.log --records
  keeplog dump keeplog-data --summary -o json
  keeplog dump kafka-logs/__consumer_offsets-12 --decode offsets`,
		Args: wantsArgs(1, -1),
		RunE: a.run(func(ctx context.Context, args []string) error { return a.dump(ctx, f, args) }),
	}
	a.outputFlags(cmd)
	fl := cmd.Flags()
	fl.BoolVarP(&f.records, "records", "r", false, "show the records, and check each of them")
	fl.BoolVar(&f.values, "values", false, "show values and headers whole (implies --records)")
	fl.BoolVar(&f.hex, "hex", false, "show keys and values as hexadecimal digits")
	fl.BoolVar(&f.summary, "summary", false, "one line a file")
	fl.StringVarP(&f.format, "format", "f", "", "print each record by `FORMAT`, as consume does (implies --records)")
	fl.StringVar(&f.from, "from", "", "show from this `OFFSET` or @TIME on")
	fl.StringVar(&f.to, "to", "", "show up to this `OFFSET` or @TIME, inclusive")
	fl.StringVar(&f.decode, "decode", "", "read the records of an internal topic: `WHAT` is offsets or txn; or of keeplog's own metadata store: raft")
	_ = cmd.RegisterFlagCompletionFunc("decode", cobra.FixedCompletions([]string{"offsets", "txn", "raft"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRun = func(cmd *cobra.Command, _ []string) { f.summarySet = cmd.Flags().Changed("summary") }
	return cmd
}

func (a *app) dump(ctx context.Context, f dumpFlags, paths []string) error {
	o, err := a.dumpOptions(f, paths)
	if err != nil {
		return err
	}
	sink, err := a.dumpSink(f, o, paths)
	if err != nil {
		return err
	}
	if err := theyExist(paths); err != nil {
		return err
	}
	total, err := dump.Run(ctx, o, sink, paths...)
	return a.dumpResult(total, err)
}

func (a *app) dumpOptions(f dumpFlags, paths []string) (dump.Options, error) {
	o := dump.Options{FS: vfs.OS(), Summary: f.summary, Records: f.records || f.values || f.format != "" || f.decode == "offsets" || f.decode == "txn"}
	switch f.decode {
	case "", "offsets", "txn":
		o.Decode = f.decode
	case "raft":
		o.Raft = true
		for _, p := range paths {
			if topic, _, ok := partitionAt(p); ok {
				e := usagef("--decode raft: %s is of topic %s, not of keeplog's own metadata store", p, topic)
				e.why = "raft means keeplog-raft.db and the snapshots beside it; the metadata log of Apache Kafka is not decoded"
				e.try = "--records"
				return o, e
			}
		}
	default:
		return o, usagef("--decode %q: offsets, txn or raft", f.decode)
	}
	if !f.summarySet && !o.Records && !o.Raft {
		for _, p := range paths {
			o.Summary = o.Summary || dump.IsDataDir(o.FS, p)
		}
	}
	var err error
	if o.From, err = a.dumpBound("--from", f.from); err != nil {
		return o, err
	}
	o.To, err = a.dumpBound("--to", f.to)
	return o, err
}

// partitionAt says which partition a path belongs to: its directory, or a file in it.
func partitionAt(path string) (topic string, partition int32, ok bool) {
	if topic, partition, ok = dump.PartitionOf(path); ok {
		return topic, partition, ok
	}
	return dump.PartitionOf(filepath.Join(path, "in"))
}

// dumpBound reads an offset, or a time after an @ or in RFC 3339.
func (a *app) dumpBound(flag, s string) (dump.Bound, error) {
	if s == "" {
		return dump.Bound{}, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return dump.Bound{Set: true, Value: n}, nil
	}
	text := s
	if s[0] == '@' {
		text = s[1:]
	}
	ms, err := parseTime(text, a.now())
	if err != nil {
		return dump.Bound{}, usagef("%s %q: an offset, or @TIME in RFC 3339 or ms", flag, s)
	}
	return dump.Bound{Set: true, Time: true, Value: ms}, nil
}

func (a *app) dumpSink(f dumpFlags, o dump.Options, paths []string) (dump.Sink, error) {
	if format, ok := dump.ParseFormat(a.flags.output); ok && f.format == "" {
		return dump.NewData(a.out, dump.DataOptions{Format: format, Values: f.values, Hex: f.hex}), nil
	}
	if f.format != "" {
		p, err := a.newPrinter(&consumeFlags{format: f.format, hex: f.hex})
		return &formatSink{app: a, printer: p, part: &part{}}, err
	}
	single := len(paths) == 1 && dump.IsFile(o.FS, paths[0])
	return dump.NewText(a.out, dump.TextOptions{Paths: !single, Summary: o.Summary, Values: f.values, Hex: f.hex, Total: !single}), nil
}

// formatSink prints the records of applications as consume does, and problems on stderr.
type formatSink struct {
	app     *app
	printer *printer
	part    *part
}

func (s *formatSink) Put(i dump.Item) error {
	switch x := i.(type) {
	case *dump.FileStart:
		s.part.topic, s.part.partition, _ = dump.PartitionOf(x.Path)
	case *dump.Problem:
		if x.Severity != dump.Note {
			s.app.say("%s: %s", x.File, x.Text)
		}
	case *dump.Record:
		if x.Marker != nil {
			return nil
		}
		s.printer.print(s.part, &record.Record{Offset: x.Offset, Timestamp: x.Timestamp, Key: x.Key, Value: x.Value, Headers: x.Headers})
		if len(s.printer.buf) >= printBuffer {
			return s.printer.flush()
		}
	}
	return nil
}

func (s *formatSink) Close() error { return s.printer.flush() }

// theyExist refuses a path that is not there before anything is printed.
func theyExist(paths []string) error {
	for _, p := range paths {
		if _, err := os.Stat(p); err != nil {
			return failf("%s: %s", p, lastPart(err))
		}
	}
	return nil
}

// dumpResult turns what was counted into the exit code.
func (a *app) dumpResult(total dump.Total, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failure(err)
	case err != nil:
		return err
	case total.Damage > 0:
		return &cliError{msg: count(int64(total.Damage), "damaged place") + " found", code: "DAMAGED", exit: exitDamaged}
	case total.Unsupported > 0:
		return &cliError{msg: fmt.Sprintf("%d places are in a format that this version cannot read", total.Unsupported), code: "UNSUPPORTED", exit: exitPart}
	}
	return nil
}
