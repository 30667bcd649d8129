package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keeplog/keeplog/internal/dump"
	"github.com/keeplog/keeplog/vfs"
)

func newCheckCommand(a *app) *cobra.Command {
	var repair bool
	cmd := &cobra.Command{
		Use:   "check PATH...",
		Short: "Verify the files of a data directory, and mend them with --repair",
		Long: `Reads everything that dump reads, checks every record, and compares the files of each partition with each other. Prints one line for each
problem. Reads only and works beside a running server; a torn tail behind the stable mark of a killed server is no damage.

--repair mends what was found, of a server that is stopped: a bad batch becomes an empty one that covers its offsets, its bytes are kept in
POS.bad beside; indexes, snapshots and checkpoints that do not check are removed, and the server makes them anew. A log is never shortened
below its stable mark.

Exit code 5: something is damaged (with --repair: still). Exit code 3: something is in a format that this version cannot read.`,
		Example: "  keeplog check keeplog-data\n  keeplog check keeplog-data --repair",
		Args:    wantsArgs(1, -1),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if err := theyExist(args); err != nil {
				return err
			}
			if repair {
				return a.repair(ctx, args)
			}
			return a.check(ctx, args)
		}),
	}
	a.outputFlags(cmd)
	cmd.Flags().BoolVar(&repair, "repair", false, "mend what is damaged; the server must be stopped")
	cmd.Flags().BoolVarP(&a.flags.yes, "yes", "y", false, "do not ask before something is changed")
	return cmd
}

func (a *app) checkOptions() dump.Options {
	return dump.Options{FS: vfs.OS(), Verify: true, Summary: true, Progress: func(n int64) {
		a.progress(func() string { return "checked " + dump.Bytes(n) })
	}}
}

// problemSink prints problems and nothing else on w.
func (a *app) problemSink(w io.Writer) dump.Sink {
	if format, ok := dump.ParseFormat(a.flags.output); ok {
		return dump.NewData(w, dump.DataOptions{Format: format, OnlyProblems: true})
	}
	return dump.NewText(w, dump.TextOptions{OnlyProblems: true, Notes: a.flags.verbose, Total: true})
}

func (a *app) check(ctx context.Context, paths []string) error {
	total, err := dump.Run(ctx, a.checkOptions(), a.problemSink(a.out), paths...)
	a.clearProgress()
	return a.dumpResult(total, err)
}

// repair checks and mends one path after the other.
func (a *app) repair(ctx context.Context, paths []string) error {
	var last error
	for _, p := range paths {
		if err := a.repairPath(ctx, p); err != nil {
			last = err
			if ce := (*cliError)(nil); !errors.As(err, &ce) || ce.exit != exitDamaged {
				return err
			}
		}
	}
	return last
}

func (a *app) repairPath(ctx context.Context, path string) (err error) {
	r, err := dump.NewRepair(vfs.OS(), path)
	if errors.Is(err, dump.ErrRunning) {
		return &cliError{msg: fmt.Sprintf("cannot repair %s", path), why: "a server is running on it", try: "stop the server first; keeplog check " + path + " works beside it", exit: exitFailed}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	total, err := r.Look(ctx, a.checkOptions(), a.problemSink(a.out), path)
	a.clearProgress()
	if err != nil {
		return err
	}
	steps := r.Steps()
	if len(steps) == 0 {
		return a.dumpResult(total, nil)
	}
	for _, s := range steps {
		a.say("%s", s)
	}
	if err := a.confirm(ctx, count(int64(len(steps)), "change")+" to "+path); err != nil {
		return err
	}
	if err := r.Do(func(file string) { a.say("done: %s", file) }); err != nil {
		return err
	}
	again, err := r.Look(ctx, a.checkOptions(), a.problemSink(io.Discard), path)
	a.clearProgress()
	if err != nil {
		return err
	}
	a.say("repaired, %s left", count(int64(again.Damage), "damaged place"))
	return a.dumpResult(again, nil)
}
