package log

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// crashCase is a workload on a crashable file system; after every call that changes something, the states that a crash
// could leave are opened and compared with what was acknowledged by then.
type crashCase struct {
	r     *rig
	acked crashModel
	step  string
	seen  int
	// sent are batches that are written; they count as acknowledged once the stable end passes them.
	sent []ackedBatch
	log  *Log
}

// everyState opens every state that a policy can leave; otherwise a fifth of them, another one after each call.
var everyState = os.Getenv("KEEPLOG_CRASH") == "all"

// crashModel is what a client knows.
type crashModel struct {
	batches []ackedBatch
	start   record.Offset // of a DeleteRecords that was answered
	asked   record.Offset // of one that was asked
	// cut, where a truncation was asked: batches from there on may be gone; −1 for none.
	cut record.Offset
}

type ackedBatch struct {
	base, last record.Offset
	seq        record.Sequence
	bytes      string
}

const crashProducer = 42

func runCrashCase(t *testing.T, c Config, work func(*crashCase)) int {
	cc := &crashCase{acked: crashModel{cut: -1}}
	fs := vfs.NewCrash()
	cc.r = newRig(t, fs)
	cc.r.config = c
	cc.r.settings.MarkBytes = 4 << 10
	inside := false
	fs.SetHook(func(e vfs.Event) {
		if e.Phase != vfs.After || inside {
			return
		}
		inside = true
		defer func() { inside = false }()
		cc.settle()
		if raceDetector && e.Index%15 != 0 {
			return
		}
		where := fmt.Sprintf("%s, call %d %v %s", cc.step, e.Index, e.Op, e.Path)
		for i, p := range fs.Policies() {
			if !everyState && i > 1 && (e.Index+int64(i))%5 != 0 {
				continue
			}
			cc.check(t, fs.Fork(p, uint64(e.Index)), where+", power loss "+p.String())
		}
		// the process is killed, starts again, and then the power goes
		cc.check(t, fs.ForkKilled(), where+", kill")
		cc.twice(t, fs.ForkKilled(), where+", kill, start, power loss")
	})
	work(cc)
	fs.SetHook(nil)
	return cc.seen
}

// settle takes what was sent and is stable for acknowledged.
func (cc *crashCase) settle() {
	for len(cc.sent) > 0 && cc.log.StableEnd() > cc.sent[0].last {
		cc.acked.batches = append(cc.acked.batches, cc.sent[0])
		cc.sent = cc.sent[1:]
	}
}

// twice opens what a kill left, notes what that start shows, and takes the power away: nothing shown may be gone.
func (cc *crashCase) twice(t *testing.T, fs *vfs.CrashFS, where string) {
	t.Helper()
	r := cc.rig(t, fs)
	l := cc.open(t, r, where)
	shown := r.readAll(l, l.StartOffset())
	end := l.WrittenEnd()
	again := cc.rig(t, fs.Fork(vfs.Policy{Kind: vfs.KeepNone}, 1))
	m := cc.open(t, again, where)
	if m.WrittenEnd() < end || !bytes.HasPrefix(again.readAll(m, m.StartOffset()), shown) {
		t.Fatalf("%s: the start showed %d bytes up to %d, then they are gone: the end is %d\n%s", where, len(shown), end, m.WrittenEnd(), again.logs.String())
	}
	cc.compare(t, again, m, where)
}

func (cc *crashCase) rig(t *testing.T, fs *vfs.CrashFS) *rig {
	return &rig{t: t, fs: fs, codecs: cc.r.codecs, settings: cc.r.settings, config: cc.r.config, now: cc.r.now, model: map[string]*model{}}
}

// check opens what a crash left.
func (cc *crashCase) check(t *testing.T, fs *vfs.CrashFS, where string) {
	t.Helper()
	r := cc.rig(t, fs)
	cc.compare(t, r, cc.open(t, r, where), where)
}

func (cc *crashCase) open(t *testing.T, r *rig, where string) *Log {
	t.Helper()
	cc.seen++
	if err := r.tryOpen(); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	l, err := r.dir.OpenLog(Identity{"t", 0, testTopic}, r.config)
	if err != nil {
		t.Fatalf("%s: %v\n%s", where, err, r.logs.String())
	}
	if m, lost := l.MissingData(); lost {
		t.Fatalf("%s: data counts as missing: %+v\n%s", where, m, r.logs.String())
	}
	return l
}

