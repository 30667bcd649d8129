package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/segment"
	"github.com/keeplog/keeplog/vfs"
)

// DirOptions are what a data directory is opened with.
type DirOptions struct {
	FS     vfs.FS
	Path   string
	Logger *slog.Logger
	// Codecs unpack batches for lookups by time.
	Codecs *record.Codecs
	// Now is the wall clock.
	Now func() time.Time
	// Committer makes appended batches durable; nil means a coordinator of the directory's own, in the background.
	Committer Committer
	// OnOffline is called once, on its own goroutine, when the directory goes offline.
	OnOffline func(error)
	Settings  Settings
}

// Settings are the numbers of a data directory. Zero means the default.
type Settings struct {
	Reserve                int64         // bytes kept free; default max(2 %, 256 MiB), at most an eighth of the file system; negative: none
	RecoveryThreads        int           // logs opened at a time by OpenLogs; default 4
	RetentionCheckInterval time.Duration // log.retention.check.interval.ms; default 5 min
	InitialTaskDelay       time.Duration // log.initial.task.delay.ms: the first look at what the start found; default 30 s; negative: none
	ProducerExpiration     time.Duration // producer.id.expiration.ms; default 24 h
	MarkInterval           time.Duration // how often a changed mark is made durable; default 10 s
	MarkBytes              int64         // after how many bytes of a log it is made durable; default 64 MiB
	CheckpointInterval     time.Duration // of Kafka's recovery point and log start checkpoints; default 60 s
	WatermarkInterval      time.Duration // of replication-offset-checkpoint; default 5 s
	OpenSegments           int           // sealed segments kept open; default 1,024
	FlushConcurrency       int           // default 16
	FlushPatience          time.Duration // how long a flush that hangs may hold up those of other logs; default 1 s
	TruncateWait           time.Duration // how long a truncation waits for readers; default 10 s
	Seed                   uint64        // of the jitter of segment.ms
}

func (s *Settings) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	setInt := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	setInt(&s.RecoveryThreads, 4)
	setInt(&s.OpenSegments, 1024)
	setInt(&s.FlushConcurrency, 16)
	set(&s.RetentionCheckInterval, 5*time.Minute)
	set(&s.InitialTaskDelay, 30*time.Second)
	set(&s.ProducerExpiration, 24*time.Hour)
	set(&s.MarkInterval, 10*time.Second)
	set(&s.CheckpointInterval, time.Minute)
	set(&s.WatermarkInterval, 5*time.Second)
	set(&s.TruncateWait, 10*time.Second)
	set(&s.FlushPatience, time.Second)
	if s.MarkBytes == 0 {
		s.MarkBytes = 64 << 20
	}
}

// Found is a partition's directory on disk.
type Found struct {
	Identity // TopicID is zero where partition.metadata is missing or unreadable
	Path     string
}

// Dir is one data directory.
type Dir struct {
	o         DirOptions
	fs        vfs.FS
	path      string
	log       *slog.Logger
	lock      io.Closer
	env       *segment.Env
	marks     *marks
	committer Committer
	tuned     tuned

	meta        metaState
	brokerEpoch atomic.Int64
	opening

	offline atomic.Pointer[error]
	points  points
	space   space
	names   newNames

	mu sync.Mutex // guards inventory
	inventory

	ticking sync.Mutex
	due     dirSchedule
}

// tuned are the settings that change while the directory is open.
type tuned struct {
	producerExpirationMs atomic.Int64
	recoveryThreads      atomic.Int64
}

// SetProducerExpiration changes after what time without a batch a producer id is forgotten; the next look for such ids uses it. It must be positive.
func (d *Dir) SetProducerExpiration(idle time.Duration) {
	d.tuned.producerExpirationMs.Store(idle.Milliseconds())
}

// SetRecoveryThreads changes how many logs the next OpenLogs opens at a time; at least 1.
func (d *Dir) SetRecoveryThreads(n int) { d.tuned.recoveryThreads.Store(int64(max(n, 1))) }

