package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/record"
)

const (
	// memberSession is after how long without a sign of life a member of a classic group is out: the least that brokers allow by default.
	memberSession   = 6 * time.Second
	memberHeartbeat = 1500 * time.Millisecond
	commitEach      = time.Second
	// settleTime is how long a member that stops at the end waits for partitions that others may have to give up first.
	settleTime = 3 * time.Second
	pollWait   = 250 * time.Millisecond
	// commitWait is how long reading stands still for a commit. In a rebalance none is answered: the next one takes its place then.
	commitWait = time.Second
	leaveWait  = 2 * time.Second
	// exitPipe is how a shell tells of a program that ended as nobody read from its pipe.
	exitPipe = 128 + int(syscall.SIGPIPE)
)

// grouped is one run of consume as a member of a group.
//
//	poll (a rebalance waits) ─► print ─► flush stdout ─► commit what was printed, each second, at the end, and before partitions go ─► let rebalances through
//
// What is in stdout is committed, never more: whoever gets a partition next goes on behind it, and after a kill prints the last second again.
type grouped struct {
	app    *app
	flags  *consumeFlags
	out    *printer
	plan   *session // asks for bounds
	client *session // the member
	where  span
	bounds *bounds // as of the start; place adds what was not known then

	// mu guards what the client's own goroutines touch: what is assigned, and what was printed.
	mu    sync.Mutex
	parts map[tp]*owned // what is assigned
	began bool          // it was told what is
	// waited is for how long there was nothing to print: what counts as silence. While stdout is slow, or another thing is asked, nobody is late.
	waited time.Duration
	moved  time.Duration // what waited was when parts last changed
	ids    map[string][16]byte
	stall  stall
}

// owned is a partition that this member has.
//
//	committed ≤ written ≤ next: the group knows, stdout has, the printer has
type owned struct {
	part
	epoch     int32           // of the last record that was printed
	written   kgo.EpochOffset // as next and epoch were when stdout had taken all that was printed
	committed int64           // −1: nothing yet
	quiet     time.Duration   // what waited was when something last came, or somebody said that there was nothing
	looked    time.Duration   // and when its leader was last asked what is there
	told      bool            // that nothing comes
}

// consumeAsMember reads topics with a group.
func (a *app) consumeAsMember(ctx context.Context, flags *consumeFlags, topics []string, where span) error {
	switch {
	case len(flags.partitions) > 0:
		e := usagef("-g and -p cannot both be given: the group says who reads which partitions")
		e.try = "leave -g out to read chosen partitions"
		return e
	case where.to.kind != pointNone:
		return usagef("-g reads on and on: -O %s has an end; --exit stops at the end as of now", flags.offset)
	case flags.protocol != "classic" && flags.protocol != "consumer":
		e := usagef("--protocol %s: it is classic or consumer", flags.protocol)
		e.try = "--protocol classic"
		return e
	}
	out, err := a.newPrinter(flags)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // it is an error of the write instead, so that the member can leave its group
	g := &grouped{app: a, flags: flags, out: out, where: where, parts: map[tp]*owned{}, ids: map[string][16]byte{}}
	if g.plan, err = a.connect(ctx); err != nil {
		return err
	}
	defer g.plan.close()
	if err := g.begin(ctx, topics); err != nil {
		return g.plan.explain(err, "")
	}
	if g.client, err = a.connect(ctx, g.options(topics)...); err != nil {
		return err
	}
	defer g.client.close()
	err = g.run(ctx)
	if flushErr := g.flush(); err == nil {
		err = flushErr
	}
	err = errors.Join(err, g.leave(err))
	a.clearProgress()
	if out.unheard {
		return &cliError{msg: "nobody reads from the pipe", exit: exitPipe, told: true}
	}
	if err == nil && out.skipped > 0 {
		e := failf("--jq failed for %s", count(out.skipped, "record"))
		e.exit = exitPart
		err = e
	}
	return g.client.explain(err, "group "+flags.group)
}

// begin learns where the logs begin and end.
func (g *grouped) begin(ctx context.Context, topics []string) error {
	ctx, cancel := context.WithTimeout(ctx, g.app.flags.timeout)
	defer cancel()
	keys, details, err := g.plan.partitionsOf(ctx, topics, nil)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		g.ids[topic] = details[topic].ID
	}
	g.bounds, err = g.plan.bounds(ctx, keys, boundsOptions{committed: g.flags.readCommitted, wantEnd: true, patience: g.app.flags.timeout / 2})
	if err == nil && g.flags.exit {
		err = g.bounds.all(ctx, g.plan, keys)
	}
	return err
}

func (g *grouped) options(topics []string) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(g.flags.group), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(memberSession), kgo.HeartbeatInterval(memberHeartbeat),
		kgo.RebalanceTimeout(30 * time.Second), kgo.FetchMaxWait(fetchWait), kgo.FetchMaxBytes(fetchBytes), kgo.KeepControlRecords(),
		kgo.AdjustFetchOffsetsFn(g.place), kgo.OnPartitionsAssigned(g.assigned), kgo.OnPartitionsRevoked(g.revoked), kgo.OnPartitionsLost(g.gone),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
	}
	if g.flags.readCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if g.flags.protocol == "consumer" {
		opts = append(opts, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	}
	return opts
}

