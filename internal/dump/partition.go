package dump

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/keeplog/keeplog/record"
)

func decimal[T ~int64 | ~int](n T) string { return strconv.FormatInt(int64(n), 10) }

// partition is a partition's directory while it is read.
type partition struct {
	d      *Dump
	dir    string
	topic  string
	number int32
	state  string // delete, stray, future
	data   *dataDir
	files  []name
	paths  []string
	bases  []record.Offset // of the segments in use, ascending
	stable stable
	slot   *markSlot
	epochs []epochStart
	// gap is the newest offset before which offsets are missing; 0 for none.
	gap       record.Offset
	producers map[record.ProducerID]follow
	// epochTold says that a disagreement with the epoch checkpoint was reported; one is enough.
	epochTold bool
}

type epochStart struct {
	epoch record.Epoch
	start record.Offset
}

// partition reads what is needed to judge the files of dir.
func (d *Dump) partition(dir string) (*partition, error) {
	p := &partition{d: d, dir: dir, producers: map[record.ProducerID]follow{}}
	p.topic, p.number, p.state, _ = partitionName(dir)
	list, err := d.o.FS.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.IsDir() {
			continue
		}
		n := parseName(e.Name())
		p.files, p.paths = append(p.files, n), append(p.paths, filepath.Join(dir, e.Name()))
		if n.typ == TypeSegment && n.state == "" {
			p.bases = append(p.bases, n.base)
		}
	}
	slices.Sort(p.bases)
	p.data = d.dataDirOf(filepath.Dir(dir))
	id, _ := d.topicID(filepath.Join(dir, "partition.metadata"))
	if p.data != nil {
		p.stable, p.slot = p.data.stable(p.topic, p.number, id)
	}
	p.epochs, _ = d.readEpochs(filepath.Join(dir, "leader-epoch-checkpoint"))
	return p, nil
}

// isLast says whether the segment with this base is the one that is written to.
func (p *partition) isLast(base record.Offset) bool {
	return len(p.bases) == 0 || base >= p.bases[len(p.bases)-1]
}

// nextBase is where the segment after base begins.
func (p *partition) nextBase(base record.Offset) (record.Offset, bool) {
	for _, b := range p.bases {
		if b > base {
			return b, true
		}
	}
	return 0, false
}

// order sorts the files: by base offset; producer states come before the log that begins at their offset, its indexes after it; files without
// an offset come last.
func (p *partition) order() []int {
	rank := map[string]int{TypeSnapshot: 0, TypeWindow: 1, TypeSegment: 2, TypeIndex: 3, TypeTimeIndex: 4, TypeTxnIndex: 5}
	order := make([]int, len(p.files))
	for i := range order {
		order[i] = i
	}
	key := func(i int) (record.Offset, string, int) {
		n := p.files[i]
		base := n.base
		if base < 0 {
			base = everything
		}
		r, ok := rank[n.typ]
		if !ok {
			r = len(rank)
		}
		return base, n.state, r
	}
	slices.SortStableFunc(order, func(a, b int) int {
		baseA, stateA, rankA := key(a)
		baseB, stateB, rankB := key(b)
		switch {
		case baseA != baseB:
			return compare(baseA, baseB)
		case stateA != stateB:
			return compare(stateA, stateB)
		}
		return compare(rankA, rankB)
	})
	return order
}

func compare[T int | string | record.Offset](a, b T) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