// Tuned tells what SetProducerExpiration and SetRecoveryThreads have set, or the options at the opening.
func (d *Dir) Tuned() (producerExpiration time.Duration, recoveryThreads int) {
	return time.Duration(d.tuned.producerExpirationMs.Load()) * time.Millisecond, int(d.tuned.recoveryThreads.Load())
}

// opening is what was found when the directory was opened; after SettleMoves it does not change.
type opening struct {
	clean      bool
	cleanEpoch int64 // of the clean-stop marker, −1 for none
	found      []Found
	futures    []Found // copies that were under way
}

// inventory is what is in the directory now.
type inventory struct {
	logs   map[TopicPartition]*Log
	trash  []trash
	unseen map[string]TopicPartition // directories that were found and neither opened nor taken out yet
	rnd    *rand.Rand
	closed bool
}

type metaState struct {
	mu    sync.Mutex
	meta  Meta
	known bool
}

// newNames makes the names of new partitions durable: many at once where they come together.
type newNames struct {
	born    atomic.Uint64 // counts creations
	mu      sync.Mutex
	durable uint64 // creations whose names are
	// aside is held by who puts a directory aside, and shared by those who open logs.
	aside sync.RWMutex
}

// OpenDir locks and reads a data directory, and makes it where it is missing. The clean-stop marker is removed, durably,
// before it returns. Errors: vfs.ErrLocked, ErrNewerVersion, ErrBadFile for meta.properties, and those of the file system.
func OpenDir(o DirOptions) (*Dir, error) {
	o.Settings.defaults()
	if err := o.FS.MkdirAll(o.Path, 0o755); err != nil {
		return nil, err
	}
	lock, err := o.FS.Lock(path.Join(o.Path, LockFile))
	if err != nil {
		return nil, err
	}
	d := &Dir{
		o: o, fs: o.FS, path: o.Path, log: o.Logger, lock: lock, committer: o.Committer,
		env:       segment.NewEnv(o.FS, o.Logger, o.Settings.OpenSegments),
		opening:   opening{cleanEpoch: -1},
		inventory: inventory{logs: map[TopicPartition]*Log{}, unseen: map[string]TopicPartition{}, rnd: rand.New(rand.NewPCG(o.Settings.Seed, 0x6b6c))},
	}
	d.SetProducerExpiration(o.Settings.ProducerExpiration)
	d.SetRecoveryThreads(o.Settings.RecoveryThreads)
	d.brokerEpoch.Store(-1)
	d.space.init(d)
	d.env.Room = d.space.room
	if err := d.load(); err != nil {
		if d.marks != nil {
			_ = d.marks.file.Close()
		}
		_ = lock.Close()
		return nil, err
	}
	if d.committer == nil {
		d.committer = newCoordinator(o.Settings.FlushConcurrency, o.Settings.FlushPatience)
	}
	return d, nil
}

