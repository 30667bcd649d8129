package quorum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/keeplog/keeplog/vfs"
)

// openError words an error of opening the store's file.
func openError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: %s is open in another process", ErrLocked, name)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("quorum: open %s: %w", name, err)
	}
	return fmt.Errorf("%w: open %s: %w", ErrDamaged, name, err)
}

// The places in a meta page of bbolt's file format 2: page header 16 bytes, magic 4, version 4, page size 4, flags 4, root 16,
// free list 8, number of pages 8, number of the transaction 8, FNV-1a of all since the magic 8. A file begins with two meta
// pages, written in turn, in the byte order of the machine.
const (
	boltMagic    = 0xED0CDAED
	boltMagicAt  = 16
	boltPageAt   = 24
	boltPagesAt  = 56
	boltTxidAt   = 64
	boltSumAt    = 72
	boltMetaSize = 80
)

// boltMeta is what we look at in a meta page.
type boltMeta struct {
	pageSize, pages, txid uint64
}

// newestMeta reads the meta page that bbolt would believe.
func newestMeta(f vfs.File) (boltMeta, error) {
	best, found := boltMeta{}, false
	for _, page := range []int64{4096, 8192, 16384, 32768, 65536, 1024, 2048, 0} {
		b := make([]byte, boltMetaSize)
		if _, err := f.ReadAt(b, page); err != nil && !errors.Is(err, io.EOF) {
			return best, err
		}
		sum := fnv.New64a()
		sum.Write(b[boltMagicAt:boltSumAt])
		m := boltMeta{
			pageSize: uint64(binary.NativeEndian.Uint32(b[boltPageAt:])), pages: binary.NativeEndian.Uint64(b[boltPagesAt:]),
			txid: binary.NativeEndian.Uint64(b[boltTxidAt:]),
		}
		whole := binary.NativeEndian.Uint32(b[boltMagicAt:]) == boltMagic && binary.NativeEndian.Uint64(b[boltSumAt:]) == sum.Sum64()
		if whole && (page == 0 || uint64(page) == m.pageSize) && (!found || m.txid > best.txid) {
			best, found = m, true
		}
	}
	if !found {
		return best, errors.New("no meta page is whole")
	}
	return best, nil
}

// commits reads the number of the newest transaction in a bbolt file.
func commits(f vfs.File) (uint64, error) {
	m, err := newestMeta(f)
	if err != nil {
		return 0, fmt.Errorf("%w: %s: %w", ErrDamaged, f.Name(), err)
	}
	return m.txid, nil
}

// preflight looks at a store's file before bbolt opens it for writing: bbolt then walks the pages in a goroutine of its own,
// where a page that is cut off or damaged ends the process without a word about the file.
func preflight(fsys vfs.FS, name string) error {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	m, err := newestMeta(f)
	size, serr := f.Size()
	if cerr := errors.Join(serr, f.Close()); cerr != nil {
		return cerr
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	case m.pageSize == 0 || m.pages > uint64(size)/m.pageSize:
		return fmt.Errorf("%w: %s has %d bytes, and its pages take %d", ErrDamaged, name, size, m.pages*m.pageSize)
	}
	err = guard(func() error { return walkPages(name) })
	if err != nil && !errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return openError(name, err)
}

// walkPages touches every page that holds data.
func walkPages(name string) error {
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second, NoStatistics: true})
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.Begin(false)
	if err != nil {
		return err
	}
	// The transaction goes before the file, also when a page panics.
	defer func() { _ = tx.Rollback() }()
	return tx.ForEach(func(bucket []byte, b *bbolt.Bucket) error {
		var last []byte
		return b.ForEach(func(k, _ []byte) error {
			if last != nil && bytes.Compare(last, k) >= 0 {
				return fmt.Errorf("keys of %q are out of order", bucket)
			}
			last = k
			return nil
		})
	})
}

func copyFile(to *os.File, from vfs.File) error {
	size, err := from.Size()
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(from, 0, size))
	return err
}
