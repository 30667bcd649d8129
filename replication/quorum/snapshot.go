package quorum

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

const (
	snapshotPrefix  = "keeplog-snapshot-"
	snapshotMagic   = "KLSNAP\r\n"
	snapshotVersion = 1
	snapshotTail    = 12
	// keptSnapshots is how many are kept; the log reaches back to the oldest of them.
	keptSnapshots = 3
	// maxConfiguration bounds the membership in a snapshot's head.
	maxConfiguration = 1 << 20

	tempSuffix       = ".tmp"
	damagedSuffix    = ".damaged"
	incompleteSuffix = ".incomplete"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshotInfo is one snapshot file.
type snapshotInfo struct {
	name        string
	index, term uint64
}

// snapshots are the snapshot files of one directory. A file:
//
//	┌────────────┬─────────┬──────┬─────────────┬────────────┬────────────┬───────┐   name: keeplog-snapshot-TERM-INDEX
//	│ "KLSNAP\r\n"│ version │ size │ head        │ image      │ image size │ CRC   │
//	│ 8          │ 1       │ 4    │ size bytes  │            │ 8          │ 4     │   numbers are big-endian
//	└────────────┴─────────┴──────┴─────────────┴────────────┴────────────┴───────┘   CRC-32C over all before it
//	head: index 8, term 8, index of the configuration 8, the configuration (members) as Raft encodes it
//
// It is written under a temporary name, fsynced, renamed, and its name fsynced.
type snapshots struct {
	fs   vfs.FS
	dir  string
	log  *slog.Logger
	fail func(error)

	// term finds the term of an entry of the log, 0 for one that is not there; contradicted is told of a snapshot whose last entry
	// is another in the log.
	term         func(index uint64) uint64
	contradicted chan struct{}

	// incomplete are those that lack records which this version knows, the newest first; why is said of the newest. They are there until
	// the log has turned out to have everything behind an older one.
	incomplete []snapshotInfo
	why        error

	mu sync.Mutex
	// all are the snapshots, the newest first.
	all []snapshotInfo
}

// open lists the snapshots, clears away what a stop left behind, and checks from the newest on until one is whole. A damaged
// one is renamed and reported; when none is whole the list is empty. One that an older version took, without records that this
// version knows, is passed over. A newer version's snapshot is an error.
func (s *snapshots) open() (best *snapshotInfo, err error) {
	entries, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), snapshotPrefix) && strings.HasSuffix(e.Name(), tempSuffix) {
			if err := s.fs.Remove(path.Join(s.dir, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	s.all = listSnapshots(entries)
	for len(s.all) > 0 {
		newest := s.all[0]
		img, _, err := s.load(newest)
		if err == nil {
			err = img.Complete()
		}
		if errors.Is(err, metadata.ErrIncomplete) {
			s.incomplete, s.why = append(s.incomplete, newest), cmp.Or(s.why, err)
			s.all = s.all[1:]
			continue
		}
		if err == nil {
			return &newest, nil
		}
		if errors.Is(err, metadata.ErrNewerVersion) || !errors.Is(err, metadata.ErrCorrupt) {
			return nil, err
		}
		s.log.Error("a snapshot of the metadata is damaged; an older one is tried", "file", newest.name, "error", err)
		if err := s.setAside(newest.name, damagedSuffix); err != nil {
			return nil, err
		}
		s.all = s.all[1:]
	}
	return nil, nil
}

func (s *snapshots) setAside(name, suffix string) error {
	from := path.Join(s.dir, name)
	if err := s.fs.Rename(from, from+suffix); err != nil {
		return err
	}
	return s.fs.SyncDir(s.dir)
}

// replaced puts the incomplete snapshots aside: the log has what they lack.
func (s *snapshots) replaced() error {
	for _, info := range s.incomplete {
		s.log.Warn("a snapshot of the metadata was taken by a version that did not know some records; the log is read again instead",
			"file", info.name, "aside", info.name+incompleteSuffix, "error", s.why)
		if err := s.setAside(info.name, incompleteSuffix); err != nil {
			return err
		}
	}
	s.incomplete = nil
	return nil
}

func listSnapshots(entries []fs.DirEntry) []snapshotInfo {
	var all []snapshotInfo
	for _, e := range entries {
		if term, index, ok := parseSnapshotName(e.Name()); ok && !e.IsDir() {
			all = append(all, snapshotInfo{e.Name(), index, term})
		}
	}
	slices.SortFunc(all, func(a, b snapshotInfo) int {
		return cmp.Or(cmp.Compare(b.index, a.index), cmp.Compare(b.term, a.term))
	})
	return all
}

func parseSnapshotName(name string) (term, index uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, snapshotPrefix)
	if !ok {
		return 0, 0, false
	}
	t, i, ok := strings.Cut(rest, "-")
	if !ok {
		return 0, 0, false
	}
	term, err1 := strconv.ParseUint(t, 10, 64)
	index, err2 := strconv.ParseUint(i, 10, 64)
	return term, index, err1 == nil && err2 == nil && snapshotName(term, index) == name
}

func snapshotName(term, index uint64) string {
	return snapshotPrefix + strconv.FormatUint(term, 10) + "-" + strconv.FormatUint(index, 10)
}

// newest is the newest snapshot, nil when there is none.
func (s *snapshots) newest() *snapshotInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return nil
	}
	info := s.all[0]
	return &info
}