func (d *Dir) load() error {
	b, err := readFile(d.fs, path.Join(d.path, MetaFile))
	if err == nil {
		if d.meta.meta, err = DecodeMeta(b); err != nil {
			return fmt.Errorf("log: %s: %w", path.Join(d.path, MetaFile), err)
		}
		d.meta.known = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if b, err = readFile(d.fs, path.Join(d.path, CleanFile)); err == nil {
		d.clean, d.cleanEpoch = true, decodeClean(b)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err = d.points.load(d); err != nil {
		return err
	}
	var bad int
	if d.marks, bad, err = openMarks(d.fs, path.Join(d.path, MarksFile)); err != nil {
		return err
	}
	if bad > 0 {
		d.log.Warn("slots of the marks do not check; recovery reads more", "file", path.Join(d.path, MarksFile), "slots", bad)
	}
	if err := removeFile(d.fs, path.Join(d.path, CleanFile)); err != nil { // all is read: it was not refused
		return err
	}
	if err := d.fs.SyncDir(d.path); err != nil { // the marker is gone before any log changes
		return err
	}
	if err := d.list(); err != nil || len(d.found) > 0 {
		return err
	}
	return d.marks.complete()
}

// seen notes that a partition's directory that was there at the opening is open now, or taken out. After the last one the
// marks are complete.
func (d *Dir) seen(dir string) error {
	d.mu.Lock()
	delete(d.unseen, dir)
	left := len(d.unseen)
	d.mu.Unlock()
	if left > 0 {
		return nil
	}
	if err := d.marks.complete(); err != nil {
		return d.fail(fmt.Errorf("log: %s: %w", MarksFile, err))
	}
	return nil
}

// loadOffsets reads an offset checkpoint. One that is damaged is no checkpoint: the logs and the marks know better. One that
// the disk does not give is not the same: nobody knows what it says.
func (d *Dir) loadOffsets(name string) (offsets, error) {
	b, err := readFile(d.fs, path.Join(d.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log: reading a checkpoint: %w", err)
	}
	m, err := DecodeOffsets(b)
	if err != nil {
		d.log.Warn("checkpoint is not used", "file", path.Join(d.path, name), "err", err)
	}
	return m, nil
}

// list sorts the names in the directory.
func (d *Dir) list() error {
	entries, err := d.fs.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, full := e.Name(), path.Join(d.path, e.Name())
		if !e.IsDir() {
			if strings.HasSuffix(name, tmpExt) {
				_ = d.fs.Remove(full)
			}
			continue
		}
		if suffix, ok := isRetired(name); ok {
			f, ok := d.findFuture(name)
			switch {
			case suffix == deleteSuffix:
				d.trash = append(d.trash, trash{path: full})
			case suffix == futureSuffix && ok:
				d.futures = append(d.futures, f)
			default:
				d.log.Info("directory is left alone", "path", full)
			}
			continue
		}
		topic, partition, ok := ParseDirName(name)
		if !ok {
			d.log.Info("directory is none of a partition and is left alone", "path", full)
			continue
		}
		d.found = append(d.found, d.read(Found{Identity: Identity{Topic: topic, Partition: partition}, Path: full}))
		d.unseen[full] = TopicPartition{topic, partition}
	}
	return nil
}

// read fills in the topic id that a directory tells, if it does.
func (d *Dir) read(f Found) Found {
	if b, err := readFile(d.fs, path.Join(f.Path, PartitionFile)); err == nil {
		if id, err := DecodePartition(b); err == nil {
			f.TopicID = id
		}
	}
	return f
}

// Path is the directory's path.
func (d *Dir) Path() string { return d.path }

// Meta returns meta.properties; ok is false for a fresh directory.
func (d *Dir) Meta() (m Meta, ok bool) {
	d.meta.mu.Lock()
	defer d.meta.mu.Unlock()
	return d.meta.meta, d.meta.known
}

// SetMeta writes meta.properties, durably.
func (d *Dir) SetMeta(m Meta) error {
	d.meta.mu.Lock()
	defer d.meta.mu.Unlock()
	if err := replaceFile(d.fs, path.Join(d.path, MetaFile), m.Encode()); err != nil {
		return err
	}
	d.meta.meta, d.meta.known = m, true
	return nil
}

// CleanStop says whether the directory was closed cleanly before this opening, and the broker epoch of that time (−1 for
// none).
func (d *Dir) CleanStop() (brokerEpoch int64, clean bool) { return d.cleanEpoch, d.clean }

// SetBrokerEpoch sets what the next clean-stop marker will hold.
func (d *Dir) SetBrokerEpoch(epoch int64) { d.brokerEpoch.Store(epoch) }

// Found lists the partitions' directories that were there at the opening.
func (d *Dir) Found() []Found { return d.found }

// Log finds an open log.
func (d *Dir) Log(topic string, partition int32) (*Log, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.logs[TopicPartition{topic, partition}]
	return l, ok
}

// open lists the logs that are open and ready.
func (d *Dir) open() []*Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*Log, 0, len(d.logs))
	for _, l := range d.logs {
		if l.schedule.ready.Load() {
			all = append(all, l)
		}
	}
	return all
}

// random is a number in [0, n].
func (d *Dir) random(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.Int64N(n + 1)
}

// Offline is non-nil after a failed fsync or EIO; it wraps ErrOffline and the cause.
func (d *Dir) Offline() error {
	if p := d.offline.Load(); p != nil {
		return *p
	}
	return nil
}

