package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// moveCrash is a workload over two directories that is interrupted after each call of the file system.
type moveCrash struct {
	t    *testing.T
	d    *twoDirs
	rng  *rand.Rand
	at   *rig // the directory of the replica as clients know it
	l    *Log
	sent []ackedBatch // acknowledged
	next record.Sequence
	// start is what DeleteRecords was answered, asked what it may have done; cut what a truncation may have taken, −1 for none.
	start, asked, cut record.Offset
	step              string
	states            int
}

// seeded is a generator by KEEPLOG_SEED, else by another seed each time.
func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("KEEPLOG_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("KEEPLOG_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// append adds a batch and waits for its acknowledgement.
func (c *moveCrash) append() {
	c.t.Helper()
	b := c.at.batch(sent{id: crashProducer, seq: c.next, size: 60 + c.rng.IntN(200)})
	a, err := c.l.Append(Append{Batch: b, Epoch: max(c.l.LatestEpoch(), 0), NowMs: c.at.now.UnixMilli()})
	must(c.t, err)
	must(c.t, c.at.step.Run())
	c.sent = append(c.sent, ackedBatch{a.Base, a.Last, c.next, string(b)})
	c.next++
}

// check starts with what a crash has left.
func (c *moveCrash) check(fs *vfs.CrashFS, where string) {
	c.t.Helper()
	c.states++
	again := newTwoDirs(c.t, vfs.NewMem(), c.at.config)
	fail := func(err error) {
		c.t.Helper()
		c.t.Fatalf("%s, %s: %v\n%s", c.step, where, err, again.logs())
	}
	if err := again.open(fs); err != nil {
		fail(err)
	}
	home, err := again.home()
	if err != nil {
		fail(err)
	}
	other := again.other(home)
	copies := len(other.dir.futures)
	l, err := home.dir.OpenLog(Identity{"t", 0, testTopic}, home.config)
	if err != nil {
		fail(err)
	}
	c.compare(home, l, fail)
	if found, ok := other.dir.TakeFuture(l.id); ok { // a copy that was under way goes on
		m, err := BeginMove(l, other.dir, found)
		if err != nil {
			fail(err)
		}
		home, l = other, through(c.t, m)
		c.compare(home, l, fail)
	} else if copies > 0 {
		fail(errors.New("a copy of nothing"))
	}
	must(c.t, home.step.Run())
	for _, r := range again.rigs() {
		r.dir.Tick(r.now.Add(time.Hour))
		must(c.t, r.dir.Close())
	}
	if got := again.names(); len(got) != 1 {
		fail(fmt.Errorf("there are %v", got))
	}
	if err := again.open(fs); err != nil {
		fail(err)
	}
	if home, err = again.home(); err != nil {
		fail(err)
	}
	l, err = home.dir.OpenLog(l.id, home.config)
	if err != nil {
		fail(err)
	}
	c.compare(home, l, fail)
}

// compare finds everything that was acknowledged, and the last batches of the producer.
func (c *moveCrash) compare(r *rig, l *Log, fail func(error)) {
	c.t.Helper()
	if m, lost := l.MissingData(); lost {
		fail(fmt.Errorf("data counts as missing: %+v", m))
	}
	if err := l.Audit(); err != nil {
		fail(err)
	}
	start := l.StartOffset()
	if start < c.start || start > max(c.asked, c.start) {
		fail(fmt.Errorf("log start %d, answered was %d, asked %d", start, c.start, c.asked))
	}
	got := map[record.Offset]string{}
	for b := range batchesOf(r.readAll(l, start)) {
		got[b.BaseOffset()] = string(b)
	}
	for _, a := range c.sent {
		if c.cut >= 0 && a.last >= c.cut {
			break
		}
		if a.last >= start && got[a.base] != a.bytes {
			fail(fmt.Errorf("the acknowledged batch at %d is not there; the log has %d to %d in %s", a.base, start, l.WrittenEnd(), l.path))
		}
		if l.WrittenEnd() <= a.last {
			fail(fmt.Errorf("the log ends at %d, acknowledged was %d", l.WrittenEnd(), a.last))
		}
	}
	if c.cut >= 0 {
		return
	}
	for _, a := range c.sent[max(0, len(c.sent)-3):] {
		res, _, err := r.write(l, sent{id: crashProducer, seq: a.seq, size: 10})
		if err != nil || !res.Duplicate || res.Base != a.base {
			fail(fmt.Errorf("batch %d sent again: %+v, %v", a.seq, res, err))
		}
	}
}

// run moves the replica there and back, does something else after each step, and looks at the states that crashes could leave.
func (c *moveCrash) run(fs *vfs.CrashFS, others func(c *moveCrash)) {
	inside := false
	phase := c.rng.Int64N(1000)
	fs.SetHook(func(e vfs.Event) {
		if e.Phase != vfs.After || inside || raceDetector && (e.Index+phase)%13 != 0 {
			return
		}
		inside = true
		defer func() { inside = false }()
		where := fmt.Sprintf("call %d %v %s", e.Index, e.Op, e.Path)
		for i, p := range fs.Policies() {
			if everyState || (e.Index+int64(7*i)+phase)%131 == 0 {
				c.check(fs.Fork(p, uint64(e.Index)), where+", power loss "+p.String())
			}
		}
		if everyState || (e.Index+phase)%29 == 0 {
			c.check(fs.ForkKilled(), where+", kill")
		}
	})
	defer fs.SetHook(nil)
	for range 2 {
		to := c.d.other(c.at)
		c.step = "begin"
		m, err := BeginMove(c.l, to.dir, nil)
		must(c.t, err)
		for range 1000 {
			c.step = "copy"
			_, done, err := m.Step(make([]byte, 700))
			must(c.t, err)
			others(c)
			if !done {
				continue
			}
			c.step = "take over"
			err = m.TakeOver(make([]byte, 700), func(next *Log) { c.at, c.l = to, next })
			if err == nil {
				break
			}
			if !errors.Is(err, ErrNotYet) {
				c.t.Fatal(err)
			}
		}
		if c.at != to {
			c.t.Fatal("the copy does not take over")
		}
		c.step = "after"
		c.append()
		c.d.other(to).dir.Tick(to.now.Add(time.Hour))
		c.append()
	}
}

// Whatever crash interrupts a move, kill or power loss after any call: exactly one directory has the replica then, with everything that was
// acknowledged, and a copy that was under way goes on or is gone.
func TestMoveCrash(t *testing.T) {
	for name, others := range map[string]func(c *moveCrash){
		"produce": func(c *moveCrash) { c.append() },
		"delete records": func(c *moveCrash) {
			if c.l.StartOffset()+3 < c.l.WrittenEnd() {
				c.asked = c.l.StartOffset() + 3
				must(c.t, c.l.AdvanceStart(c.asked))
				c.start = c.asked
				must(c.t, c.l.Retain(c.at.now))
			}
		},
		"truncate": func(c *moveCrash) {
			if end := c.l.WrittenEnd(); end > 4 && c.rng.IntN(2) == 0 {
				c.cut = end - 1 - record.Offset(c.rng.IntN(3))
				must(c.t, c.l.TruncateTo(c.cut))
				c.sent = c.sent[:c.cut]
				c.next, c.cut = c.sent[len(c.sent)-1].seq+1, -1
				must(c.t, c.l.StartEpoch(c.l.LatestEpoch()+1))
			}
			c.append()
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewCrash()
			c := &moveCrash{t: t, d: newTwoDirs(t, fs, crashConfig()), rng: seeded(t), cut: -1}
			c.at, c.l = c.d.r, c.d.r.log(0)
			for range 8 {
				c.append()
			}
			budget := 12 // steps at which something else happens; then the copy may catch up
			c.run(fs, func(c *moveCrash) {
				if budget--; budget > 0 {
					others(c)
				}
			})
			t.Logf("%d states", c.states)
		})
	}
}