// unplaced is a partition of which it is not known yet where to begin, so that nothing of it is done or to be committed. mu is held.
func (g *grouped) unplaced(key tp) *owned {
	return &owned{
		part:  part{tp: key, id: g.ids[key.topic], next: -1, stop: math.MaxInt64},
		epoch: -1, written: kgo.EpochOffset{Epoch: -1, Offset: -1}, committed: -1, quiet: g.waited, looked: g.waited,
	}
}

// assigned is told what this member has now, before it is asked where the group is.
func (g *grouped) assigned(_ context.Context, _ *kgo.Client, got map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.began, g.moved, g.stall = true, g.waited, stall{joined: true}
	all := partitionList(got)
	for _, key := range all {
		g.parts[key] = g.unplaced(key)
	}
	if len(all) > 0 {
		g.app.say("group %s: reading %s", g.flags.group, ranges(all))
	} else if len(g.parts) == 0 {
		g.app.say("group %s: no partitions for this member now", g.flags.group)
	}
}

// revoked commits what was printed before the partitions go.
func (g *grouped) revoked(ctx context.Context, client *kgo.Client, gone map[string][]int32) {
	ctx, cancel := context.WithTimeout(ctx, g.app.flags.timeout)
	defer cancel()
	_ = g.commit(ctx, client)
	g.drop(gone, "gave up")
}

// gone is told when the group has moved on without this member: what was not committed will be read again by another.
func (g *grouped) gone(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	g.drop(gone, "lost")
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began {
		g.began, g.moved = false, g.waited // it joins again
	}
}

func (g *grouped) drop(gone map[string][]int32, how string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := partitionList(gone)
	for _, key := range all {
		delete(g.parts, key)
	}
	if len(all) > 0 {
		g.moved = g.waited
		g.app.say("group %s: %s %s", g.flags.group, how, ranges(all))
	}
}

func partitionList(m map[string][]int32) []tp {
	var all []tp
	for topic, parts := range m {
		for _, p := range parts {
			all = append(all, tp{topic, p})
		}
	}
	slices.SortFunc(all, tp.compare)
	return all
}

