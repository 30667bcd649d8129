package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// script is a workload written by hand.
type script struct {
	name string
	run  func(w *world) error
}

// steps runs functions until one fails.
func steps(all ...func() error) error {
	for i, f := range all {
		if err := f(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// actor makes steps for one partition.
type actor struct {
	w *world
	p *part
}

// start opens the directory and makes a partition.
func start(w *world, c log.Config) (actor, error) {
	if w.dir == nil {
		if err := w.open(); err != nil {
			return actor{}, err
		}
	}
	p, err := w.addPart("events", int32(len(w.parts)), c)
	return actor{w, p}, err
}

// send appends n batches of a producer.
func (a actor) send(n int, id record.ProducerID) func() error {
	return func() error {
		for range n {
			if err := a.w.append(a.p, shape{producer: id, records: 2, size: 30}); err != nil {
				return err
			}
		}
		return nil
	}
}

// sendSynced is send with a flush after each batch.
func (a actor) sendSynced(n int, id record.ProducerID) func() error {
	return func() error {
		for range n {
			if err := steps(a.send(1, id), a.w.sync); err != nil {
				return err
			}
		}
		return nil
	}
}

func (a actor) bump(id record.ProducerID) func() error {
	return func() error { return a.w.append(a.p, shape{producer: id, records: 1, size: 10, bump: true}) }
}

func (a actor) roll(id record.ProducerID) func() error {
	return func() error { return a.w.roll(a.p, shape{producer: id, records: 1, size: 25}) }
}

func (a actor) rollByAge() error { return a.w.rollByAge(a.p) }

func (a actor) epoch() error { return a.w.lead(a.p) }

func (a actor) truncate(n int) func() error { return func() error { return a.w.truncate(a.p, n) } }

// advance moves the log start to n records before the stable end.
func (a actor) advance(n record.Offset) func() error {
	return func() error { return a.w.advance(a.p, a.p.l.StableEnd()-n) }
}

func (a actor) tick(d time.Duration) func() error { return func() error { return a.w.tick(d) } }

func (a actor) stop() error {
	if err := a.w.stop(); err != nil {
		return err
	}
	return a.w.open()
}

func (a actor) kill() error {
	a.w.kill()
	return a.w.open()
}

func (a actor) deletePart() error { return a.w.deletePart(a.p, a.p.l) }

// replicate adds what a leader sent.
func (a actor) replicate(epoch record.Epoch) func() error {
	return func() error {
		var all []byte
		var batches []sent
		a.p.epoch = max(a.p.epoch, epoch)
		for range 2 {
			b := a.w.build(a.p, shape{producer: -1, records: 2, size: 40})
			b.stored.SetPartitionLeaderEpoch(epoch)
			if len(batches) > 0 {
				b.stored.SetBaseOffset(batches[0].next())
				b.base, b.last = batches[0].next(), batches[0].next()+b.last-b.base
			}
			batches = append(batches, b)
			all = append(all, b.stored...)
		}
		a.p.m.pending = batches
		r, err := a.p.l.AppendReplica(bytes.Clone(all), epoch)
		if err != nil {
			if r.Last == batches[0].last { // the first one is in
				a.p.m.batches, a.p.m.pending = append(a.p.m.batches, batches[0]), batches[1:]
			}
			if !errors.Is(err, log.ErrOffline) {
				a.p.m.pending = nil
			}
			return err
		}
		a.p.m.batches, a.p.m.pending = append(a.p.m.batches, batches...), nil
		if r.Last != a.p.m.end()-1 {
			return fmt.Errorf("replicated to %d, want %d", r.Last, a.p.m.end()-1)
		}
		return nil
	}
}

// on makes a script of one partition.
func on(flushMessages int64, f func(a actor) []func() error) func(w *world) error {
	return func(w *world) error {
		a, err := start(w, partConfig(flushMessages))
		if err != nil {
			return err
		}
		return steps(f(a)...)
	}
}

var scripts = []script{
	{"a producer's window across rolls and a kill", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(4, 1), a.roll(1), a.sendSynced(2, 1), a.roll(1), a.w.sync, a.kill, a.sendSynced(2, 1), a.kill, a.sendSynced(1, 1)}
	})},
	{"a producer's window and an unflushed tail", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(3, 1), a.send(3, 1), a.kill, a.send(2, 1), a.stop, a.sendSynced(1, 1)}
	})},
	{"two producers, one silent since long", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(3, 2), a.sendSynced(3, 1), a.roll(1), a.tick(time.Minute), a.sendSynced(4, 1), a.kill, a.roll(1), a.w.sync, a.stop, a.sendSynced(1, 2)}
	})},
	{"a producer's epochs across a roll", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(2, 1), a.bump(1), a.w.sync, a.roll(1), a.bump(1), a.w.sync, a.kill, a.send(2, 1), a.w.sync}
	})},
	{"leader epochs without batches", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(1, -1), a.epoch, a.epoch, a.kill, a.epoch, a.sendSynced(1, 1), a.epoch, a.stop, a.sendSynced(1, 1)}
	})},
	{"a truncation into an older leader epoch", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(2, 1), a.epoch, a.sendSynced(2, 1), a.epoch, a.sendSynced(1, 1), a.truncate(2), a.epoch, a.sendSynced(2, 2), a.kill, a.truncate(3), a.sendSynced(1, 1)}
	})},
	{"DeleteRecords up to the end", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(3, 1), a.advance(0), a.kill, a.sendSynced(1, 1), a.advance(0), a.tick(time.Second), a.sendSynced(1, 1)}
	})},
	{"DeleteRecords, rolls and unlinked segments", on(1, func(a actor) []func() error {
		return []func() error{
			a.sendSynced(3, 1), a.roll(2), a.sendSynced(2, 2), a.roll(1), a.w.sync, a.advance(3), a.tick(time.Second), a.tick(2 * time.Second),
			a.kill, a.sendSynced(1, 1), a.advance(1), a.tick(time.Minute), a.stop,
		}
	})},
	{"DeleteRecords with an unflushed tail behind", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(2, 1), a.send(2, 1), a.advance(1), a.send(1, 1), a.kill, a.advance(1), a.stop}
	})},
	{"DeleteRecords, then a truncation", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(4, 1), a.advance(4), a.truncate(1), a.sendSynced(1, 1), a.truncate(5), a.kill, a.sendSynced(1, 1)}
	})},
	{"a log that begins anew", on(1, func(a actor) []func() error {
		return []func() error{
			a.sendSynced(2, 1), a.roll(1), a.w.sync, func() error { return a.w.renew(a.p, 1000) }, a.sendSynced(2, 1), a.kill,
			func() error { return a.w.renew(a.p, 2000) }, a.stop, a.sendSynced(1, 1),
		}
	})},
	{"several rolls in one flush", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(1, 1), a.roll(1), a.roll(1), a.roll(2), a.send(1, 1), a.w.sync, a.roll(1), a.roll(1), a.stop}
	})},
	{"rolls by age of an empty and of a short log", on(1, func(a actor) []func() error {
		return []func() error{a.rollByAge, a.send(1, 1), a.rollByAge, a.rollByAge, a.w.sync, a.kill, a.rollByAge, a.sendSynced(1, 1), a.rollByAge, a.w.sync, a.stop, a.sendSynced(1, 1)}
	})},
	{"full indexes", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(9, 1), a.send(12, 2), a.w.sync, a.kill, a.sendSynced(4, 1)}
	})},
	{"truncation over segments", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(2, 1), a.roll(1), a.send(1, 1), a.roll(1), a.send(1, 1), a.truncate(3), a.send(1, 2), a.w.sync, a.roll(1), a.truncate(1), a.kill}
	})},
	{"other records after a truncation", on(1, func(a actor) []func() error {
		return []func() error{a.sendSynced(3, 1), a.truncate(2), a.epoch, a.sendSynced(3, 1), a.truncate(1), a.send(1, 2), a.kill, a.w.sync, a.truncate(9), a.send(1, 1), a.w.sync}
	})},
	{"acknowledged after the write", on(4, func(a actor) []func() error {
		return []func() error{a.send(3, 1), a.w.stepped.Run, a.send(4, 1), a.roll(1), a.w.stepped.Run, a.kill, a.send(1, 1), a.tick(time.Minute), a.stop}
	})},
	{"from acknowledged after the write to durable", on(4, func(a actor) []func() error {
		durable := func() error {
			c := a.p.c
			c.Flush.Messages = 1
			a.p.l.SetConfig(c)
			if err := a.w.sync(); err != nil {
				return err
			}
			a.p.c = c // from the flush on
			return nil
		}
		return []func() error{a.send(1, 1), durable, a.sendSynced(1, 1), a.kill, a.sendSynced(1, 1)}
	})},
	{"meta.properties", on(1, func(a actor) []func() error {
		set := func(node int32, cluster string) func() error {
			return func() error {
				return a.w.setMeta(log.Meta{ClusterID: cluster, NodeID: node, DirectoryID: "AAAAAAAAAAAAAAAAAAAAAA"})
			}
		}
		return []func() error{set(1, ""), a.sendSynced(1, 1), set(1, "cluster"), a.kill, set(2, "cluster"), a.stop}
	})},
	{"several partitions", severalPartitions},
	{"a partition is deleted and made again", recreated},
	{"a spare file", spare},
	{"retention by size", bySize},
	{"a partition that was never flushed", on(1, func(a actor) []func() error {
		return []func() error{a.send(1, 1), a.kill, a.stop, a.kill, a.kill}
	})},
	{"an empty partition", on(1, func(a actor) []func() error {
		return []func() error{a.stop, a.kill, a.tick(2 * time.Minute), a.rollByAge, a.w.sync, a.kill, a.stop, a.sendSynced(1, 1)}
	})},
	{"a follower", on(1, func(a actor) []func() error {
		return []func() error{a.replicate(3), a.w.sync, a.replicate(4), a.kill, a.replicate(6), a.w.sync, a.truncate(1), a.replicate(9), a.w.sync, a.stop}
	})},
	{"large batches", on(1, func(a actor) []func() error {
		large := func() error { return a.w.append(a.p, shape{producer: 1, records: 3, size: 700}) }
		return []func() error{large, a.w.sync, large, large, a.w.sync, a.roll(1), large, a.w.sync, a.kill, large}
	})},
	{"marks and checkpoints all along", on(1, func(a actor) []func() error {
		return []func() error{a.tick(2 * time.Minute), a.sendSynced(1, 1), a.tick(2 * time.Minute), a.send(1, 1), a.tick(2 * time.Minute), a.kill, a.tick(2 * time.Minute), a.sendSynced(1, 1), a.truncate(1), a.tick(2 * time.Minute), a.stop}
	})},
}

