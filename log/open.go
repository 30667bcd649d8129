package log

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/keeplog/keeplog/internal/invariant"
	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
)

// OpenRequest is one log for OpenLogs.
type OpenRequest struct {
	Identity
	Config Config
}

// OpenResult is the answer to one OpenRequest.
type OpenResult struct {
	Identity
	Log *Log
	Err error
}

// OpenLogs opens many logs, RecoveryThreads at a time. done is called as each is ready, from several goroutines, perhaps
// at once. It returns after the last.
func (d *Dir) OpenLogs(reqs []OpenRequest, done func(OpenResult)) {
	next := make(chan OpenRequest)
	var workers sync.WaitGroup
	for range min(int(d.tuned.recoveryThreads.Load()), len(reqs)) {
		workers.Go(func() {
			for r := range next {
				l, err := d.OpenLog(r.Identity, r.Config)
				done(OpenResult{r.Identity, l, err})
			}
		})
	}
	for _, r := range d.largestFirst(reqs) {
		next <- r
	}
	close(next)
	workers.Wait()
}

// largestFirst sorts by the bytes that recovery has to read, as far as the marks tell; after a clean stop the order does
// not matter.
func (d *Dir) largestFirst(reqs []OpenRequest) []OpenRequest {
	if d.clean || len(reqs) < 2 {
		return reqs
	}
	weight := map[Identity]int64{}
	for _, r := range reqs {
		mark, ok := d.marks.get(markKey{r.TopicID, r.Partition})
		entries, err := d.fs.ReadDir(path.Join(d.path, DirName(r.Topic, r.Partition)))
		if err != nil {
			continue
		}
		for _, e := range entries {
			base, ext, named := segment.ParseName(e.Name())
			if !named || ext != segment.LogExt || (ok && base < mark.Segment) {
				continue
			}
			if info, err := e.Info(); err == nil {
				weight[r.Identity] += info.Size()
				if ok && base == mark.Segment {
					weight[r.Identity] -= int64(mark.Position)
				}
			}
		}
	}
	sorted := slices.Clone(reqs)
	slices.SortStableFunc(sorted, func(a, b OpenRequest) int { return cmp.Compare(weight[b.Identity], weight[a.Identity]) })
	return sorted
}

// OpenLog opens or creates a partition's log, and recovers it where the last stop was not clean. An error concerns this
// log only: ErrTopicID, ErrNewerVersion, ErrName, ErrReserve for a new one, and those of the file system.
func (d *Dir) OpenLog(id Identity, c Config) (*Log, error) {
	return d.openLog(openOptions{Identity: id, config: c, name: DirName(id.Topic, id.Partition), bring: (*Log).openOrCreate})
}

// openOptions say how a log is opened.
type openOptions struct {
	Identity
	config Config
	name   string           // of the directory
	bring  func(*Log) error // opens or makes what is in it
	ready  func(*Log)       // called before anybody else sees the log; may be nil
}

func (d *Dir) openLog(o openOptions) (*Log, error) {
	if err := CheckName(o.Topic); err != nil {
		return nil, err
	}
	if err := d.Offline(); err != nil {
		return nil, err
	}
	key := TopicPartition{o.Topic, o.Partition}
	l := &Log{dir: d, id: o.Identity, path: path.Join(d.path, o.name)}
	l.config.Store(&o.config)
	l.watermark.Store(-1)
	l.w.leading.Epoch, l.w.fence = record.NoEpoch, record.NoEpoch
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, ErrClosed
	}
	if _, open := d.logs[key]; open {
		d.mu.Unlock()
		return nil, fmt.Errorf("%w: %s", ErrInUse, l.path)
	}
	d.logs[key] = l // reserves the name; Tick sees it once it is ready
	d.mu.Unlock()
	d.names.aside.RLock()
	err := o.bring(l)
	d.names.aside.RUnlock()
	if err != nil {
		d.mu.Lock()
		delete(d.logs, key)
		d.mu.Unlock()
		return nil, fmt.Errorf("log: opening %s: %w", l.path, err)
	}
	_, _, l.loaded = d.points.of(key)
	if o.ready != nil {
		o.ready(l)
	}
	l.schedule.ready.Store(true)
	if err := d.seen(l.path); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) openOrCreate() error {
	entries, err := l.dir.fs.ReadDir(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		if mark, marked := l.dir.marks.get(markKey{l.id.TopicID, l.id.Partition}); marked && mark.here() {
			if err := l.descend(&mark); err != nil {
				return err
			}
			return l.recreate(mark)
		}
		return l.create(0)
	}
	if err != nil {
		return err
	}
	l.schedule.found = true
	names, err := l.sortNames(entries)
	if err != nil {
		return err
	}
	if err := l.checkIdentity(); err != nil {
		return err
	}
	return l.open(names)
}

