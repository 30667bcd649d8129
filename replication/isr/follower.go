package isr

import (
	"errors"
	"math"
	"time"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// follower is the pure core of following a partition's leader in one leader epoch: what to tell the leader, and what to do
// with its answers. Its shell appends, truncates and flushes, and tells it the outcome.
//
// Invariants, checked by its tests after every step:
//
//	the high watermark never falls but by a truncation in an epoch that was elected uncleanly, and is never above the end
//	stable ≤ end in everything that the leader is told
//	nothing is appended and no watermark taken from an answer to a fetch that claimed another end than was kept
type follower struct {
	epoch record.Epoch
	// uncleanFrom is the newest epoch that is known to have been elected outside of the in-sync set, −1 for none: batches of
	// older epochs may be cut although they were committed.
	uncleanFrom                       record.Epoch
	start, end, stable, highWatermark record.Offset
	leaderStart                       record.Offset // the highest log start that this leader has told, −1 for none
	lastEpoch                         record.Epoch  // of the last batch, also of one that is deleted; −1 for none

	busy    bool  // a truncation or a restart is under way
	offline error // why nothing is fetched any more
	// since is the fetch that first told the leader of the present log; answers to earlier ones are void. notListed: none has.
	since  int64
	listed claim // what the leader knows in the running session
	told   bool  // listed holds
	// endSince is the first fetch of the session that told of the end toldEnd; −1 is none.
	endSince int64
	toldEnd  record.Offset
	// held says that the follower's quota is used up: the leader is asked for no records.
	held bool

	wait    time.Duration // after an error: the leader is not asked before
	backoff time.Duration
}

// claim is what a follower tells of its log.
type claim struct {
	epoch, lastEpoch      record.Epoch
	offset, stable, start record.Offset
	held                  bool
}

const (
	notListed           = int64(math.MaxInt64)
	firstReplicaBackoff = 20 * time.Millisecond
)

// ends are a follower's log as its shell reads it.
type ends struct {
	start, end, stable record.Offset
	lastEpoch          record.Epoch
}

func newFollower(epoch, uncleanFrom record.Epoch, e ends, highWatermark record.Offset) *follower {
	f := &follower{
		epoch: epoch, uncleanFrom: uncleanFrom, highWatermark: highWatermark, leaderStart: -1, since: notListed, toldEnd: -1, wait: never,
	}
	f.take(e)
	return f
}

func (f *follower) take(e ends) {
	f.start, f.end, f.stable, f.lastEpoch = e.start, e.end, e.stable, e.lastEpoch
}

// claim is what the leader should know.
func (f *follower) claim() claim {
	c := claim{epoch: f.epoch, lastEpoch: f.lastEpoch, offset: f.end, stable: f.stable, start: f.start, held: f.held}
	if invariant.Seeded(invariant.WrittenReported) {
		c.stable = f.end
	}
	return c
}

// due says that there is something to tell the leader.
func (f *follower) due(now time.Duration) bool {
	return !f.busy && f.offline == nil && now >= f.wait && (!f.told || f.listed != f.claim())
}

// list notes that fetch number seq tells the leader of this log.
func (f *follower) list(seq int64) claim {
	f.listed, f.told = f.claim(), true
	if f.since == notListed {
		f.since = seq
	}
	if f.toldEnd != f.end {
		f.toldEnd, f.endSince = f.end, seq
	}
	return f.listed
}

// unlist notes that the session has ended: the next fetch of another one tells everything again.
func (f *follower) unlist() { f.told, f.since, f.toldEnd = false, notListed, -1 }

// flushed takes a new stable end in; it reports whether that is news.
func (f *follower) flushed(stable record.Offset) bool {
	stable = min(stable, f.end)
	if f.busy || stable <= f.stable {
		return false
	}
	f.stable = stable
	return true
}

// deed is what a follower's shell has to do.
type deed int8

const (
	nothing   deed = iota
	appendAll      // the answer's records; then appended
	truncate       // to at; then cut
	restart        // drop everything and begin at at; then cut
	halt           // the partition is offline here, for the reason in offline
)

// step is the follower's decision about an answer.
type step struct {
	do deed
	at record.Offset
	// start is the log start to move to, −1 for the present one.
	start record.Offset
	// moved says that the high watermark went up.
	moved bool
}

// answer is what the leader says of the partition in the answer to fetch number seq.
type answer struct {
	seq                     int64
	err                     error
	highWatermark, logStart record.Offset
	divergingEpoch          record.Epoch // −1: none
	divergingEnd            record.Offset
	records                 bool // there are some
}

// answered decides about an answer. endOf is where this replica's own batches of epochs up to the given one end.
func (f *follower) answered(a answer, endOf func(record.Epoch) record.Offset, now time.Duration) step {
	none := step{start: -1}
	if f.busy || f.offline != nil || a.seq < f.since {
		return none
	}
	if errors.Is(a.err, log.ErrOffsetOutOfRange) {
		return f.outOfRange(a, now)
	}
	if a.err != nil {
		f.pause(now)
		return none
	}
	f.backoff = 0
	if a.divergingEpoch >= 0 {
		return f.diverged(a, endOf, now)
	}
	f.leaderStart = max(f.leaderStart, a.logStart)
	s := step{start: f.startDue()}
	if a.records {
		s.do = appendAll
		if invariant.Seeded(invariant.EarlyWatermark) {
			f.highWatermark = max(f.highWatermark, a.highWatermark)
		}
		return s
	}
	s.moved = f.raise(a.highWatermark)
	return s
}

// startDue is where the log start is to be moved to, −1 for nowhere: to the leader's, which says so once, as far as this log is stable.
func (f *follower) startDue() record.Offset {
	if to := min(f.leaderStart, f.stable); !f.busy && f.offline == nil && to > f.start {
		return to
	}
	return -1
}

// raise takes the leader's high watermark as far as this log goes.
func (f *follower) raise(hw record.Offset) bool {
	hw = min(hw, f.end)
	if hw <= f.highWatermark {
		return false
	}
	f.highWatermark = hw
	return true
}

// pause holds the partition back after an error, for longer each time. The leader says nothing of it until it is told again.
func (f *follower) pause(now time.Duration) {
	f.backoff = min(max(2*f.backoff, firstReplicaBackoff), time.Second)
	f.wait = now + f.backoff
	f.told = false
}

// diverged cuts the log to what may be the leader's too.
func (f *follower) diverged(a answer, endOf func(record.Epoch) record.Offset, now time.Duration) step {
	at := min(a.divergingEnd, f.end)
	if own := endOf(a.divergingEpoch); own >= 0 {
		at = min(at, own)
	}
	if invariant.Seeded(invariant.TruncateToWatermark) {
		at = f.highWatermark
	}
	switch {
	case at <= f.start:
		return f.divergedBelow(a, at, now)
	case at <= a.logStart: // what is deleted there may have been another history than what is here
		return f.cutTo(step{do: restart, at: a.logStart, start: -1}, a.logStart)
	}
	return f.cutTo(step{do: truncate, at: at, start: -1}, at)
}

// divergedBelow: the histories differ at or below the log start, perhaps in what is deleted here. Where an unclean election
// explains it the leader has records there which this replica never had, and must have before it is in sync.
func (f *follower) divergedBelow(a answer, at record.Offset, now time.Duration) step {
	switch {
	case f.lastEpoch >= f.uncleanFrom && f.end > f.start:
		return f.cutTo(step{do: truncate, at: f.start, start: -1}, at)
	case f.lastEpoch >= f.uncleanFrom: // nothing is left to cut, and what is deleted was committed
		return f.cutTo(step{}, at-1)
	case a.logStart < 0:
		f.pause(now)
		return step{start: -1}
	}
	f.busy = true
	return step{do: restart, at: a.logStart, start: -1}
}

// outOfRange: the leader's log begins above this one's end, or ends below its beginning. With two fetches in flight it may be
// the end of before that the leader's log start has passed: the fetch that tells of the present one says more.
func (f *follower) outOfRange(a answer, now time.Duration) step {
	switch {
	case f.toldEnd != f.end || a.seq < f.endSince:
		return step{start: -1}
	case a.logStart < 0:
		f.pause(now)
		return step{start: -1}
	}
	s := step{do: restart, at: a.logStart, start: -1}
	if a.logStart > f.end { // what lies below was deleted there, committed or not
		f.busy = true
		return s
	}
	return f.cutTo(s, a.logStart)
}

// cutTo lets a cut pass unless it takes committed records away: only an unclean election explains that.
func (f *follower) cutTo(s step, at record.Offset) step {
	if at < f.highWatermark && f.lastEpoch >= f.uncleanFrom && !invariant.Seeded(invariant.CutBelowWatermark) {
		f.offline = ErrBelowWatermark
		return step{do: halt, at: at, start: -1}
	}
	f.busy = true
	return s
}

// appended takes in what became of an answer's records: base is where they went, e the log after it.
func (f *follower) appended(base record.Offset, e ends, hw record.Offset) (moved, intact bool) {
	if base != f.end { // somebody else has written: nothing is known of what lies between
		f.take(e)
		f.unlist()
		return false, false
	}
	f.take(e)
	return f.raise(hw), true
}

// cut takes in the end of a truncation or a restart.
func (f *follower) cut(e ends) {
	f.take(e)
	f.busy = false
	f.highWatermark = min(f.highWatermark, f.end)
	if !invariant.Seeded(invariant.WatermarkLeft) {
		f.highWatermark = max(f.highWatermark, f.start)
	}
	f.unlist()
}
