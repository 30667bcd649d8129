package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

type consumeFlags struct {
	format        string
	offset        string
	limit         int64
	tail          int64
	exit          bool
	group         string
	protocol      string
	partitions    []int32
	jq            string
	key           string
	headers       []string
	hex           bool
	prefixed      bool
	null          string
	readCommitted bool
	hasKey        bool
	hasTail       bool
}

func newConsumeCommand(a *app) *cobra.Command {
	var flags consumeFlags
	cmd := &cobra.Command{
		Use: "consume TOPIC...", Short: "Read records, by default each value as one line on stdout",
		Long: `Read records from topics and print them, by default from the start, and go on waiting for more. The records of one
partition come in their order; several partitions are merged as they come.

--jq gets each record as an object with topic, partition, offset, timestamp, key, value and headers; a value that is
JSON is there as JSON. A result of true prints the record by the format, false and null print nothing, anything else
is printed as JSON in a line.

With -g the partitions are shared with the other members of the group, and what was printed is committed, each second and at the end:
the group goes on from there, and -O counts only where it has committed nothing. A member that is killed is noticed after 6 s
(--protocol consumer: after the broker's group.consumer.session.timeout.ms).

A null key or value and an empty one both print as nothing; -Z tells them apart: it is printed for null.`,
		Example: `  keeplog consume orders --exit
  keeplog consume orders -O @-1h -f '%d %k %v\n'
  keeplog consume -g billing orders
  keeplog consume orders --jq '.value.total > 100'`,
		Args:              wantsArgs(1, -1),
		ValidArgsFunction: a.completeTopics(0),
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		flags.hasKey = cmd.Flags().Changed("key")
		if flags.hasTail = cmd.Flags().Changed("tail"); flags.hasTail && cmd.Flags().Changed("offset") {
			return usagef("--tail and -O cannot both be given")
		}
		return a.consume(ctx, &flags, args)
	})
	f := cmd.Flags()
	f.StringVarP(&flags.format, "format", "f", `%v\n`, "how to print a record: `FORMAT` of %k %v %h %t %p %o %d %D %s %%, \\n \\t \\0")
	f.StringVarP(&flags.offset, "offset", "O", "start", "`WHERE` to read: start, end, N, +N, -N, N-M, @TIME, @-1h or @TIME-TIME (RFC 3339 or ms)")
	f.Int64VarP(&flags.limit, "num", "n", 0, "stop after `N` records (0: no limit)")
	f.Int64Var(&flags.tail, "tail", 0, "begin `N` records before the end of each partition, as -O -N")
	f.BoolVar(&flags.exit, "exit", false, "stop at the end as of the start of the command")
	f.StringVarP(&flags.group, "group", "g", "", "read as a member of this consumer `GROUP`")
	f.StringVar(&flags.protocol, "protocol", "classic", "`PROTOCOL` of the group: classic, or consumer (KIP-848: the broker assigns)")
	f.Int32SliceVarP(&flags.partitions, "partition", "p", nil, "only these `PARTITIONS`, as 0,2")
	f.StringVar(&flags.jq, "jq", "", "a jq `EXPR` that chooses or changes records")
	f.StringVar(&flags.key, "key", "", "only records with this `KEY`")
	f.StringArrayVar(&flags.headers, "header", nil, "only records with this header, `KEY=VALUE` (repeatable: all of them)")
	f.BoolVar(&flags.hex, "hex", false, "print keys and values as hexadecimal digits")
	f.BoolVar(&flags.prefixed, "length-prefixed", false, "print a 32-bit big-endian length before each value, and nothing else")
	f.StringVarP(&flags.null, "null-value", "Z", "", "the `TEXT` to print for null keys and values")
	f.BoolVar(&flags.readCommitted, "read-committed", false, "leave out records of aborted and open transactions")
	a.clientFlags(cmd)
	plainDefault(cmd, "format")
	_ = cmd.RegisterFlagCompletionFunc("group", a.completeGroups(ofFlag))
	_ = cmd.RegisterFlagCompletionFunc("protocol", cobra.FixedCompletions([]string{"classic", "consumer"}, cobra.ShellCompDirectiveNoFileComp))
	f.Lookup("partition").DefValue = ""
	return cmd
}

func (a *app) consume(ctx context.Context, flags *consumeFlags, topics []string) error {
	if flags.tail < 0 || flags.limit < 0 {
		return usagef("--tail and -n cannot be below zero")
	}
	offset := flags.offset
	if flags.hasTail {
		offset = fmt.Sprintf("-%d", flags.tail)
	}
	where, err := parseSpan(offset, a.now())
	if err != nil {
		return err
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	if flags.group != "" {
		return a.consumeAsMember(ctx, flags, topics, where)
	}
	out, err := a.newPrinter(flags)
	if err != nil {
		return err
	}
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	pl := &consumePlan{session: s, committed: flags.readCommitted, exit: flags.exit, where: where}
	parts, err := pl.begin(ctx, topics, flags.partitions)
	if err != nil {
		return s.explain(err, "")
	}
	c := &consuming{app: a, session: s, plan: pl, parts: parts, out: out, committed: flags.readCommitted, waits: !flags.exit && where.to.kind == pointNone}
	err = c.run(ctx)
	if flushErr := out.flush(); err == nil {
		err = flushErr
	}
	a.clearProgress()
	if err == nil && out.skipped > 0 {
		e := failf("--jq failed for %s", count(out.skipped, "record"))
		e.exit = exitPart
		err = e
	}
	if err == nil && out.limit != 0 { // else as many as were asked for
		err = pl.incomplete()
	}
	return s.explain(err, "")
}

// part is one partition that is read. Who fetches it owns it.
type part struct {
	tp
	id   [16]byte
	next int64 // first offset that has not been handed to the printer
	stop int64 // first offset not to read; math.MaxInt64: none
	// toHere says that the end is not known and that reading stops where the leader has no more to give.
	toHere bool
	trouble
}

// trouble is why nothing comes of a partition. Its zero value: nothing is wrong.
type trouble struct {
	why   error
	since time.Time
	told  bool      // it has lasted for --timeout
	rest  time.Time // until when it is left out, so that the others are not disturbed
}

func (p *part) done() bool { return p.stop != math.MaxInt64 && p.next >= p.stop }

// filter says which records are printed, before --jq.
type filter struct {
	key     []byte
	byKey   bool
	headers [][2][]byte
}

func newFilter(flags *consumeFlags) (*filter, error) {
	pairs, err := keyValues("--header", flags.headers)
	if err != nil || (!flags.hasKey && len(pairs) == 0) {
		return nil, err
	}
	f := &filter{key: []byte(flags.key), byKey: flags.hasKey}
	for _, kv := range pairs {
		f.headers = append(f.headers, [2][]byte{[]byte(kv[0]), []byte(kv[1])})
	}
	return f, nil
}

func (f *filter) matchesKey(key []byte) bool {
	return !f.byKey || (key != nil && bytes.Equal(key, f.key))
}

var errEnough = errors.New("as many records as were asked for")