// create makes a new log that begins at start. No name and no byte of it is durable before its first flush.
func (l *Log) create(start record.Offset) error {
	if err := l.dir.Writable(); err != nil {
		return err
	}
	if err := l.dir.forget(l.key()); err != nil {
		return l.failed(err)
	}
	if err := l.dropLeft(); err != nil {
		return err
	}
	l.lineage = newLineage()
	if err := l.dir.fs.Mkdir(l.path, 0o755); err != nil {
		return err
	}
	if err := l.writePartitionFile(); err != nil {
		_ = l.dir.fs.RemoveAll(l.path)
		return err
	}
	if err := l.startAt(start); err != nil {
		_ = l.dir.fs.RemoveAll(l.path)
		return err
	}
	l.w.newLog, l.w.newNames = true, true
	l.w.born = l.dir.names.born.Add(1)
	return nil
}

func (l *Log) writePartitionFile() error {
	if l.id.TopicID == ([16]byte{}) {
		return fmt.Errorf("%w: it has none", ErrTopicID)
	}
	name := path.Join(l.path, PartitionFile)
	f, err := l.dir.fs.OpenFile(name, createFlags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(EncodePartition(l.id.TopicID), 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// startAt makes the first segment of an empty log.
func (l *Log) startAt(o record.Offset) error {
	seg, err := segment.Create(l.dir.env, l.path, o, segmentOptions(l.config.Load()))
	if err != nil {
		return err
	}
	l.w.next = o
	l.begin(seg, l.dir.o.Now().UnixMilli())
	l.view.Store(&view{segments: []*segment.Segment{seg}})
	l.ends.set(place{o, 0, seg})
	l.start.Store(int64(o))
	l.mark = Mark{Epoch: record.NoEpoch, Segment: o, Offset: o, LogStart: o, NoProducers: true}
	return nil
}

// checkIdentity compares partition.metadata with the topic id asked for. A file that is missing or unreadable is written
// again: the caller knows the topic.
func (l *Log) checkIdentity() error {
	b, err := readFile(l.dir.fs, path.Join(l.path, PartitionFile))
	var found [16]byte
	if err == nil {
		found, err = DecodePartition(b)
	}
	switch {
	case err == nil && l.id.TopicID == ([16]byte{}):
		l.id.TopicID = found
		return nil
	case err == nil && found != l.id.TopicID:
		return fmt.Errorf("%w: it has %x, asked was %x", ErrTopicID, found, l.id.TopicID)
	case err == nil:
		return nil
	case errors.Is(err, ErrNewerVersion):
		return err
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrBadFile):
		return err
	}
	if l.id.TopicID == ([16]byte{}) {
		return fmt.Errorf("%w: %s does not tell it: %w", ErrTopicID, PartitionFile, err)
	}
	l.dir.log.Warn("writing partition.metadata again", "log", l.path, "err", err)
	if err := l.writePartitionFile(); err != nil {
		return err
	}
	l.w.newLog, l.w.newNames = true, true
	l.w.born = l.dir.names.born.Add(1)
	return nil
}

// dirNames is what a partition's directory holds.
type dirNames struct {
	logs   []logFile
	states []stateFile // newest first
}

type logFile struct {
	base record.Offset
	size int64
}

// sortNamesOnly lists the producer state of a log that is open.
func (l *Log) sortNamesOnly(entries []fs.DirEntry) (dirNames, error) {
	var n dirNames
	for _, e := range entries {
		if base, ext, ok := segment.ParseName(e.Name()); ok && (ext == WindowExt || ext == SnapshotExt) {
			n.states = append(n.states, stateFile{base, ext == WindowExt})
		}
	}
	sortStates(n.states)
	return n, nil
}

// sortStates puts the newest first, and a window before a snapshot.
func sortStates(states []stateFile) {
	slices.SortFunc(states, func(a, b stateFile) int {
		if c := cmp.Compare(b.offset, a.offset); c != 0 {
			return c
		}
		if a.window == b.window {
			return 0
		} else if a.window {
			return -1
		}
		return 1
	})
}

// sortNames takes leftovers away and sorts the rest. Names of another form are left alone.
func (l *Log) sortNames(entries []fs.DirEntry) (dirNames, error) {
	var n dirNames
	bases := map[record.Offset]bool{}
	var others []string
	swapped := false
	for _, e := range entries {
		name := e.Name()
		base, ext, ok := segment.ParseName(name)
		switch {
		case name == SpareFile || strings.HasSuffix(name, tmpExt) || (ok && hasAnySuffix(ext, segment.DeletedExt, ".cleaned")):
			if err := removeFile(l.dir.fs, path.Join(l.path, name)); err != nil {
				return n, err
			}
		case ok && strings.HasSuffix(ext, ".swap"): // Kafka's cleaner was about to put it in place
			to := strings.TrimSuffix(name, ".swap")
			l.dir.log.Info("finishing a replacement", "log", l.path, "file", to)
			if err := l.dir.fs.Rename(path.Join(l.path, name), path.Join(l.path, to)); err != nil {
				return n, err
			}
			swapped = true
		case ok && ext == segment.LogExt:
			info, err := e.Info()
			if err != nil {
				return n, err
			}
			n.logs, bases[base] = append(n.logs, logFile{base, info.Size()}), true
		case ok && ext == WindowExt, ok && ext == SnapshotExt:
			n.states = append(n.states, stateFile{base, ext == WindowExt})
		case ok && slices.Contains([]string{segment.IndexExt, segment.TimeExt, segment.TxnExt}, ext):
			others = append(others, name)
		}
	}
	if swapped {
		again, err := l.dir.fs.ReadDir(l.path)
		if err != nil {
			return n, err
		}
		return l.sortNames(again)
	}
	for _, name := range others {
		if base, _, _ := segment.ParseName(name); !bases[base] { // an index without its log
			if err := removeFile(l.dir.fs, path.Join(l.path, name)); err != nil {
				return n, err
			}
		}
	}
	slices.SortFunc(n.logs, func(a, b logFile) int { return cmp.Compare(a.base, b.base) })
	sortStates(n.states)
	return n, nil
}

func hasAnySuffix(s string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(x string) bool { return strings.HasSuffix(s, x) })
}

// open brings an existing directory up.
func (l *Log) open(n dirNames) error {
	d, key := l.dir, TopicPartition{l.id.Topic, l.id.Partition}
	mark, marked := d.marks.get(markKey{l.id.TopicID, l.id.Partition})
	if err := l.descend(&mark); err != nil {
		return err
	}
	start, foreign := mark.LogStart, !marked && d.marks.partial
	point := record.Offset(0)
	if foreign {
		point, start, _ = d.points.of(key)
	}
	if len(n.logs) == 0 {
		return l.openEmpty(mark, marked, start)
	}
	first := n.logs[0].base
	r := recovery{l: l, names: n, mark: mark, marked: marked, foreign: foreign, point: point}
	if !marked {
		r.mark = Mark{Epoch: record.NoEpoch, Segment: first, Offset: first, Gaps: foreign}
	}
	err := l.raise(&r, start)
	if err == nil && foreign { // the checkpoints do not count again
		err = l.markNow()
	}
	if err != nil {
		r.abandon()
	}
	return err
}

// abandon closes the segments of a log that did not open.
func (r *recovery) abandon() {
	all := r.segments
	if v := r.l.view.Load(); v != nil {
		all = append(all, v.segments...)
	}
	for _, s := range all {
		<-s.Retire()
	}
}

// raise opens the segments and loads what belongs to them.
func (l *Log) raise(r *recovery, start record.Offset) error {
	d, first, marked, mark := l.dir, r.names.logs[0].base, r.marked, r.mark
	clean := d.clean && r.cleanFits()
	if err := r.openSegments(clean); err != nil {
		return err
	}
	if first > start && marked && !mark.Gaps && !r.short {
		d.log.Error("the first segments of a log are missing", "log", l.path, "start", start, "first", first)
	} else {
		start = max(start, first)
	}
	if r.next < start {
		return l.restart(r, max(start, r.mark.Offset))
	}
	l.adopt(r, start)
	if err := l.loadEpochs(r); err != nil {
		return err
	}
	if err := l.dropStates(&r.names, l.w.next); err != nil {
		return err
	}
	if err := l.loadProducers(r); err != nil {
		return err
	}
	if !clean && !r.settled() {
		return l.afterRecovery(r)
	}
	return nil
}

// markNow makes a mark durable for what is in the log.
func (l *Log) markNow() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.flushLocked(flushMarked); err != nil {
		return err
	}
	return l.dir.syncMarks()
}