// fail takes the directory offline. What the disk has is not known any more: nothing is retried, nothing acknowledged.
func (d *Dir) fail(cause error) error {
	if errors.Is(cause, ErrOffline) || errors.Is(cause, ErrClosed) {
		return cause
	}
	err := fmt.Errorf("%w: %s: %w", ErrOffline, d.path, cause)
	if d.offline.CompareAndSwap(nil, &err) {
		d.log.Error("data directory goes offline", "path", d.path, "err", cause)
		go func() {
			for _, l := range d.open() {
				l.notify()
			}
			if d.o.OnOffline != nil {
				d.o.OnOffline(err)
			}
		}()
	}
	return d.Offline()
}

// syncMarks makes all marks durable.
func (d *Dir) syncMarks() error {
	if err := d.marks.sync(); err != nil {
		return d.fail(fmt.Errorf("log: flush of %s: %w", MarksFile, err))
	}
	return nil
}

// syncNewNames makes the name of the born-th partition durable, and all that are there by now.
func (d *Dir) syncNewNames(born uint64) error {
	d.names.mu.Lock()
	defer d.names.mu.Unlock()
	if d.names.durable >= born {
		return nil
	}
	now := d.names.born.Load()
	if err := d.fs.SyncDir(d.path); err != nil {
		return err
	}
	d.names.durable = now
	return nil
}

// Usage is the space of the file system.
func (d *Dir) Usage() (vfs.Usage, error) { return d.fs.Usage(d.path) }

// Writable is ErrReserve below the reserve, ErrOffline after a failure, else nil. It is cheap.
func (d *Dir) Writable() error {
	if err := d.Offline(); err != nil {
		return err
	}
	return d.space.check()
}

// space keeps appends out of the reserve without asking the file system each time.
type space struct {
	dir    *Dir
	budget atomic.Int64 // bytes that may be written before looking again

	mu   sync.Mutex
	last time.Time // monotonic
	low  bool
	err  error
}

// lookBudget is how much may be written between two looks.
const lookBudget = 32 << 20

func (s *space) init(d *Dir) { s.dir = d }

func (s *space) check() error {
	if s.budget.Load() > 0 {
		return nil
	}
	return s.look(false)
}

func (s *space) spend(n int64) { s.budget.Add(-n) }

// exhausted says that a write met a full disk.
func (s *space) exhausted() { s.budget.Store(0) }

// look asks the file system, while space is low at most ten times a second unless forced.
func (s *space) look(force bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !force && s.budget.Load() > 0 {
		return nil
	}
	if s.low && !force && time.Since(s.last) < 100*time.Millisecond {
		return s.err
	}
	u, err := s.dir.fs.Usage(s.dir.path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReserve, err)
	}
	s.last = time.Now()
	reserve := Reserve(s.dir.o.Settings.Reserve, u)
	if u.Free <= reserve {
		if !s.low {
			s.dir.log.Warn("disk space is below the reserve: appends are refused", "path", s.dir.path, "free", u.Free, "reserve", reserve)
		}
		s.low = true
		s.budget.Store(0)
		s.err = fmt.Errorf("%w: %s has %d bytes free, %d are reserved", ErrReserve, s.dir.path, u.Free, reserve)
		return s.err
	}
	if s.low {
		s.dir.log.Info("disk space is above the reserve again", "path", s.dir.path, "free", u.Free)
	}
	s.low, s.err = false, nil
	s.budget.Store(min(u.Free-reserve, lookBudget))
	return nil
}

// room is how many bytes may be taken before the reserve is touched.
func (s *space) room() int64 {
	u, err := s.dir.fs.Usage(s.dir.path)
	if err != nil {
		return 0
	}
	return u.Free - Reserve(s.dir.o.Settings.Reserve, u)
}

// Reserve is how many bytes are kept free: configured, or for 0 the larger of 2 % and 256 MiB; at most an eighth of the
// file system. Negative means none.
func Reserve(configured int64, u vfs.Usage) int64 {
	if configured < 0 {
		return 0
	}
	reserve := configured
	if reserve == 0 {
		reserve = max(u.Total/50, 256<<20)
	}
	return min(reserve, u.Total/8)
}