func severalPartitions(w *world) error {
	var all []actor
	for range 3 {
		a, err := start(w, partConfig(1))
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	a, b, c := all[0], all[1], all[2]
	return steps(
		a.send(1, 1), b.send(2, 1), c.send(1, 2), w.sync, b.roll(1), a.send(1, 1), w.sync, c.advance(0), a.tick(2*time.Minute), w.tickLittle,
		b.deletePart, a.sendSynced(1, 1), a.kill, c.truncate(1), a.roll(2), c.sendSynced(1, 1), a.tick(3*time.Second), a.stop, c.sendSynced(1, 1),
	)
}

func (w *world) tickLittle() error { return w.tick(time.Second) }

func recreated(w *world) error {
	a, err := start(w, partConfig(1))
	if err != nil {
		return err
	}
	if err := steps(a.sendSynced(2, 1), a.roll(1), w.sync, a.advance(2), a.deletePart); err != nil {
		return err
	}
	for range 2 {
		p, err := w.addPart(a.p.id.Topic, a.p.id.Partition, partConfig(1))
		if err != nil {
			return err
		}
		again := actor{w, p}
		if err := steps(again.send(1, 1), w.sync, w.tickLittle, again.kill, again.sendSynced(1, 1), again.tick(3*time.Second), again.deletePart); err != nil {
			return err
		}
	}
	return steps(a.stop, w.tickLittle)
}

func spare(w *world) error {
	c := partConfig(1)
	c.Segment.IndexBytes = 480
	a, err := start(w, c)
	if err != nil {
		return err
	}
	large := func() error { return w.append(a.p, shape{producer: 1, records: 1, size: 280 << 10}) }
	return steps(large, w.sync, large, large, w.sync, large, w.sync, a.kill, a.send(1, 1), w.sync)
}

func bySize(w *world) error {
	c := partConfig(1)
	c.Retention.Bytes = 600
	a, err := start(w, c)
	if err != nil {
		return err
	}
	retain := func() error {
		a.p.m.startMax = a.p.m.end()
		err := w.tick(6 * time.Minute)
		a.p.m.startMin = a.p.l.StartOffset()
		return err
	}
	return steps(
		a.sendSynced(3, 1), a.roll(1), w.sync, retain, a.sendSynced(3, 2), a.roll(2), w.sync, retain, retain, a.kill, a.sendSynced(2, 2), a.roll(2),
		retain, retain, a.stop, retain, a.sendSynced(1, 1),
	)
}

// TestCrashWritten takes the power away at every call of workloads written by hand.
func TestCrashWritten(t *testing.T) {
	seed := seedOf(t)
	x := newExplorer(seed, newBudget(2500*time.Millisecond))
	sum := explore(t, x, 0, writtenJobs(seed))
	for _, f := range sum.failures {
		t.Error(f)
	}
	t.Logf("%s; there are %d written", sum, len(scripts))
}

// writtenJobs are the written workloads, from one on that the seed chooses; in a long run again and again, with more
// policies each time.
func writtenJobs(seed uint64) func(i int) workload {
	return func(i int) workload {
		round, i := i/len(scripts), int((uint64(i)+seed)%uint64(len(scripts)))
		if round > 0 && !long() {
			return nil
		}
		return func(x *explorer, _ testing.TB) {
			s, w := scripts[i], newWorld(seed)
			x.wide = min(10*(round+1), 60)
			x.run(w, fmt.Sprintf("%s, round %d", s.name, round), func() error { return s.run(w) })
		}
	}
}