// covers are index and term of the newest snapshot, 0 when there is none.
func (s *snapshots) covers() (index, term uint64) {
	if info := s.newest(); info != nil {
		return info.index, info.term
	}
	return 0, 0
}

// oldest is the index of the oldest snapshot, 0 when there is none.
func (s *snapshots) oldest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return 0
	}
	return s.all[len(s.all)-1].index
}

// load reads a snapshot whole.
func (s *snapshots) load(info snapshotInfo) (*metadata.Image, *metadata.Tables, error) {
	_, body, err := openSnapshot(s.fs, s.dir, info)
	if err != nil {
		return nil, nil, err
	}
	img, tables, err := metadata.ReadSnapshot(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", info.name, err)
	}
	return img, tables, nil
}

// List gives Raft the snapshots, the newest first.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	metas := make([]*raft.SnapshotMeta, 0, len(all))
	for _, info := range all {
		meta, body, err := openSnapshot(s.fs, s.dir, info)
		if err != nil {
			s.log.Error("a snapshot of the metadata cannot be read", "file", info.name, "error", err)
			continue
		}
		if err := body.Close(); err != nil {
			return nil, err
		}
		metas = append(metas, meta)
	}
	return metas, nil
}

// Open opens a snapshot for Raft.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	term, index, ok := parseSnapshotName(id)
	if !ok {
		return nil, nil, fmt.Errorf("quorum: %q is no snapshot", id)
	}
	return openSnapshot(s.fs, s.dir, snapshotInfo{id, index, term})
}

// openSnapshot checks a file whole and gives its image's bytes.
func openSnapshot(fsys vfs.FS, dir string, info snapshotInfo) (*raft.SnapshotMeta, io.ReadCloser, error) {
	f, err := fsys.OpenFile(path.Join(dir, info.name), os.O_RDONLY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("quorum: %w", err)
	}
	meta, at, err := readSnapshotHead(f)
	if err == nil && (meta.Index != info.index || meta.Term != info.term) {
		err = fmt.Errorf("%w: the head names index %d and term %d", metadata.ErrCorrupt, meta.Index, meta.Term)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", info.name, err), f.Close())
	}
	meta.ID = info.name
	body := struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, at, meta.Size), f}
	return meta, body, nil
}

// readSnapshotHead reads head and tail and checks the CRC over all.
func readSnapshotHead(f vfs.File) (meta *raft.SnapshotMeta, at int64, err error) {
	size, err := f.Size()
	if err != nil {
		return nil, 0, err
	}
	fixed := make([]byte, len(snapshotMagic)+5)
	if size < int64(len(fixed)+snapshotTail) {
		return nil, 0, fmt.Errorf("%w: %d bytes are no snapshot", metadata.ErrCorrupt, size)
	}
	if _, err := f.ReadAt(fixed, 0); err != nil {
		return nil, 0, err
	}
	if string(fixed[:len(snapshotMagic)]) != snapshotMagic {
		return nil, 0, fmt.Errorf("%w: the file begins with %q", metadata.ErrCorrupt, fixed)
	}
	tail := make([]byte, snapshotTail)
	if _, err := f.ReadAt(tail, size-snapshotTail); err != nil {
		return nil, 0, err
	}
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, bufio.NewReaderSize(io.NewSectionReader(f, 0, size-4), 256<<10)); err != nil {
		return nil, 0, err
	}
	if want := binary.BigEndian.Uint32(tail[8:]); want != sum.Sum32() {
		return nil, 0, fmt.Errorf("%w: CRC is %08x, the bytes make %08x", metadata.ErrCorrupt, want, sum.Sum32())
	}
	if v := fixed[len(snapshotMagic)]; v > snapshotVersion {
		return nil, 0, fmt.Errorf("%w: snapshot file version %d, this program knows %d", metadata.ErrNewerVersion, v, snapshotVersion)
	}
	headSize := int64(binary.BigEndian.Uint32(fixed[len(snapshotMagic)+1:]))
	at = int64(len(fixed)) + headSize
	image := int64(binary.BigEndian.Uint64(tail))
	if headSize < 24 || headSize > maxConfiguration || at+image+snapshotTail != size {
		return nil, 0, fmt.Errorf("%w: sizes do not add up", metadata.ErrCorrupt)
	}
	head := make([]byte, headSize)
	if _, err := f.ReadAt(head, int64(len(fixed))); err != nil {
		return nil, 0, err
	}
	meta = &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, Index: binary.BigEndian.Uint64(head), Term: binary.BigEndian.Uint64(head[8:]),
		ConfigurationIndex: binary.BigEndian.Uint64(head[16:]), Size: image,
	}
	err = guard(func() error {
		meta.Configuration = raft.DecodeConfiguration(head[24:])
		return nil
	})
	return meta, at, err
}

