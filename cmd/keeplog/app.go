package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// streams are the outside of one run.
type streams struct {
	in                  io.Reader
	out, err            io.Writer
	inTTY, outTTY, eTTY bool
	getenv              func(string) string
}

func standardStreams() streams {
	return streams{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		outTTY: term.IsTerminal(int(os.Stdout.Fd())),
		eTTY:   term.IsTerminal(int(os.Stderr.Fd())),
		getenv: os.Getenv,
	}
}

// globalFlags are the flags of every client command.
type globalFlags struct {
	brokers       string
	commandConfig string
	properties    []string
	output        string
	timeout       time.Duration
	quiet         bool
	verbose       bool
	noColor       bool
	yes           bool
	noHeaders     bool
}

// app is one run of the program.
type app struct {
	streams
	flags globalFlags
	args  []string // as the program was called
	now   func() time.Time
}

// errInterrupted is the cause of a context that a signal cancelled.
var errInterrupted = errors.New("interrupted")

// run is the whole program: it parses args, runs one command and returns the exit code.
func run(args []string, s streams) int {
	a := &app{streams: s, args: args, now: time.Now}
	root := newRootCommand(a)
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.Execute()
	if err == nil {
		return exitDone
	}
	ce := asCLIError(err)
	if !ce.told {
		a.printError(ce)
	}
	return ce.exit
}

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "keeplog",
		Short:         "A durable commit log that speaks the Kafka protocol: acknowledged means kept",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          a.wantsSubcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(helpCommand())
	root.Version = versionText()
	root.SetVersionTemplate("keeplog {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	for _, create := range commands() {
		root.AddCommand(create(a))
	}
	return root
}

// helpCommand is --help under the name that many try first.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND...]", Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				e := usagef("unknown command %q", strings.Join(args, " "))
				e.try = "keeplog --help"
				return e
			}
			return found.Help()
		},
	}
}

// clientFlags adds the flags that every command that talks to brokers has.
func (a *app) clientFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	brokers := a.getenv("KEEPLOG_BROKERS")
	if brokers == "" {
		brokers = "127.0.0.1:9092"
	}
	f.StringVarP(&a.flags.brokers, "brokers", "b", brokers, "brokers to ask first, `HOST:PORT,...` (env KEEPLOG_BROKERS)")
	f.StringVarP(&a.flags.commandConfig, "command-config", "F", "", "a Kafka client properties `FILE`")
	f.StringArrayVarP(&a.flags.properties, "property", "X", nil, "a client property, `KEY=VALUE` (repeatable)")
	f.DurationVar(&a.flags.timeout, "timeout", 10*time.Second, "how long to wait for an answer, a `DURATION` such as 10s")
	f.BoolVarP(&a.flags.yes, "yes", "y", false, "do not ask before something is deleted")
	a.outputFlags(cmd)
}

// outputFlags adds the flags about what is printed, for commands that ask no broker too.
func (a *app) outputFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVarP(&a.flags.output, "output", "o", "text", "`FORMAT` of the answer: text, wide, json, jsonl or yaml")
	f.BoolVarP(&a.flags.quiet, "quiet", "q", false, "no words on stderr but errors")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false, "more words on stderr")
	f.BoolVar(&a.flags.noColor, "no-color", false, "no colours (also: NO_COLOR, TERM=dumb)")
	f.BoolVar(&a.flags.noHeaders, "no-headers", false, "tables without their head")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputFormats, cobra.ShellCompDirectiveNoFileComp))
}

// group is a command that only has subcommands.
func (a *app) group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: a.wantsSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	return cmd
}

// wantsSubcommand refuses a word that names no subcommand, and suggests the nearest.
func (a *app) wantsSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	e := usagef("unknown command %q", strings.TrimPrefix(cmd.CommandPath()+" "+args[0], "keeplog "))
	e.try = cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		e.try = cmd.CommandPath() + " " + near[0]
	}
	return e
}

// wantsArgs takes from least to most arguments (most < 0: no bound) and tells the usage line otherwise.
func wantsArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		e := usagef("%s: missing argument", cmd.CommandPath())
		if len(args) > least {
			e = usagef("%s: unexpected argument %q", cmd.CommandPath(), args[most])
		}
		e.try = strings.TrimSuffix(cmd.UseLine(), " [flags]")
		return e
	}
}

// run wraps the work of a command: ctx is cancelled by SIGINT and SIGTERM, and what is returned is a *cliError.
func (a *app) run(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.checkFlags(); err != nil {
			return err
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(signals)
		go func() {
			select {
			case <-signals:
				signal.Stop(signals) // a second signal ends the process at once
				cancel(errInterrupted)
			case <-ctx.Done():
			}
		}()
		err := work(ctx, args)
		var ce *cliError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &ce) && ce.exit != exitFailed && ce.exit != exitUnreachable:
			return ce
		case errors.Is(context.Cause(ctx), errInterrupted):
			return &cliError{msg: "interrupted", exit: exitInterrupted}
		default:
			return failure(err)
		}
	}
}

func (a *app) checkFlags() error {
	if a.flags.output == "" {
		a.flags.output = "text"
	}
	for _, f := range outputFormats {
		if a.flags.output == f {
			return nil
		}
	}
	return &cliError{
		msg: fmt.Sprintf("unknown output format %q", a.flags.output),
		try: "-o " + strings.Join(outputFormats, "|"), exit: exitUsage,
	}
}

// say prints a line of words on stderr, unless -q.
func (a *app) say(format string, args ...any) {
	if !a.flags.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}

// confirm asks before something is destroyed. Without a terminal on stdin it needs -y. The end of ctx is an answer too.
func (a *app) confirm(ctx context.Context, what string) error {
	if a.flags.yes {
		return nil
	}
	if !a.inTTY {
		return &cliError{msg: "not confirmed: " + what, why: "stdin is no terminal to ask on", try: a.again("-y"), exit: exitUsage}
	}
	fmt.Fprintf(a.err, "%s? [y/N] ", what)
	answers := make(chan string, 1)
	go func() { // reading cannot be cut short
		var answer string
		_, _ = fmt.Fscanln(a.in, &answer)
		answers <- strings.ToLower(answer)
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(a.err)
		return context.Cause(ctx)
	}
	return &cliError{msg: "not confirmed, nothing was changed", exit: exitFailed}
}
