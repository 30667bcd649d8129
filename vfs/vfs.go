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
//
// Implementations: [OS] is the machine's; [NewMem] is in memory, for fast tests; [NewCrash] is in memory and forgets what was
// not synced; [NewFaulty] is around any of them and breaks chosen calls. Each in its own files: os; mem, memfile, content,
// slab; crash, journal, policy, fork; faulty, faultyfile, space.
//
// # What a crash leaves
//
// A [CrashFS] keeps two states of every file and directory, the cache's, which calls show, and the disk's, and between them
// the list of unsynced changes. A sync moves changes to the disk. A [Policy] chooses which of the others a crash lets through;
// any subset is possible, in any order, as POSIX allows, which is harsher than most file systems are.
//
//	WriteAt        one change: the sectors of 512 bytes that it touches, each as the cache has it afterwards, so with all
//	               earlier writes to that sector; and the new size, if it grew. A sector is never torn; size and sectors
//	               arrive apart. A size without its bytes shows zeros.
//	Truncate       one change: the exact size. Lost while a later write survives, the old tail is back behind that write.
//	Allocate       one change: the size, if it grew (bytes are zeros already). Reserved blocks only count in Usage.
//	Mapping store  found by comparing at the next changing call: a change for each run of sectors in a page. (A mapping costs
//	               a comparison of its length at each such call: keep indexes small in tests.)
//	Sync, SyncData every change of that file, in order, is on the disk. The file's name is not.
//	Mapping.Sync   the sectors of the mapping are on the disk, sizes are not; if the file was truncated since the last sync, as
//	               Sync.
//	create, Mkdir  one change: a name in the directory. The file is empty until its bytes are synced.
//	Remove         one change: the name goes. Changes of a file that no crash can bring back are dropped.
//	Rename         one change, all or nothing: the old name goes, the new one leads to the file; what it replaced comes back
//	               with the rename undone. Across directories each SyncDir makes its half durable, so sync the new one first:
//	               otherwise a crash between them loses the file.
//	SyncDir        every change of names in that directory, in order, is on the disk; not of the directory's own name.
//	MkdirAll       Mkdir and SyncDir of the parent, from the top down.
//	failed sync    [Fault.LoseDirty]: the unsynced bytes stay in the cache and no later sync writes them; sizes still are.
//	DropCache      after a failed sync, of an unmapped file: the bytes are the disk's again, with newer changes.
//	Kill           the process ends: cache, disk and changes stay; open files, mappings and locks go.
//
// After Crash, Kill or PowerOff every call on the old file system and its files fails with [ErrPowerOff].
//
// In memory a file has no clock and no owner, permissions are kept and not checked, and two mappings of which the later is
// longer are made the same at each call on the file instead of at each store. A cut of a mapped file panics there.
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
