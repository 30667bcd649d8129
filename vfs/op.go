package vfs

import "fmt"

// Op names a call on a file system, a file or a mapping.
type Op uint8

// The calls. OpCreate is an OpenFile or Lock that makes the file; OpOpen any other.
const (
	OpOpen Op = iota + 1
	OpCreate
	OpMkdir
	OpRemove
	OpRename
	OpReadDir
	OpStat
	OpSyncDir
	OpLock
	OpUsage
	OpRead
	OpWrite
	OpSize
	OpTruncate
	OpAllocate
	OpSync
	OpSyncData
	OpDropCache
	OpMap
	OpStore   // a store to a mapping, seen afterwards
	OpMapSync // Mapping.Sync
	OpClose
	opEnd
)

var opNames = [opEnd]string{
	OpOpen: "open", OpCreate: "create", OpMkdir: "mkdir", OpRemove: "remove", OpRename: "rename", OpReadDir: "readdir",
	OpStat: "stat", OpSyncDir: "syncdir", OpLock: "lock", OpUsage: "statfs", OpRead: "read", OpWrite: "write",
	OpSize: "size", OpTruncate: "truncate", OpAllocate: "fallocate", OpSync: "fsync", OpSyncData: "fdatasync",
	OpDropCache: "fadvise", OpMap: "mmap", OpStore: "store", OpMapSync: "msync", OpClose: "close",
}

func (o Op) String() string {
	if o > 0 && o < opEnd {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}