// run prints until the end, -n, or ctx ends.
func (g *grouped) run(ctx context.Context) error {
	last := time.Now()
	for {
		fetches := g.poll(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := g.print(ctx, fetches)
		if flushErr := g.flush(); flushErr != nil {
			return flushErr
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
		if time.Since(last) >= commitEach {
			if err := g.commitSoon(ctx); err != nil {
				return err
			}
			last = time.Now()
		}
		g.client.client.AllowRebalance()
		if g.done() {
			return nil
		}
		if err := g.stalled(ctx); err != nil {
			return err
		}
	}
}

// poll waits a while for something to print. That a rebalance holds it up longer is nobody's silence.
func (g *grouped) poll(ctx context.Context) kgo.Fetches {
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	begun := time.Now()
	fetches := g.client.client.PollRecords(ctx, 10_000)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waited += min(time.Since(begun), pollWait)
	return fetches
}

// print prints what came. The records are behind each other in each partition, and before the error.
func (g *grouped) print(ctx context.Context, fetches kgo.Fetches) error {
	var failed error
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if failed == nil && len(f.Records) > 0 {
			failed = g.printPartition(tp{f.Topic, f.Partition}, f.Records)
		}
	})
	if failed != nil {
		return failed
	}
	for _, e := range fetches.Errors() {
		if err := g.failed(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// failed is what an error of the client means; nil where it asks, or joins, again by itself.
func (g *grouped) failed(ctx context.Context, e kgo.FetchError) error {
	var ke *kerr.Error
	switch {
	case errors.Is(e.Err, context.DeadlineExceeded), errors.Is(e.Err, context.Canceled):
	case errors.As(e.Err, &ke) && (ke.Retriable || memberMoved(ke)), brokerAway(e.Err):
		if e.Topic == "" {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.stall.why = e.Err
		}
	case errors.As(e.Err, &ke) && e.Topic != "":
		return g.client.answered(tp{e.Topic, e.Partition}.String(), e.Err, "")
	case e.Topic != "": // what came is damaged, or too large
		moved, err := g.look(ctx, []tp{{e.Topic, e.Partition}})
		if err != nil || moved[tp{e.Topic, e.Partition}] {
			return err
		}
		return g.client.explain(e.Err, tp{e.Topic, e.Partition}.String())
	default:
		return g.client.explain(e.Err, "group "+g.flags.group)
	}
	return nil
}

// brokerAway says that a broker could not be asked, as it is down, or is not known now. The client has no name for the latter that it shares.
func brokerAway(err error) bool {
	return isNetwork(err) || kgo.IsRetryableBrokerErr(err) || lastPart(err) == "unknown broker"
}

func (g *grouped) printPartition(key tp, records []*kgo.Record) error {
	g.mu.Lock()
	p := g.parts[key]
	g.mu.Unlock()
	if p == nil {
		return nil // it went meanwhile
	}
	next, epoch := int64(-1), int32(-1)
	printed := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if next >= 0 {
			p.next, p.epoch, p.quiet, p.told = max(p.next, next), epoch, g.waited, false
		}
	}
	defer printed()
	for _, r := range records {
		if r.Offset >= p.stop {
			return nil
		}
		if g.out.limit == 0 {
			return errEnough
		}
		if !r.Attrs.IsControl() {
			if err := g.out.record(&p.part, printable(r)); err != nil && !errors.Is(err, errEnough) {
				return err
			}
		}
		next, epoch = r.Offset+1, r.LeaderEpoch
		if len(g.out.buf) >= printBuffer {
			printed()
			if err := g.flush(); err != nil {
				return err
			}
		}
		if g.out.limit == 0 {
			return errEnough
		}
	}
	return nil
}

// flush hands what was printed to stdout. Only what stdout took may be committed.
func (g *grouped) flush() error {
	if err := g.out.flush(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		p.written = kgo.EpochOffset{Epoch: p.epoch, Offset: p.next}
	}
	return nil
}

// printable is a record of the client as the printer takes it.
func printable(r *kgo.Record) *record.Record {
	headers := make([]record.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = record.Header{Key: h.Key, Value: h.Value}
	}
	return &record.Record{
		Offset: record.Offset(r.Offset), Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value, Headers: record.HeadersOf(headers),
	}
}

// commit commits what is in stdout.
func (g *grouped) commit(ctx context.Context, client *kgo.Client) error {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	g.mu.Lock()
	sent := map[tp]int64{}
	for key, p := range g.parts {
		// A partition from which nothing was printed is committed too where nothing was: so the group keeps its place.
		if p.written.Offset == p.committed {
			continue
		}
		if offsets[key.topic] == nil {
			offsets[key.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[key.topic][key.partition] = p.written
		sent[key] = p.written.Offset
	}
	g.mu.Unlock()
	if len(sent) == 0 {
		return nil
	}
	answers, err := commitOffsets(ctx, client, offsets)
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, at := range sent {
		if p := g.parts[key]; p != nil && err == nil && answers[key] == nil {
			p.committed = at
		}
	}
	if err != nil {
		return err
	}
	for _, err := range answers {
		if err != nil {
			return err
		}
	}
	return nil
}

// commitSoon is commit between two polls. What passes is tried again at the next.
func (g *grouped) commitSoon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(commitWait, g.app.flags.timeout))
	defer cancel()
	err := g.commit(ctx, g.client.client)
	var ke *kerr.Error
	switch {
	case err == nil, brokerAway(err), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil
	case errors.As(err, &ke) && (ke.Retriable || memberMoved(ke)):
		return nil // the client joins again by itself
	}
	return g.client.answered("group "+g.flags.group, err, "")
}

// memberMoved says that an answer is about the member's place in the group, which changes by itself.
func memberMoved(ke *kerr.Error) bool {
	return slices.Contains([]*kerr.Error{kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch}, ke)
}

// done says that everything that this member has was read up to the end as of the start. One that has nothing waits a while for what others
// may have to give up.
func (g *grouped) done() bool {
	if !g.flags.exit {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		if !p.done() {
			return false
		}
	}
	return g.began && (len(g.parts) > 0 || g.waited-g.moved > settleTime)
}

// leave commits what was printed, and takes this member out, so that others get its partitions at once.
func (g *grouped) leave(after error) error {
	limit := g.app.flags.timeout
	if after != nil {
		limit = min(limit, 5*time.Second)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := g.commit(ctx, g.client.client)
	g.client.client.AllowRebalance()
	g.mu.Lock()
	clear(g.parts) // what is revoked by leaving is committed
	g.mu.Unlock()
	leaving, stop := context.WithTimeout(context.Background(), min(limit, leaveWait))
	defer stop()
	_ = g.client.client.LeaveGroupContext(leaving) // else the group finds out by itself
	var ke *kerr.Error
	switch {
	case after != nil: // has a reason of its own
		return nil
	case errors.As(err, &ke) && memberMoved(ke):
		e := failf("group %s: %s (the last records that were printed will be read again)", g.flags.group, ke.Message)
		e.code, e.exit = ke.Message, exitPart
		return e
	case err != nil:
		return g.client.answered("group "+g.flags.group, fmt.Errorf("commit: %w", err), "")
	}
	return nil
}

// commitOffsets sends one commit as the member, and returns the answer of each partition.
func commitOffsets(ctx context.Context, client *kgo.Client, offsets map[string]map[int32]kgo.EpochOffset) (map[tp]error, error) {
	answers := map[tp]error{}
	var failed error
	client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if failed = err; err != nil || resp == nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				answers[tp{t.Topic, p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
			}
		}
	})
	return answers, failed
}