// all dumps every file of the directory.
func (p *partition) all() {
	order := p.order()
	for at := 0; at < len(order) && !p.d.stopped(); at++ {
		i := order[at]
		if p.files[i].typ != TypeSegment {
			p.other(i)
			continue
		}
		siblings := at + 1
		for siblings < len(order) && p.isSibling(i, order[siblings]) {
			siblings++
		}
		p.withIndexes(i, order[at+1:siblings])
		at = siblings - 1
	}
	if p.state == "" && len(p.bases) > 0 && p.slot == nil && p.data != nil && p.data.own && p.data.clean {
		p.d.put(&Problem{
			Severity: Damage, File: p.dir, Position: -1, End: -1, First: -1, Last: -1,
			Text: "stopped cleanly, yet keeplog-marks has no slot for it",
		})
		p.d.total.Damage++
	}
	if m := p.slot; p.state == "" && m != nil && m.position > 0 && (len(p.bases) == 0 || p.bases[len(p.bases)-1] < m.segment) {
		p.d.put(&Problem{
			Severity: Damage, File: p.dir, Position: -1, End: -1, First: -1, Last: m.offset - 1,
			Text: "keeplog-marks promises records up to offset " + decimal(int64(m.offset)-1) + " in the segment that begins at " +
				decimal(int64(m.segment)) + ", and that file is missing",
		})
		p.d.total.Damage++
	}
	if p.state == "" && len(p.bases) == 0 && p.slot == nil && p.data != nil {
		p.d.put(&Problem{Severity: Note, File: p.dir, Position: -1, End: -1, First: -1, Last: -1, Text: "has no segment"})
		p.d.total.Notes++
	}
}

func (p *partition) isSibling(log, i int) bool {
	a, b := p.files[log], p.files[i]
	return a.base == b.base && a.state == b.state && (b.typ == TypeIndex || b.typ == TypeTimeIndex || b.typ == TypeTxnIndex)
}

// withIndexes reads a segment together with its indexes and then tells about each of them.
func (p *partition) withIndexes(log int, indexes []int) {
	f := p.open(log)
	if f == nil {
		for _, i := range indexes {
			p.other(i)
		}
		return
	}
	checks, files := p.checks(f, indexes)
	if p.outside(f.name) {
		f.shown = false
	}
	p.asOf(f.name).segment(f, checks)
	f.finish()
	for _, x := range files {
		x.begin()
		if x.File == nil {
			continue
		}
		x.list()
		switch x.name.typ {
		case TypeIndex:
			checks.offsets.tell()
		case TypeTimeIndex:
			checks.times.tell()
		case TypeTxnIndex:
			checks.aborted.tell()
		}
		x.finish()
	}
}

// asOf is the partition that a segment belongs to: one on its way out says nothing about the log.
func (p *partition) asOf(n name) *partition {
	if n.state == "" {
		return p
	}
	alone := *p
	alone.producers = map[record.ProducerID]follow{}
	return &alone
}

// outside says that nothing of the segment lies between From and To, as far as the names tell.
func (p *partition) outside(n name) bool {
	o := &p.d.o
	if o.To.Set && !o.To.Time && int64(n.base) > o.To.Value {
		return true
	}
	next, ok := p.nextBase(n.base)
	return ok && o.From.Set && !o.From.Time && int64(next) <= o.From.Value
}

// checks opens the indexes of a segment.
func (p *partition) checks(f *file, indexes []int) (segmentChecks, []*file) {
	var checks segmentChecks
	var files []*file
	last := p.isLast(f.name.base)
	entriesOf := func(x *file, size, trusted int64) entries {
		e := newEntries(x, size)
		e.stable, e.last, e.grows = p.stable, last, p.topic == "__cluster_metadata"
		if p.slot != nil && last {
			e.trusted = trusted
			if p.slot.segment != f.name.base {
				e.trusted = 0
			}
			if p.stable.offset == everything {
				e.trusted = -1
			}
		}
		return e
	}
	var offsets, times int64
	if p.slot != nil {
		offsets, times = p.slot.offsetEntries, p.slot.timeEntries
	}
	for _, i := range indexes {
		x := p.quietly(i)
		files = append(files, x)
		if x.File == nil {
			continue
		}
		switch x.name.typ {
		case TypeIndex:
			checks.offsets = &offsetCheck{entries: entriesOf(x, offsetEntrySize, offsets), prevPos: -1, prevOffset: -1}
		case TypeTimeIndex:
			checks.times = &timeCheck{entries: entriesOf(x, timeEntrySize, times), prevTime: -1, prevOffset: -1}
		case TypeTxnIndex:
			checks.aborted = &abortCheck{entries: entriesOf(x, abortEntrySize, -1), prevLast: -1, segment: f}
		}
	}
	if checks.aborted == nil {
		checks.aborted = &abortCheck{prevLast: -1, segment: f, indexed: checks.offsets != nil}
	}
	return checks, files
}