// dropStates removes the files with producer state that are newer than the log: it would grow over them with other batches.
// They are gone for good when it returns.
func (l *Log) dropStates(n *dirNames, end record.Offset) error {
	kept := make([]stateFile, 0, len(n.states))
	for _, s := range n.states {
		if s.offset <= end {
			kept = append(kept, s)
		} else if err := removeFile(l.dir.fs, s.name(l.path)); err != nil {
			return err
		}
	}
	removed := len(kept) < len(n.states)
	n.states = kept
	if removed {
		return l.dir.fs.SyncDir(l.path)
	}
	return nil
}

// openEmpty opens a directory without a segment: a crash came before the first file was durable, or all files are lost.
func (l *Log) openEmpty(mark Mark, marked bool, start record.Offset) error {
	next := start
	if marked {
		next = max(start, mark.Offset)
	}
	if err := l.startAt(next); err != nil {
		return err
	}
	if marked && mark.Offset > mark.LogStart {
		l.w.lost, l.w.missing = true, Missing{End: start, Mark: mark.Offset}
		l.dir.log.Error("all segments of a log are missing", "log", l.path, "mark", mark.Offset)
	}
	l.start.Store(int64(next))
	l.w.newLog, l.w.newNames = true, true
	l.w.born = l.dir.names.born.Add(1)
	return nil
}

