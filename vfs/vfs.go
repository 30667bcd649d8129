// Package vfs is the only door to files: everything durable goes through it, so that tests can take the power away.
//
// Nouns. An [FS] is a tree of directories and files. A [File] is an open file, read and written at explicit positions. A
// [Mapping] is a file's bytes in memory, counted, unmapped once by its last holder.
//
// Durability contract (what every implementation promises, and all that callers may rely on):
//
//	bytes     WriteAt, Truncate and Allocate are durable after File.Sync or File.SyncData of the same file
//	          (SyncData includes a changed size). Stores to a Mapping are durable after Mapping.Sync or File.Sync.
//	names     a created, renamed or removed name is durable after SyncDir of its directory (both directories of a rename
//	          across directories). Rename replaces atomically: after a crash the name shows the old or the new file.
//	failure   after a failed Sync, SyncData or Mapping.Sync nothing is known of any unsynced byte of that file; never retry.
//
// A File and an FS are safe for concurrent use; a Mapping's bytes have one writer at a time, its owner's business.
package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// ErrLocked says that another process, or another holder in this one, has the lock file.
var ErrLocked = errors.New("vfs: already locked")

// FS is a file system. Names are paths with '/'; errors match fs.ErrNotExist, fs.ErrExist and the syscall errno values
// (ENOSPC, EIO) with errors.Is, and carry operation and path (*fs.PathError).
type FS interface {
	// OpenFile opens name with the flags of package os (O_RDONLY, O_RDWR, O_CREATE, O_EXCL, O_TRUNC). O_APPEND is refused:
	// positions are explicit.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Mkdir makes one directory; the parent must exist.
	Mkdir(name string, perm fs.FileMode) error
	// MkdirAll makes name and its missing parents, and makes the new names durable.
	MkdirAll(name string, perm fs.FileMode) error
	// Remove unlinks a file or an empty directory.
	Remove(name string) error
	// RemoveAll unlinks a tree; a missing name is no error.
	RemoveAll(name string) error
	// Rename moves oldname to newname, replacing a file there.
	Rename(oldname, newname string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Stat describes a file; directories too.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(name string) error
	// Lock takes the exclusive lock on a file, which it creates; ErrLocked when it is held. Close releases it.
	Lock(name string) (io.Closer, error)
	// Usage reports the space of the file system that holds name.
	Usage(name string) (Usage, error)
}

// Usage is a file system's space in bytes; Free is what this process may still take.
type Usage struct {
	Total, Free int64
}

// File is an open file. Reads and writes name their position; there is no cursor.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Name is the path that the file was opened with.
	Name() string
	// Size is the file's length in bytes.
	Size() (int64, error)
	// Truncate sets the length; a mapped part must never be cut.
	Truncate(size int64) error
	// Allocate reserves blocks for [off, off+n), so that later writes there cannot meet a full disk. keepSize leaves the
	// length alone (FALLOC_FL_KEEP_SIZE), otherwise the file grows to off+n, zero-filled. On error (ENOSPC) the length is as
	// it was before.
	Allocate(off, n int64, keepSize bool) error
	// Sync makes bytes, size and metadata durable (fsync).
	Sync() error
	// SyncData makes bytes and size durable (fdatasync).
	SyncData() error
	// DropCache asks the system to forget the clean cached pages of the whole file, so that the next read comes from
	// the disk. The file must be synced first and must not be mapped.
	DropCache() error
	// Map maps the first length bytes (1 … Size). A writable mapping shares stores with the file; the blocks must have
	// been allocated, or a full disk is SIGBUS. The mapping outlives the File's Close.
	Map(length int64, writable bool) (*Mapping, error)
	// Fd is the descriptor for sendfile, when there is one; it stays valid until Close.
	Fd() (fd uintptr, ok bool)
}