func (p *partition) open(i int) *file {
	f := p.d.open(p.paths[i], p.files[i])
	p.spare(f)
	return f
}

// spare makes damage a note in a directory on its way out.
func (p *partition) spare(f *file) {
	if f != nil && p.state == "delete" {
		f.spared = "the directory is being deleted"
	}
}

// other dumps a file that is no segment, or an index whose segment is not read.
func (p *partition) other(i int) {
	n := p.files[i]
	if n.typ == TypeIndex || n.typ == TypeTimeIndex || n.typ == TypeTxnIndex {
		p.loneIndex(i)
		return
	}
	f := p.open(i)
	if f == nil {
		return
	}
	p.d.content(f, p)
	f.finish()
}

// epochAgrees compares a batch with leader-epoch-checkpoint.
func (p *partition) epochAgrees(s *pass, pos int64, b record.Batch) {
	if len(p.epochs) == 0 || p.epochTold {
		return
	}
	e := b.PartitionLeaderEpoch()
	known := record.NoEpoch
	for _, x := range p.epochs {
		if x.start > b.BaseOffset() {
			break
		}
		known = x.epoch
	}
	if known == e || e < 0 || b.BaseOffset() < p.epochs[0].start {
		return
	}
	if e > p.epochs[len(p.epochs)-1].epoch && p.stable.known && !p.stable.promised(b.BaseOffset()) {
		return // the checkpoint is written when the epoch's first batch is made durable
	}
	p.epochTold = true
	s.f.damage(pos, pos+int64(b.Size()), "batch at pos %d (offset %d) has leader epoch %d, leader-epoch-checkpoint says %d", pos, b.BaseOffset(), e, known)
}

// quietly opens an index whose part of the output begins later.
func (p *partition) quietly(i int) *file {
	f := &file{d: p.d, path: p.paths[i], name: p.files[i], shown: !p.d.o.Summary && !p.outside(p.files[i])}
	f.end = FileEnd{Path: f.path, Type: f.name.typ, First: -1, Last: -1, MinTime: -1, MaxTime: -1}
	if f.name.state != "" {
		f.spared = "the name ends in ." + f.name.state
	}
	p.spare(f)
	handle, err := p.d.o.FS.OpenFile(f.path, 0, 0)
	if err == nil {
		f.File = handle
		f.size, err = handle.Size()
		f.end.Size = f.size
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.damage(-1, -1, "cannot be read: %v", err)
	}
	return f
}

// begin opens the part of the output about a file that was opened quietly.
func (f *file) begin() {
	if f.File == nil {
		return
	}
	f.d.total.Files++
	f.d.put(&FileStart{Path: f.path, Type: f.name.typ, Size: f.size, State: f.name.state})
}

// loneIndex dumps an index by itself: the headers of its segment are read to compare it.
func (p *partition) loneIndex(i int) {
	x := p.quietly(i)
	if x.File == nil {
		return
	}
	defer x.finish()
	x.begin()
	x.list()
	log := -1
	for j, n := range p.files {
		if n.typ == TypeSegment && n.base == x.name.base && n.state == x.name.state {
			log = j
		}
	}
	if log < 0 {
		x.note(-1, -1, "there is no segment beside it: its entries cannot be compared")
		return
	}
	f := p.quietly(log)
	if f.File == nil {
		return
	}
	defer func() { _ = f.Close() }()
	checks, files := p.checks(f, []int{i})
	silent := newDump(p.d.ctx, Options{FS: p.d.o.FS, Summary: true, Codecs: p.d.codecs}, discard{})
	f.d = silent
	q := *p
	q.d, q.producers = silent, map[record.ProducerID]follow{}
	q.segment(f, checks)
	var e *entries
	switch x.name.typ {
	case TypeIndex:
		e = &checks.offsets.entries
	case TypeTimeIndex:
		e = &checks.times.entries
	default:
		e = &checks.aborted.entries
	}
	e.f = x
	e.tell()
	_ = files[0].Close()
}

type discard struct{}

func (discard) Put(Item) error { return nil }
func (discard) Close() error   { return nil }