func (cc *crashCase) compare(t *testing.T, r *rig, l *Log, where string) {
	t.Helper()
	m := &cc.acked
	start := l.StartOffset()
	if start < m.start || start > max(m.asked, m.start) {
		t.Fatalf("%s: log start %d, answered was %d, asked %d\n%s", where, start, m.start, m.asked, r.logs.String())
	}
	if err := l.Audit(); err != nil {
		t.Fatalf("%s: audit: %v\n%s", where, err, r.logs.String())
	}
	got := map[record.Offset]string{}
	next := record.Offset(-1)
	for b := range batchesOf(r.readAll(l, start)) {
		got[b.BaseOffset()] = string(b)
		if next >= 0 && b.BaseOffset() != next {
			t.Fatalf("%s: offset %d follows %d\n%s", where, b.BaseOffset(), next-1, r.logs.String())
		}
		next = b.NextOffset()
	}
	for _, a := range m.batches {
		if m.cut >= 0 && a.last >= m.cut {
			continue
		}
		if a.last >= start && got[a.base] != a.bytes {
			t.Fatalf("%s: the acknowledged batch at %d is not there\n%s", where, a.base, r.logs.String())
		}
		if l.WrittenEnd() <= a.last {
			t.Fatalf("%s: the log ends at %d, acknowledged was %d\n%s", where, l.WrittenEnd(), a.last, r.logs.String())
		}
	}
	// every one of the last five batches of the producer is known
	if m.cut >= 0 {
		return
	}
	for _, a := range m.batches[max(0, len(m.batches)-windowSize):] {
		if len(l.w.producers.byID) > 0 && l.w.producers.byID[crashProducer].last().First > a.seq+3 {
			continue // later batches that were not acknowledged pushed it out
		}
		res, _, err := r.write(l, sent{id: crashProducer, seq: a.seq, size: 200})
		if err != nil || !res.Duplicate || res.Base != a.base {
			t.Fatalf("%s: batch %d sent again: %+v, %v\n%s", where, a.seq, res, err, r.logs.String())
		}
	}
	// what comes next gets a new offset and stays
	if p := l.w.producers.byID[crashProducer]; p != nil {
		end := l.WrittenEnd()
		a := r.add(l, sent{id: crashProducer, seq: p.last().Last + 1, size: 200})
		if a.Base < end {
			t.Fatalf("%s: offset %d is given twice", where, a.Base)
		}
	}
}

func batchesOf(b []byte) func(func(record.Batch) bool) {
	return func(yield func(record.Batch) bool) {
		for len(b) > 0 {
			batch, rest, err := record.Next(b)
			if err != nil || !yield(batch) {
				return
			}
			b = rest
		}
	}
}

// append sends a batch of the producer and waits for its acknowledgement.
func (cc *crashCase) append(l *Log) {
	seq := record.Sequence(0)
	if p := l.w.producers.byID[crashProducer]; p != nil {
		seq = p.last().Last + 1
	}
	cc.log = l
	a, b, err := cc.r.write(l, sent{id: crashProducer, seq: seq, size: 200})
	must(cc.r.t, err)
	cc.sent = append(cc.sent, ackedBatch{a.Base, a.Last, seq, string(b)})
	must(cc.r.t, cc.r.step.Run())
	cc.settle()
	if len(cc.sent) > 0 {
		cc.r.t.Fatalf("flushed, and the stable end is %d", l.StableEnd())
	}
}

func (cc *crashCase) reopen() *Log {
	must(cc.r.t, cc.r.dir.Close())
	cc.r.open()
	return cc.r.log(0)
}

func crashConfig() Config {
	c := testConfig()
	c.Segment.Bytes = 2000
	c.Segment.IndexInterval = 500
	return c
}

func TestCrashAnywhere(t *testing.T) {
	total := 0
	for name, work := range map[string]func(cc *crashCase, l *Log){
		"append": func(cc *crashCase, l *Log) {
			for range 10 {
				cc.append(l)
			}
		},
		"clean stop": func(cc *crashCase, l *Log) {
			for range 3 {
				for range 4 {
					cc.append(l)
				}
				l = cc.reopen()
			}
			cc.append(l)
		},
		"delete records": func(cc *crashCase, l *Log) {
			for range 12 {
				cc.append(l)
			}
			for _, o := range []record.Offset{1, 7, 12} {
				cc.acked.asked = o
				must(cc.r.t, l.AdvanceStart(o))
				cc.acked.start = o
			}
			must(cc.r.t, l.Retain(cc.r.now))
			cc.r.dir.Tick(cc.r.now)
			cc.append(l)
		},
		"truncate": func(cc *crashCase, l *Log) {
			for range 12 {
				cc.append(l)
			}
			cc.acked.cut = 5
			must(cc.r.t, l.TruncateTo(5))
			cc.acked.batches, cc.acked.cut = cc.acked.batches[:5], -1
			for range 8 {
				cc.append(l)
			}
		},
		"unflushed rolls": func(cc *crashCase, l *Log) {
			cc.append(l)
			for range 12 {
				p := l.w.producers.byID[crashProducer]
				a, b, err := cc.r.write(l, sent{id: crashProducer, seq: p.last().Last + 1, size: 200})
				must(cc.r.t, err)
				cc.sent = append(cc.sent, ackedBatch{a.Base, a.Last, b.BaseSequence(), string(b)})
			}
			must(cc.r.t, cc.r.step.Run())
			cc.settle()
			cc.append(l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := runCrashCase(t, crashConfig(), func(cc *crashCase) {
				cc.step = name
				work(cc, cc.r.log(0))
			})
			total += n
		})
	}
	t.Logf("%d crash states opened", total)
}
