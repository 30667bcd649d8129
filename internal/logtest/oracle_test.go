package logtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keeplog/keeplog/internal/dump"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// promise is what an opening must find of a partition.
type promise struct {
	least    record.Offset // the end is at least this
	exact    record.Offset // the end is this; −1: not known
	startMin record.Offset
}

// reopened is a directory that the oracle opened.
type reopened struct {
	w       *world // the model; never changed
	fs      vfs.FS
	dir     *log.Dir
	stepped *log.Stepped
	logs    map[*part]*log.Log
	ends    map[*part]record.Offset // published when OpenLog returned
	starts  map[*part]record.Offset
}

// promises are those of the model at this moment.
func (w *world) promises(killed bool) map[*part]promise {
	all := map[*part]promise{}
	for _, p := range w.parts {
		if p.state != deleted {
			all[p] = promise{least: p.m.promised(killed), exact: -1, startMin: p.m.startMin}
		}
	}
	return all
}

// reopen opens a state and compares everything in it with the model.
func (w *world) reopen(fs vfs.FS, promises map[*part]promise) (*reopened, error) {
	r := &reopened{
		w: w, fs: fs, stepped: new(log.Stepped), logs: map[*part]*log.Log{}, ends: map[*part]record.Offset{}, starts: map[*part]record.Offset{},
	}
	return r, r.open(promises)
}

func (r *reopened) open(promises map[*part]promise) error {
	d, err := log.OpenDir(dirOptions(r.fs, r.stepped, r.w.now.Add(time.Minute)))
	if err != nil {
		return fmt.Errorf("opening the directory: %w", err)
	}
	r.dir = d
	if err := r.checkMeta(); err != nil {
		return err
	}
	for _, p := range r.w.parts {
		there, named := found(d, p)
		if p.state == deleted {
			if there {
				return fmt.Errorf("%s was deleted and is back", p)
			}
			continue
		}
		if p.state == deleting && !there {
			continue
		}
		if p.state == live && !named && promises[p].least > p.m.origin {
			return fmt.Errorf("%s has no directory under its topic id, and %d was acknowledged", p, promises[p].least)
		}
		l, err := d.OpenLog(p.id, p.c)
		if err != nil {
			return fmt.Errorf("opening %s: %w", p, err)
		}
		r.logs[p], r.ends[p], r.starts[p] = l, l.StableEnd(), l.StartOffset()
		if err := checkLog(p, l, promises[p]); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if end := l.WrittenEnd(); end > l.StartOffset() && l.LatestEpoch() != l.EpochAt(end-1) {
			return fmt.Errorf("%s: latest epoch %d, the last batch has %d", p, l.LatestEpoch(), l.EpochAt(end-1))
		}
	}
	return nil
}

// found says whether the partition's directory is there with its topic id, and whether it is there by name: with the id, or
// with a partition.metadata that was lost and is written again.
func found(d *log.Dir, p *part) (there, named bool) {
	for _, f := range d.Found() {
		if f.TopicID == p.id.TopicID {
			return true, true
		}
		named = named || f.TopicID == [16]byte{} && f.Topic == p.id.Topic && f.Partition == p.id.Partition
	}
	return false, named
}

func (r *reopened) checkMeta() error {
	got, ok := r.dir.Meta()
	for _, want := range r.w.meta {
		if !ok && want.NodeID < 0 || ok && got.NodeID == want.NodeID && got.ClusterID == want.ClusterID && got.DirectoryID == want.DirectoryID {
			return nil
		}
	}
	return fmt.Errorf("meta.properties has %+v (%v), want %+v or %+v", got, ok, r.w.meta[0], r.w.meta[1])
}

