package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxBatch bounds the batches that are sent, however large the topic takes them.
	maxBatch = 64 << 20
	// defaultMessageMax is Kafka's max.message.bytes, for a broker that does not tell.
	defaultMessageMax = 1048588
	// recordOverhead is what a batch of one record has besides key, value and headers, at most.
	recordOverhead = 61 + 5 + 1 + 10 + 5 + 5 + 5 + 5 + 4
	// The records under way are bounded by number and by bytes.
	bufferedRecords = 400_000
	bufferedBytes   = 32 << 20
	recordSlab      = 512
	badInputsTold   = 10
)

type produceFlags struct {
	format    string
	key       string
	headers   []string
	partition int32
	codec     string
	acks      string
	jsonl     bool
	whole     bool
	prefixed  bool
	rate      float64
	null      string
	hasKey    bool
	hasNull   bool
}

func newProduceCommand(a *app) *cobra.Command {
	var flags produceFlags
	cmd := &cobra.Command{
		Use: "produce TOPIC [FILE...]", Short: "Write records, by default each line of stdin is the value of one",
		Long: `Write records to a topic. By default each line of stdin (or of the files) is the value of one record; an empty
line is an empty value. A line that is larger than the topic takes is an error that names it, and the others go on.

Text whose lines end in a newline comes out of "keeplog consume" byte for byte as it went in, if the topic has one
partition (or -p names one). If the last line has no newline, consume adds one; --whole keeps the bytes of a small
file as they are, --length-prefixed those of a stream that is not text (a 32-bit big-endian length before each value;
consume has the same flag).`,
		Example: `  echo hello | keeplog produce greetings
  keeplog produce users -f '%k\t%v\n' < users.tsv
  keeplog produce blobs --whole picture.png`,
		Args:              wantsArgs(1, -1),
		ValidArgsFunction: a.completeTopicThenFiles(),
	}
	cmd.RunE = a.run(func(ctx context.Context, args []string) error {
		flags.hasKey, flags.hasNull = cmd.Flags().Changed("key"), cmd.Flags().Changed("null-value")
		return a.produce(ctx, &flags, args[0], args[1:])
	})
	f := cmd.Flags()
	f.StringVarP(&flags.format, "format", "f", `%v\n`, "how to read a record: `FORMAT` of %k %v %h %t %p %d %D, \\n \\t \\0")
	f.StringVarP(&flags.key, "key", "k", "", "the `KEY` of every record")
	f.StringArrayVarP(&flags.headers, "header", "H", nil, "a header of every record, `KEY:VALUE` (repeatable)")
	f.Int32VarP(&flags.partition, "partition", "p", -1, "the `PARTITION` (-1: by key, else spread)")
	f.StringVarP(&flags.codec, "compression", "z", "", "`CODEC`: none, gzip, snappy, lz4 or zstd (default none)")
	f.StringVar(&flags.acks, "acks", "", "`ACKS`: all, 1 or 0 (default all)")
	f.BoolVar(&flags.jsonl, "jsonl", false, "each line is a record in JSON, as consume -o jsonl prints it")
	f.BoolVar(&flags.whole, "whole", false, "each file, or stdin, is one record")
	f.BoolVar(&flags.prefixed, "length-prefixed", false, "a 32-bit big-endian length stands before each value")
	f.Float64Var(&flags.rate, "rate", 0, "`N` records a second (0: as fast as it goes)")
	f.StringVarP(&flags.null, "null-value", "Z", "", "a value that is this `TEXT` is sent as null, a tombstone (-Z '': an empty one)")
	a.clientFlags(cmd)
	plainDefault(cmd, "format")
	_ = cmd.RegisterFlagCompletionFunc("compression", cobra.FixedCompletions([]string{"none", "gzip", "snappy", "lz4", "zstd"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("acks", cobra.FixedCompletions([]string{"all", "1", "0"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) completeTopicThenFiles() cobra.CompletionFunc {
	topics := a.completeTopics(1)
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return topics(cmd, args, word)
	}
}

// tally counts what became of the input: records, and bytes for size.
type tally struct {
	sent, bad, acked, size atomic.Int64
}

// producing is one run of produce. The reader goroutine owns everything but the atomics.
type producing struct {
	app     *app
	flags   *produceFlags
	topic   string
	parts   []formatPart
	plain   bool // one value a line, nothing else
	headers []kgo.RecordHeader
	session *session
	limit   int // largest key and value together, bytes
	count   int // partitions of the topic
	refused refusals

	slab    []kgo.Record
	at      time.Time // when the input was last read
	pace    *time.Timer
	started time.Time

	tally
	failedOnce sync.Once
	failed     atomic.Pointer[error]
	cancel     context.CancelCauseFunc
	batchMax   atomic.Int32 // largest batch that the topic takes, bytes
}

func (a *app) produce(ctx context.Context, flags *produceFlags, topic string, files []string) error {
	p := &producing{app: a, flags: flags, topic: topic, started: a.now()}
	opts, err := p.options()
	if err != nil {
		return err
	}
	s, err := a.connect(ctx, opts...)
	if err != nil {
		return err
	}
	defer s.close()
	p.session = s
	limit, err := p.findTopic(ctx)
	if err != nil {
		return s.explain(err, "topic "+topic)
	}
	p.batchMax.Store(int32(min(limit, maxBatch)))
	p.limit = min(limit, maxBatch) - recordOverhead - len(flags.key)
	for _, h := range p.headers {
		p.limit -= len(h.Key) + len(h.Value) + 10
	}
	if p.limit <= 0 {
		return failf("topic %s: max.message.bytes is %d, too small for any record", topic, limit)
	}
	return p.run(ctx, files)
}

// options checks the flags and turns them into those of the client.
func (p *producing) options() ([]kgo.Opt, error) {
	f := p.flags
	var err error
	if p.parts, err = parseFormat(f.format); err != nil {
		return nil, err
	}
	p.plain = f.format == `%v\n`
	if _, err := newFields(nil, p.parts, 0); err != nil {
		return nil, err
	}
	for _, h := range f.headers {
		k, v, ok := strings.Cut(h, ":")
		if !ok {
			return nil, usagef("-H %s: not KEY:VALUE", h)
		}
		p.headers = append(p.headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	modes := 0
	for _, on := range []bool{f.jsonl, f.whole, f.prefixed, !p.plain} {
		if on {
			modes++
		}
	}
	if modes > 1 {
		return nil, usagef("only one of -f, --jsonl, --whole and --length-prefixed can be given")
	}
	if f.rate < 0 || f.partition < -1 {
		return nil, usagef("--rate and -p cannot be below zero")
	}
	opts := []kgo.Opt{
		kgo.WithLogger(&p.refused),
		kgo.MaxBufferedRecords(bufferedRecords), kgo.MaxBufferedBytes(bufferedBytes),
		kgo.RequestRetries(1 << 20), kgo.RetryTimeout(p.app.flags.timeout), kgo.ProduceRequestTimeout(oneTry(p.app.flags.timeout)), kgo.DefaultProduceTopic(p.topic),
		kgo.AllowIdempotentProduceCancellation(), kgo.ProducerLinger(5 * time.Millisecond),
		kgo.ProducerBatchMaxBytesFn(func(string) int32 { return max(p.batchMax.Load(), 1024) }),
		kgo.RetryBackoffFn(func(n int) time.Duration { return min(time.Duration(n)*50*time.Millisecond, time.Second) }),
	}
	if f.partition >= 0 || slices.ContainsFunc(p.parts, func(x formatPart) bool { return x.field == 'p' }) {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	props, err := p.app.clientProperties()
	if err != nil {
		return nil, err
	}
	return p.delivery(opts, props.values)
}

// delivery adds codec and acks; the flags win over the properties.
func (p *producing) delivery(opts []kgo.Opt, props map[string]string) ([]kgo.Opt, error) {
	codec, acks := p.flags.codec, p.flags.acks
	if codec == "" {
		codec = props["compression.type"]
	}
	if acks == "" {
		acks = props["acks"]
	}
	codecs := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	c, ok := codecs[codec]
	if !ok {
		return nil, &cliError{msg: fmt.Sprintf("unknown codec %q", codec), try: "-z none|gzip|snappy|lz4|zstd", exit: exitUsage}
	}
	opts = append(opts, kgo.ProducerBatchCompression(c))
	switch acks {
	case "", "all", "-1":
		return append(opts, kgo.RequiredAcks(kgo.AllISRAcks())), nil
	case "1":
		return append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()), nil
	case "0":
		return append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()), nil
	}
	return nil, &cliError{msg: fmt.Sprintf("unknown acks %q", acks), try: "--acks all|1|0", exit: exitUsage}
}

// run reads all input while a watchdog looks for progress, and tells what was done.
func (p *producing) run(ctx context.Context, files []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	p.cancel = cancel
	defer cancel(nil)
	p.started = p.app.now()
	done := make(chan error, 1)
	go func() {
		// What was read before the input failed is sent, so that the count of acknowledged records is true.
		err := p.readAll(ctx, files)
		if flushErr := p.session.client.Flush(ctx); err == nil {
			err = flushErr
		}
		done <- err
	}()
	err := p.watch(ctx, done)
	if failed := p.failed.Load(); failed != nil {
		err = *failed
	}
	if cause := context.Cause(ctx); cause != nil && p.failed.Load() == nil {
		err = cause
	}
	p.app.clearProgress()
	return p.report(err)
}

// watch waits for done, shows progress, and gives up when nothing was acknowledged for --timeout.
func (p *producing) watch(ctx context.Context, done <-chan error) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	last, since := int64(-1), time.Now()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if n := p.acked.Load(); n != last || p.session.client.BufferedProduceRecords() == 0 {
			last, since = n, time.Now()
		}
		idle := time.Since(since)
		p.refused.listen(idle > time.Second || idle > p.app.flags.timeout/2)
		if idle > p.app.flags.timeout {
			err := p.explain(context.DeadlineExceeded)
			p.cancel(err)
			return err
		}
		p.app.progress(func() string {
			return fmt.Sprintf("%d records, %s, %s/s", p.acked.Load(), size(p.size.Load()), size(p.speed()))
		})
	}
}

func (p *producing) speed() int64 {
	seconds := p.app.now().Sub(p.started).Seconds()
	return int64(float64(p.size.Load()) / max(seconds, 0.001))
}

func (p *producing) readAll(ctx context.Context, files []string) error {
	if len(files) == 0 {
		return p.read(ctx, p.app.in, "")
	}
	for _, name := range files {
		if name == "-" {
			if err := p.read(ctx, p.app.in, ""); err != nil {
				return err
			}
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return failf("%s: %s", name, lastPart(err))
		}
		err = p.read(ctx, f, name+": ")
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// open picks the reader of the flags.
func (p *producing) open(r io.Reader) (input, *pieces, error) {
	f := p.flags
	stamp := func() { p.at = p.app.now() }
	switch {
	case f.whole:
		return &whole{r: r, limit: p.limit}, nil, nil
	case f.prefixed:
		return &prefixed{r: newBufferedReader(r), limit: p.limit}, nil, nil
	case f.jsonl:
		in := newPieces(r, []byte("\n"), 2*p.limit+4096) // escapes make JSON longer than what it holds
		in.read = stamp
		return jsonLines{in}, in, nil
	case p.plain:
		in := newPieces(r, []byte("\n"), p.limit)
		in.read = stamp
		return lines{in}, in, nil
	}
	in, err := newFields(r, p.parts, p.limit)
	if err != nil {
		return nil, nil, err
	}
	in.read = stamp
	return in, in.pieces, nil
}

// read sends every record of one input.
func (p *producing) read(ctx context.Context, r io.Reader, name string) error {
	in, cut, err := p.open(r)
	if err != nil {
		return err
	}
	client := p.session.client
	for ctx.Err() == nil {
		rec := p.blank()
		err := in.next(rec)
		var bad *badInput
		switch {
		case errors.Is(err, io.EOF):
			if cut != nil && cut.open && p.app.flags.verbose {
				p.app.say("%sthe last line has no newline; consume will add one", name)
			}
			return nil
		case errors.As(err, &bad):
			p.refuse(name, bad)
			continue
		case err != nil:
			return inputFailed(name, err)
		}
		if err := p.finish(rec); err != nil {
			p.refuse(name, err)
			continue
		}
		p.sent.Add(1)
		client.Produce(ctx, rec, p.answered)
		if p.flags.rate > 0 {
			if err := p.wait(ctx); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// blank returns a fresh record. Records come from slabs, which live until their last record is acknowledged.
func (p *producing) blank() *kgo.Record {
	if len(p.slab) == 0 {
		p.slab = make([]kgo.Record, recordSlab)
	}
	r := &p.slab[0]
	p.slab = p.slab[1:]
	return r
}

// finish adds what the flags say to a record that was read.
func (p *producing) finish(r *kgo.Record) *badInput {
	f := p.flags
	if f.hasKey {
		r.Key = []byte(f.key)
	}
	if p.headers != nil {
		r.Headers = append(r.Headers, p.headers...)
	}
	if f.partition >= 0 {
		r.Partition = f.partition
	}
	if f.hasNull && r.Value != nil && string(r.Value) == f.null {
		r.Value = nil
	}
	if r.Timestamp.IsZero() {
		r.Timestamp = p.at // zero: now
	}
	if int(r.Partition) >= p.count && r.Topic == "" {
		return p.badRecord("no partition %d, the topic has %s", r.Partition, count(int64(p.count), "partition"))
	}
	if f.jsonl || f.hasKey {
		if n := len(r.Key) + len(r.Value); n > p.limit+len(f.key) {
			return p.badRecord("%d bytes, the largest that the topic takes is %d", n, p.limit)
		}
	}
	return nil
}

// badRecord refuses the record at hand.
func (p *producing) badRecord(format string, args ...any) *badInput {
	return &badInput{at: fmt.Sprintf("record %d", p.sent.Load()+p.bad.Load()+1), why: fmt.Sprintf(format, args...)}
}

func (p *producing) refuse(name string, bad *badInput) {
	switch n := p.bad.Add(1); {
	case n <= badInputsTold:
		fmt.Fprintf(p.app.err, "error: %s%s\n", name, bad)
	case n == badInputsTold+1:
		p.app.say("… more of the same are only counted")
	}
}

// answered is called for each record, by the client.
func (p *producing) answered(r *kgo.Record, err error) {
	if err == nil {
		p.acked.Add(1)
		p.size.Add(int64(len(r.Key) + len(r.Value)))
		return
	}
	p.failedOnce.Do(func() {
		if context.Cause(r.Context) == nil {
			var ke *kerr.Error
			if errors.As(err, &ke) && !ke.Retriable {
				err = p.session.explain(err, "topic "+r.Topic)
			}
			p.failed.Store(&err)
			p.cancel(err)
		}
	})
}

// wait keeps to --rate: record n goes out n/rate after the first.
func (p *producing) wait(ctx context.Context) error {
	due := p.started.Add(time.Duration(float64(p.sent.Load()) / p.flags.rate * float64(time.Second)))
	left := due.Sub(p.app.now())
	if left < time.Millisecond {
		return nil
	}
	if p.pace == nil {
		p.pace = time.NewTimer(left)
	} else {
		p.pace.Reset(left)
	}
	select {
	case <-p.pace.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// report tells on stderr what was done (with -o json on stdout), and returns the error of the run.
func (p *producing) report(err error) error {
	elapsed := p.app.now().Sub(p.started)
	acked, bad, open := p.acked.Load(), p.bad.Load(), p.sent.Load()-p.acked.Load()
	p.app.say("produced %s, %s in %s (%s/s)", count(acked, "record"), size(p.size.Load()), elapsed.Round(time.Millisecond), size(p.speed()))
	if o := p.app.flags.output; o != "text" && o != "wide" {
		body := struct {
			Version int     `json:"version"`
			Topic   string  `json:"topic"`
			Records int64   `json:"records"`
			Bytes   int64   `json:"bytes"`
			Refused int64   `json:"refused"`
			Open    int64   `json:"not_acknowledged"`
			Seconds float64 `json:"seconds"`
		}{1, p.topic, acked, p.size.Load(), bad, open, elapsed.Seconds()}
		if err := p.app.show(result{body: body}); err != nil {
			return err
		}
	}
	if err != nil {
		if errors.Is(err, errInterrupted) {
			return &cliError{msg: fmt.Sprintf("interrupted: %s sent and not acknowledged", count(open, "record")), exit: exitInterrupted}
		}
		e := *p.explain(err)
		if acked > 0 && e.exit == exitFailed {
			e.exit = exitPart
		}
		return &e
	}
	if bad > 0 {
		e := failf("topic %s: %s of the input not sent", p.topic, count(bad, "record"))
		if acked > 0 {
			e.exit = exitPart
		}
		return e
	}
	return nil
}