// Create begins a snapshot.
func (s *snapshots) Create(_ raft.SnapshotVersion, index, term uint64, c raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	info := snapshotInfo{snapshotName(term, index), index, term}
	f, err := s.fs.OpenFile(path.Join(s.dir, info.name+tempSuffix), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	w := &sink{s: s, info: info, file: f, crc: crc32.New(castagnoli)}
	w.out = bufio.NewWriterSize(w.raw(), 64<<10)
	members := raft.EncodeConfiguration(c)
	head := append([]byte(snapshotMagic), snapshotVersion)
	head = binary.BigEndian.AppendUint32(head, uint32(24+len(members)))
	head = binary.BigEndian.AppendUint64(head, index)
	head = binary.BigEndian.AppendUint64(head, term)
	head = binary.BigEndian.AppendUint64(head, configurationIndex)
	head = append(head, members...)
	if _, err := w.out.Write(head); err != nil {
		return nil, errors.Join(err, w.Cancel())
	}
	return w, nil
}

// sink writes one snapshot.
type sink struct {
	s    *snapshots
	info snapshotInfo
	file vfs.File
	out  *bufio.Writer
	crc  hash.Hash32
	at   int64
	// image counts the bytes of the image.
	image uint64
	// own says that this member has taken it: it is of the image in use.
	own  bool
	done bool
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// raw writes to the file at its end.
func (w *sink) raw() io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.file.WriteAt(p, w.at)
		w.crc.Write(p[:n])
		w.at += int64(n)
		return n, err
	})
}

// ID is the snapshot's name.
func (w *sink) ID() string { return w.info.name }

// Write takes bytes of the image.
func (w *sink) Write(p []byte) (int, error) {
	n, err := w.out.Write(p)
	w.image += uint64(n)
	return n, err
}

// Close makes the snapshot durable and known, unless it is the leader's and a start could not use it: then nothing of it stays.
func (w *sink) Close() error {
	if w.done {
		return nil
	}
	err := w.finish()
	if err == nil && !w.own {
		err = w.usable()
	}
	if err == nil {
		err = w.name()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("quorum: snapshot %s: %w", w.info.name, err), w.Cancel())
	}
	w.done = true
	if t := w.s.termAt(w.info.index); t != 0 && t != w.info.term {
		select {
		case w.s.contradicted <- struct{}{}:
		default:
		}
	}
	return w.s.add(w.info)
}

func (w *sink) finish() error {
	tail := binary.BigEndian.AppendUint64(nil, w.image)
	if _, err := w.out.Write(tail); err != nil {
		return err
	}
	if err := w.out.Flush(); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(binary.BigEndian.AppendUint32(nil, w.crc.Sum32()), w.at); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return w.s.syncFailed(err)
	}
	if err := w.file.Close(); err != nil {
		return err
	}
	w.file = nil
	return nil
}

// usable reads a finished snapshot, of an image that Raft has not restored yet, as a start would.
func (w *sink) usable() error {
	img, _, err := w.s.load(snapshotInfo{w.info.name + tempSuffix, w.info.index, w.info.term})
	if err == nil {
		err = img.Complete()
	}
	if err != nil {
		w.s.log.Error("the leader's snapshot of the metadata cannot be used", "error", err)
	}
	return err
}

// name gives a finished snapshot its name.
func (w *sink) name() error {
	name := path.Join(w.s.dir, w.info.name)
	if err := w.s.fs.Rename(name+tempSuffix, name); err != nil {
		return err
	}
	if err := w.s.fs.SyncDir(w.s.dir); err != nil {
		return w.s.syncFailed(err)
	}
	return nil
}

// syncFailed ends the node, unless the disk is merely full.
func (s *snapshots) syncFailed(err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		s.fail(fmt.Errorf("quorum: fsync of a snapshot: %w", err))
	}
	return err
}

func (s *snapshots) termAt(index uint64) uint64 {
	if s.term == nil {
		return 0
	}
	return s.term(index)
}

// Cancel drops the snapshot.
func (w *sink) Cancel() error {
	if w.done {
		return nil
	}
	w.done = true
	var err error
	if w.file != nil {
		err = w.file.Close()
	}
	if rerr := w.s.fs.Remove(path.Join(w.s.dir, w.info.name+tempSuffix)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// add makes a snapshot known and removes those that are too many.
func (s *snapshots) add(info snapshotInfo) error {
	s.mu.Lock()
	all := slices.DeleteFunc(slices.Clone(s.all), func(i snapshotInfo) bool { return i.name == info.name })
	all = slices.Insert(all, 0, info)
	gone := all[min(len(all), keptSnapshots):]
	s.all = all[:min(len(all), keptSnapshots)]
	s.mu.Unlock()
	for _, old := range gone {
		if err := s.fs.Remove(path.Join(s.dir, old.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("an old snapshot of the metadata could not be removed", "file", old.name, "error", err)
		}
	}
	return nil
}
