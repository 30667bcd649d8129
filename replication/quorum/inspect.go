package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/vfs"
)

// Inspection reads the metadata log of a directory and changes nothing. The node may be running: then a copy in memory is
// read.
type Inspection struct {
	// Term is the last term that this node took part in, VotedFor who it voted for in VoteTerm.
	Term, VoteTerm uint64
	VotedFor       string
	// First and Last are the bounds of the log, 0 when it is empty.
	First, Last uint64
	// Running says that another process uses the store.
	Running bool
	// Snapshots are the snapshot files, the newest first.
	Snapshots []SnapshotFile

	store Store
}

// SnapshotFile is one snapshot. Err says what is wrong with it; Image and Tables are nil then.
type SnapshotFile struct {
	Name        string
	Index, Term uint64
	Size        int64
	Image       *metadata.Image
	Tables      *metadata.Tables
	Err         error
}

// LogEntry is one entry of the log.
type LogEntry struct {
	Index, Term uint64
	// Type is "command", "configuration", "barrier" or "noop".
	Type string
	// Size is that of the data in bytes.
	Size int
	// Command is what a command carries; Members, "ID=voter ID=…", what a configuration does.
	Command *metadata.Command
	Members string
	// Err says what is wrong with the entry.
	Err error
}

// Inspect opens the metadata log in dir for reading. Close the result, also beside an error: it has what could be read, the
// snapshots at least, and is nil only when the directory itself cannot be read. A missing store is an error that wraps
// fs.ErrNotExist, a damaged one ErrDamaged.
func Inspect(fsys vfs.FS, dir string) (*Inspection, error) {
	in := &Inspection{}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("quorum: %w", err)
	}
	snaps := &snapshots{fs: fsys, dir: dir}
	for _, info := range listSnapshots(entries) {
		f := SnapshotFile{Name: info.name, Index: info.index, Term: info.term}
		if st, err := fsys.Stat(path.Join(dir, info.name)); err == nil {
			f.Size = st.Size()
		}
		f.Image, f.Tables, f.Err = snaps.load(info)
		in.Snapshots = append(in.Snapshots, f)
	}
	if err := in.open(fsys, path.Join(dir, storeName)); err != nil {
		in.store = nil
		return in, err
	}
	err = guard(func() (err error) {
		if in.First, err = in.store.FirstIndex(); err != nil {
			return err
		}
		if in.Last, err = in.store.LastIndex(); err != nil {
			in.First = 0
			return err
		}
		return in.readVotes()
	})
	if err != nil {
		return in, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return in, nil
}

// The keys under which Raft keeps what it must not forget.
const (
	keyTerm     = "CurrentTerm"
	keyVoteTerm = "LastVoteTerm"
	keyVotedFor = "LastVoteCand"
)

func (in *Inspection) readVotes() error {
	number := func(key string, to *uint64) error {
		v, err := in.store.Get([]byte(key))
		if err != nil && err.Error() != "not found" {
			return err
		}
		*to = decodeUint64(v)
		return nil
	}
	if err := errors.Join(number(keyTerm, &in.Term), number(keyVoteTerm, &in.VoteTerm)); err != nil {
		return err
	}
	v, err := in.store.Get([]byte(keyVotedFor))
	if err != nil && err.Error() != "not found" {
		return err
	}
	in.VotedFor, _, _ = strings.Cut(string(v), "/") // ID/DIRECTORY
	return nil
}

// open opens the file itself, or a copy of it when a process holds its lock.
func (in *Inspection) open(fsys vfs.FS, name string) error {
	info, err := fsys.Stat(name)
	if err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	if info.Size() == 0 {
		return fmt.Errorf("%w: %s is empty", ErrDamaged, name)
	}
	in.store, err = openReadOnly(name, nil)
	if !errors.Is(err, ErrLocked) {
		return err
	}
	in.Running = true
	for range 20 {
		if in.store, err = openCopy(fsys, name); !errors.Is(err, errMoved) {
			return err
		}
	}
	return err
}

func openReadOnly(name string, openFile func(string, int, os.FileMode) (*os.File, error)) (store Store, err error) {
	err = guard(func() error {
		s, err := raftboltdb.New(raftboltdb.Options{Path: name, BoltOptions: &bbolt.Options{
			ReadOnly: true, Timeout: time.Nanosecond, NoStatistics: true, OpenFile: openFile,
		}})
		if err == nil {
			store = s
		}
		return err
	})
	return store, openError(name, err)
}

// errMoved says that the store was written while it was copied.
var errMoved = errors.New("quorum: the metadata log is written too fast to be copied; try again, or stop the node")

// openCopy copies the store into memory. bbolt never writes to a page that the last two commits can reach, so a copy is whole
// when at most one commit came meanwhile.
func openCopy(fsys vfs.FS, name string) (Store, error) {
	from, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	before, err := commits(from)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("keeplog-inspect", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("quorum: memory for a copy of %s: %w", name, err)
	}
	to := os.NewFile(uintptr(fd), name)
	if err := copyFile(to, from); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	after, err := commits(from)
	if err == nil && after > before+1 {
		err = errMoved
	}
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	store, err := openReadOnly(name, func(string, int, os.FileMode) (*os.File, error) { return to, nil })
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return store, nil
}

// Type names are Raft's own words.
func entryType(t raft.LogType) string {
	switch t {
	case raft.LogCommand:
		return "command"
	case raft.LogConfiguration:
		return "configuration"
	case raft.LogBarrier:
		return "barrier"
	case raft.LogNoop:
		return "noop"
	}
	return fmt.Sprintf("type %d", t)
}

// Entries goes through the log.
func (in *Inspection) Entries() iter.Seq[LogEntry] {
	return func(yield func(LogEntry) bool) {
		for i := in.First; i <= in.Last && i > 0; i++ {
			if !yield(in.entry(i)) {
				return
			}
		}
	}
}

func (in *Inspection) entry(index uint64) LogEntry {
	e := LogEntry{Index: index, Type: "unreadable"}
	var l raft.Log
	e.Err = guard(func() error {
		if err := in.store.GetLog(index, &l); err != nil {
			return fmt.Errorf("%w: entry %d: %w", ErrDamaged, index, err)
		}
		e.Term, e.Type, e.Size = l.Term, entryType(l.Type), len(l.Data)
		if l.Index != index {
			return fmt.Errorf("%w: entry %d says that it is entry %d", ErrDamaged, index, l.Index)
		}
		switch l.Type {
		case raft.LogCommand:
			c, err := metadata.DecodeCommand(l.Data)
			e.Command = c
			return err
		case raft.LogConfiguration:
			for i, s := range raft.DecodeConfiguration(l.Data).Servers {
				if i > 0 {
					e.Members += " "
				}
				e.Members += string(s.ID) + "=" + s.Suffrage.String()
			}
		}
		return nil
	})
	return e
}

// Close closes the store.
func (in *Inspection) Close() error {
	if in.store == nil {
		return nil
	}
	return in.store.Close()
}

// StoreFile is the name of the store's file, for tools that list a directory.
const StoreFile = storeName

// IsSnapshot says whether a file's name is that of a snapshot.
func IsSnapshot(e fs.DirEntry) bool {
	_, _, ok := parseSnapshotName(e.Name())
	return ok && !e.IsDir()
}
