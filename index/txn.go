package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// TxnEntryBytes is the width of an entry of a transaction index.
const TxnEntryBytes = 34

// AbortedTxn is one aborted transaction, in the order of the abort markers.
type AbortedTxn struct {
	ProducerID record.ProducerID
	// First is the transaction's first offset, Last that of its abort marker.
	First, Last record.Offset
	// LastStable is the last stable offset at the moment of the marker.
	LastStable record.Offset
}

// TxnIndex lists the transactions that were aborted in a segment. Its file exists from the first one on. It is small and
// seldom read, so it is read and written without a map.
type TxnIndex struct{ opts Options }

// NewTxnIndex is the transaction index of that name; the file need not exist.
func NewTxnIndex(o Options) *TxnIndex { return &TxnIndex{opts: o} }

// Name is the path of the file.
func (x *TxnIndex) Name() string { return x.opts.Name }

// Append adds an entry at the end of the file. The last offsets must grow.
func (x *TxnIndex) Append(a AbortedTxn) error {
	f, err := x.opts.FS.OpenFile(x.opts.Name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		var b [TxnEntryBytes]byte
		binary.BigEndian.PutUint64(b[2:], uint64(a.ProducerID))
		binary.BigEndian.PutUint64(b[10:], uint64(a.First))
		binary.BigEndian.PutUint64(b[18:], uint64(a.Last))
		binary.BigEndian.PutUint64(b[26:], uint64(a.LastStable))
		_, err = f.WriteAt(b[:], size-size%TxnEntryBytes)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// All reads every entry; none where the file is missing. A file that is not sound answers ErrCorrupt and the entries
// before the bad one.
func (x *TxnIndex) All() ([]AbortedTxn, error) {
	f, err := x.opts.FS.OpenFile(x.opts.Name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return x.read(f, size)
}

func (x *TxnIndex) read(f vfs.File, size int64) ([]AbortedTxn, error) {
	var all []AbortedTxn
	var b [TxnEntryBytes]byte
	for at := int64(0); at+TxnEntryBytes <= size; at += TxnEntryBytes {
		if _, err := f.ReadAt(b[:], at); err != nil {
			return all, err
		}
		a := AbortedTxn{
			ProducerID: record.ProducerID(binary.BigEndian.Uint64(b[2:])), First: record.Offset(binary.BigEndian.Uint64(b[10:])),
			Last: record.Offset(binary.BigEndian.Uint64(b[18:])), LastStable: record.Offset(binary.BigEndian.Uint64(b[26:])),
		}
		version := int16(binary.BigEndian.Uint16(b[:]))
		if version != 0 || a.First > a.Last || a.Last < x.opts.Base || (len(all) > 0 && a.Last <= all[len(all)-1].Last) {
			return all, fmt.Errorf("%w: %s, entry %d: version %d, offsets %d to %d",
				ErrCorrupt, x.opts.Name, at/TxnEntryBytes, version, a.First, a.Last)
		}
		all = append(all, a)
	}
	if size%TxnEntryBytes != 0 {
		return all, fmt.Errorf("%w: %s has %d bytes, which is not whole entries", ErrCorrupt, x.opts.Name, size)
	}
	return all, nil
}

// Cut drops the transactions whose marker is at or above end.
func (x *TxnIndex) Cut(end record.Offset) error {
	all, err := x.All()
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	keep := len(all)
	for keep > 0 && all[keep-1].Last >= end {
		keep--
	}
	if err == nil && keep == len(all) {
		return nil
	}
	f, err := x.opts.FS.OpenFile(x.opts.Name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(keep) * TxnEntryBytes)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Collect appends to found the transactions of this segment that a read_committed reader of [from, upper) must know, and
// says whether the next segment has to be asked too.
func (x *TxnIndex) Collect(found []AbortedTxn, from, upper record.Offset) ([]AbortedTxn, bool, error) {
	all, err := x.All()
	if err != nil {
		return found, false, err
	}
	for _, a := range all {
		if a.Last >= from && a.First < upper {
			found = append(found, a)
		}
		if a.LastStable >= upper {
			return found, false, nil
		}
	}
	return found, true, nil
}