// checkLog compares a log with the model.
func checkLog(p *part, l *log.Log, want promise) error {
	m := &p.m
	start, end := l.StartOffset(), l.WrittenEnd()
	if m.renewed >= 0 && start == m.renewed && end == m.renewed {
		return nil
	}
	if stable := l.StableEnd(); stable != end {
		return fmt.Errorf("stable end %d and written end %d after opening", stable, end)
	}
	if want.exact >= 0 && end != want.exact {
		return fmt.Errorf("end %d, the recovery before published %d", end, want.exact)
	}
	if end < want.least && p.state != deleting { // the mark goes first, and with it what was above the last batch
		return fmt.Errorf("LOST: the end is %d, acknowledged was %d", end, want.least)
	}
	if missing, lost := l.MissingData(); lost {
		return fmt.Errorf("data is said to be missing: %+v", missing)
	}
	batches, ok := m.upTo(end)
	if !ok {
		return fmt.Errorf("the end %d is not the end of a batch (up to %d)", end, m.end())
	}
	fresh := m.floor <= m.origin // nothing was acknowledged: its first file may be lost, and the log begin with the next
	if p.state != deleting && !fresh && (start < want.startMin || start > max(m.startMax, m.origin)) {
		return fmt.Errorf("log start %d, DeleteRecords was confirmed to %d and asked to %d", start, want.startMin, m.startMax)
	}
	if start > end {
		return fmt.Errorf("log start %d above the end %d", start, end)
	}
	if err := checkContent(l, batches); err != nil {
		return err
	}
	if err := checkEpochs(l, batches); err != nil {
		return err
	}
	if p.state == deleting {
		return nil
	}
	return checkProducers(l, p.m.known(batches, start), batches)
}

// checkContent reads the log from its start and compares the bytes.
func checkContent(l *log.Log, batches []sent) error {
	start, end := l.StartOffset(), l.WrittenEnd()
	i := slices.IndexFunc(batches, func(s sent) bool { return s.last >= start })
	for at := start; at < end; {
		sp, err := l.Read(log.ReadRequest{Offset: at, Bound: end, MaxBytes: 1 << 20, AtLeastOne: true})
		if err != nil {
			return fmt.Errorf("reading at %d: %w", at, err)
		}
		if sp == nil {
			return fmt.Errorf("nothing to read at %d, the end is %d", at, end)
		}
		b := make([]byte, sp.Len())
		_, err = sp.ReadAt(b, 0)
		sp.Release()
		if err != nil {
			return fmt.Errorf("reading at %d: %w", at, err)
		}
		for len(b) > 0 {
			if i < 0 || i == len(batches) {
				return fmt.Errorf("%d bytes at %d, behind the last batch", len(b), at)
			}
			want := &batches[i]
			if !bytes.HasPrefix(b, want.stored) {
				return fmt.Errorf("WRONG: not the batch of %d to %d is there (at %d): base %d", want.base, want.last, at, record.Batch(b).BaseOffset())
			}
			b = b[len(want.stored):]
			at, i = want.next(), i+1
		}
	}
	return nil
}

// checkEpochs compares the leader epochs.
func checkEpochs(l *log.Log, batches []sent) error {
	start := l.StartOffset()
	for i := range batches {
		b := &batches[i]
		if b.last < start {
			continue
		}
		e := b.stored.PartitionLeaderEpoch()
		if got := l.EpochAt(max(b.base, start)); got != e {
			return fmt.Errorf("epoch %d at %d, the batch has %d", got, max(b.base, start), e)
		}
		if i > 0 && batches[i-1].stored.PartitionLeaderEpoch() != e && batches[i-1].last >= start {
			before := batches[i-1].stored.PartitionLeaderEpoch()
			if ge, end := l.EndOffsetForEpoch(before); ge != before || end != b.base {
				return fmt.Errorf("epoch %d ends at %d (of %d), want %d", before, end, ge, b.base)
			}
		}
	}
	return nil
}

// checkProducers compares what the log knows of its producers: those of known it must know, those of all it may.
func checkProducers(l *log.Log, known, all []sent) error {
	want, may := producers(known), producers(all)
	got := map[record.ProducerID]log.ProducerState{}
	for _, s := range l.Producers() {
		got[s.ID] = s
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		p, s := want[id], got[id]
		switch {
		case s.Batches == 0:
			return fmt.Errorf("producer %d is forgotten", id)
		case s.Epoch != p.epoch || s.LastSequence != p.next-1:
			return fmt.Errorf("producer %d is at epoch %d, sequence %d, want %d, %d", id, s.Epoch, s.LastSequence, p.epoch, p.next-1)
		case s.Batches < len(p.window):
			return fmt.Errorf("producer %d: %d batches are remembered, want %d", id, s.Batches, len(p.window))
		}
	}
	for id := range got {
		if may[id] == nil {
			return fmt.Errorf("producer %d is known and has no batch in the log", id)
		}
	}
	return nil
}