// restart drops all segments, which end below the log start, and begins anew.
func (l *Log) restart(r *recovery, next record.Offset) error {
	l.dir.log.Warn("all of a log lies below its start: beginning anew", "log", l.path, "end", r.next, "start", next)
	for _, s := range slices.Backward(r.segments) {
		<-s.Retire()
		if err := s.MarkDeleted(); err != nil {
			return err
		}
		l.dir.discard(s, 0)
	}
	lost, missing := r.short, Missing{End: r.next, Mark: r.mark.Offset}
	if err := l.startAt(next); err != nil {
		return err
	}
	l.w.lost, l.w.missing = lost, missing
	l.w.newNames = true
	return l.flushNow()
}

// adopt puts what was opened in place.
func (l *Log) adopt(r *recovery, start record.Offset) {
	for i, s := range r.segments[:len(r.segments)-1] {
		s.SetUpper(r.segments[i+1].Base())
		if !r.mark.Gaps && r.segments[i+1].Base() > start { // retention may have renamed some of those below
			s.SetGapless()
		}
	}
	active := r.segments[len(r.segments)-1]
	l.begin(active, l.dir.o.Now().UnixMilli())
	l.view.Store(&view{segments: r.segments})
	l.w.next = r.next
	l.mark = r.mark
	l.mark.LogStart, l.mark.Unplaced = start, false
	l.start.Store(int64(start))
	if r.short {
		l.w.lost, l.w.missing = true, Missing{End: r.next, Mark: r.mark.Offset}
		l.dir.log.Error("durable data is missing", "log", l.path, "end", r.next, "mark", r.mark.Offset)
	} else if r.marked && r.next < r.mark.Offset { // a gap that was accepted before
		l.w.next = r.mark.Offset
	}
	end := place{l.w.next, record.Position(active.Size()), active}
	active.SetBound(segment.Bound{At: end.at, End: end.offset})
	l.ends.set(end)
}

// afterRecovery makes durable what recovery accepted, before anybody sees it: the names in the directory too.
func (l *Log) afterRecovery(r *recovery) error {
	l.w.newNames = true
	if !r.marked {
		l.w.newLog, l.w.born = true, l.dir.names.born.Add(1)
	}
	return l.flushNow()
}

// flushNow is a flush of a log that nobody else has yet.
func (l *Log) flushNow() error {
	if invariant.Seeded(invariant.EndBeforeFsync) {
		l.w.newLog, l.w.newNames = false, false
		return nil
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	return l.flushLocked(flushData)
}
