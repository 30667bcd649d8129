package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/keeplog/keeplog/vfs"
)

const tmpExt = ".tmp"

// maxSmallFile bounds what is read as one of the small files of a directory.
const maxSmallFile = 256 << 20

// readFile reads a small file whole. Errors match fs.ErrNotExist.
func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxSmallFile {
		return nil, fmt.Errorf("log: %s has %d bytes", name, size)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	} else if n < len(b) {
		b = b[:n]
	}
	return b, nil
}

// writeTemp writes <name>.tmp and makes its bytes durable.
func writeTemp(fsys vfs.FS, name string, content []byte) error {
	f, err := fsys.OpenFile(name+tmpExt, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if len(content) > 0 {
		_, err = f.WriteAt(content, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// replaceFile puts content in the place of a file: after a crash it is the old one or the new one, whole.
func replaceFile(fsys vfs.FS, name string, content []byte) error {
	if err := replaceName(fsys, name, content); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}

// replaceName is replaceFile without making the new name durable.
func replaceName(fsys vfs.FS, name string, content []byte) error {
	err := writeTemp(fsys, name, content)
	if err == nil {
		err = fsys.Rename(name+tmpExt, name)
	}
	if err != nil {
		_ = fsys.Remove(name + tmpExt)
	}
	return err
}

// removeFile removes a file that may be missing.
func removeFile(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