// after uses the opened logs: batches are sent again, then new ones; they must be durable after a flush.
func (r *reopened) after() error {
	w := *r.w
	w.dir, w.stepped, w.at = r.dir, r.stepped, nil
	w.rng, w.parts = newWorld(3).rng, nil
	for _, p := range r.w.parts {
		l := r.logs[p]
		if l == nil || p.state == deleting {
			continue
		}
		q := *p
		q.l, q.state = l, live
		if p.m.renewed >= 0 && l.StartOffset() == p.m.renewed {
			q.m = newModel()
			q.m.origin = p.m.renewed
		}
		batches, _ := q.m.upTo(l.WrittenEnd())
		q.m.batches, q.m.pending = slices.Clone(batches), nil
		q.m.cut, q.m.renewed = -1, -1
		if end := l.WrittenEnd(); q.m.end() < end {
			q.m.gap = end
		}
		q.m.startMin, q.m.startMax = l.StartOffset(), l.StartOffset()
		if err := resend(&q); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if err := w.lead(&q); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		w.parts = append(w.parts, &q)
	}
	for _, p := range w.parts {
		for i := range 2 {
			if err := w.append(p, shape{producer: record.ProducerID(i + 1), records: 1 + i, size: 20}); err != nil {
				return fmt.Errorf("append after recovery: %s: %w", p, err)
			}
		}
	}
	for _, p := range w.parts {
		if err := p.l.Flush(); err != nil {
			return fmt.Errorf("flush after recovery: %w", err)
		}
	}
	promises := map[*part]promise{}
	for _, p := range w.parts {
		if err := checkLog(p, p.l, promise{least: p.m.end(), exact: p.m.end(), startMin: p.m.startMin}); err != nil {
			return fmt.Errorf("after an append: %s: %w", p, err)
		}
		promises[p] = promise{least: p.m.end(), exact: p.m.end(), startMin: p.m.startMin}
	}
	disk, ok := r.fs.(*vfs.CrashFS)
	if !ok {
		return nil
	}
	again, err := w.reopen(disk.Fork(vfs.Policy{Kind: vfs.KeepNone}, 0), promises)
	if err != nil {
		return fmt.Errorf("power loss after an append: %w", err)
	}
	if err := again.dir.Close(); err != nil {
		return fmt.Errorf("clean stop: %w", err)
	}
	if _, err := w.reopen(again.fs, promises); err != nil {
		return fmt.Errorf("after a clean stop: %w", err)
	}
	return nil
}

// resend gives the last batches of each producer once more.
func resend(p *part) error {
	end := p.l.WrittenEnd()
	all := producers(p.m.known(p.m.batches, p.l.StartOffset()))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		for _, b := range all[id].window {
			again := record.Batch(bytes.Clone(b.stored))
			again.SetBaseOffset(0)
			r, err := p.l.Append(log.Append{Batch: again, Checked: record.Result{MaxTimestamp: again.MaxTimestamp()}, Epoch: p.l.LatestEpoch(), NowMs: b.firstMs})
			if err != nil {
				return fmt.Errorf("batch %d to %d sent again: %w", b.base, b.last, err)
			}
			if !r.Duplicate || r.Base != b.base || r.Last != b.last {
				return fmt.Errorf("DUPLICATE: batch %d to %d sent again answered %+v", b.base, b.last, r)
			}
		}
	}
	if got := p.l.WrittenEnd(); got != end {
		return fmt.Errorf("duplicates moved the end from %d to %d", end, got)
	}
	return nil
}

// findings collects what the offline reader says.
type findings struct{ damage []string }

func (f *findings) Close() error { return nil }

func (f *findings) Put(i dump.Item) error {
	if p, ok := i.(*dump.Problem); ok && p.Severity == dump.Damage {
		f.damage = append(f.damage, fmt.Sprintf("%s at %d: %s", p.File, p.Position, p.Text))
	}
	return nil
}

// audit reads all files as the check command does.
func audit(fs vfs.FS) error {
	var f findings
	if _, err := dump.Run(context.Background(), dump.Options{FS: fs, Summary: true, Verify: true, Codecs: sharedCodecs}, &f, root); err != nil {
		return err
	}
	if len(f.damage) > 0 {
		return fmt.Errorf("check finds damage: %s\n%s", f.damage[0], tree(fs, root))
	}
	return nil
}

// tree lists the files of a state.
func tree(fs vfs.FS, dir string) string {
	var b bytes.Buffer
	entries, err := fs.ReadDir(dir)
	if err != nil {
		return err.Error() + "\n"
	}
	for _, e := range entries {
		name := dir + "/" + e.Name()
		if e.IsDir() {
			fmt.Fprintf(&b, "    %s/\n%s", name, tree(fs, name))
			continue
		}
		if info, err := e.Info(); err == nil {
			fmt.Fprintf(&b, "    %s %d\n", name, info.Size())
		}
	}
	return b.String()
}
