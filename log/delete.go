package log

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

// DeleteLog takes a log out: it is closed, its mark freed durably, its directory renamed, and removed by a later Tick. ErrMoved says that
// nothing was deleted, because its copy has taken over, and that the one that publishes it has been called.
func (d *Dir) DeleteLog(l *Log) error {
	if !l.meets(fateDeleted) {
		l.flushMu.Lock()
		defer l.flushMu.Unlock()
		return l.Err()
	}
	return d.deleteLog(l, l.path)
}

// Delete is DeleteLog of the directory that the log is in.
func (l *Log) Delete() error { return l.dir.DeleteLog(l) }

// deleteLog deletes a log whose directory is at a path.
func (d *Dir) deleteLog(l *Log, at string) error {
	l.stop(fmt.Errorf("%w: %s is deleted", ErrClosed, l.path))
	l.notify()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	v := l.view.Load()
	l.mu.Unlock()
	l.markMu.Lock()
	defer l.markMu.Unlock()
	delay := l.config.Load().FileDeleteDelay
	var gone []<-chan struct{}
	for _, s := range v.segments {
		gone = append(gone, s.Retire())
	}
	f, away := Found{Identity: l.id, Path: at}, d.retire
	if l.leaving || l.arrived { // the other directory has it, or may have it
		away = d.retireMoved
	}
	err := away(f, deleteSuffix, all(gone), delay)
	d.mu.Lock()
	delete(d.logs, l.key())
	if err != nil { // nobody has closed it: no clean stop covers it
		d.unseen[at] = l.key()
	}
	d.mu.Unlock()
	return err
}

// all is closed when all of the channels are.
func all(channels []<-chan struct{}) <-chan struct{} {
	done := make(chan struct{})
	open := channels[:0]
	for _, c := range channels {
		if !isClosed(c) {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		close(done)
		return done
	}
	go func() {
		for _, c := range open {
			<-c
		}
		close(done)
	}()
	return done
}

// DeleteFound takes out a directory that is not open.
func (d *Dir) DeleteFound(f Found) error {
	return d.retire(f, deleteSuffix, nil, 0)
}

// Quarantine renames a directory that no image knows, or that contradicts it; the server never deletes it. One that is open, or another
// topic's by now, stays, and one that is gone is gone: whoever judges may have an old image.
func (d *Dir) Quarantine(f Found, why string) error {
	d.names.aside.Lock()
	defer d.names.aside.Unlock()
	if d.isOpen(f.Path) {
		return nil
	}
	if owner, err := d.owner(f); errors.Is(err, fs.ErrNotExist) || err == nil && owner != f.TopicID {
		return nil
	}
	d.log.Warn("directory is put aside", "path", f.Path, "why", why)
	return d.retire(f, straySuffix, nil, 0)
}

// isOpen says that a log is open in a directory.
func (d *Dir) isOpen(dir string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.logs {
		if l.path == dir {
			return true
		}
	}
	return false
}

// DeleteUnopened takes out the directory of a partition whose log did not open. One that is another topic's stays; one that does not let itself
// be read is put aside. None may be there at all: then the mark is freed.
func (d *Dir) DeleteUnopened(id Identity) error {
	f := Found{Identity: id, Path: path.Join(d.path, DirName(id.Topic, id.Partition))}
	owner, err := d.owner(f)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && owner != id.TopicID:
		if err := d.marks.drop(markKey{id.TopicID, id.Partition}); err != nil {
			return err
		}
		return d.syncMarks()
	case err != nil:
		return d.Quarantine(f, "its topic is deleted, and it cannot be read: "+err.Error())
	}
	return d.DeleteFound(f)
}

// SetAside puts aside a directory that stands where a partition's belongs and is another topic's. The caller knows that nothing else needs it.
func (d *Dir) SetAside(id Identity) error {
	f := Found{Identity: id, Path: path.Join(d.path, DirName(id.Topic, id.Partition))}
	if l, open := d.Log(id.Topic, id.Partition); open {
		return fmt.Errorf("log: %s is open", l.path)
	}
	owner, err := d.owner(f)
	switch {
	case errors.Is(err, fs.ErrNotExist): // somebody else has done it
		return nil
	case err != nil || owner == id.TopicID:
		return err
	}
	f.TopicID = owner
	return d.Quarantine(f, fmt.Sprintf("it belongs to topic id %x, the topic's is %x", owner, id.TopicID))
}

// owner is the topic id of a directory; without one it counts as that of f. Errors: fs.ErrNotExist where there is no directory.
func (d *Dir) owner(f Found) ([16]byte, error) {
	if _, err := d.fs.ReadDir(f.Path); err != nil {
		return [16]byte{}, err
	}
	b, err := readFile(d.fs, path.Join(f.Path, PartitionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return f.TopicID, nil
	}
	if err != nil {
		return [16]byte{}, err
	}
	id, err := DecodePartition(b)
	if errors.Is(err, ErrBadFile) {
		return f.TopicID, nil
	}
	return id, err
}

// retire frees the mark, durably, then renames the directory.
func (d *Dir) retire(f Found, suffix string, gone <-chan struct{}, delay time.Duration) error {
	if err := d.marks.drop(markKey{f.TopicID, f.Partition}); err != nil {
		return err
	}
	if err := d.syncMarks(); err != nil {
		return err
	}
	if err := d.takeAway(f, suffix, gone, delay); err != nil {
		return err
	}
	return d.seen(f.Path)
}

// retireMoved is retire for what has moved to another directory. The mark goes last: up to then it tells a start that the other one outdoes
// it, and where it is left over without a directory, that it moved away.
func (d *Dir) retireMoved(f Found, suffix string, gone <-chan struct{}, delay time.Duration) error {
	if err := d.takeAway(f, suffix, gone, delay); err != nil {
		return err
	}
	if err := d.marks.drop(markKey{f.TopicID, f.Partition}); err != nil {
		return err
	}
	if err := d.syncMarks(); err != nil { // before another log of the partition begins here
		return err
	}
	return d.seen(f.Path)
}

// takeAway renames a directory, durably.
func (d *Dir) takeAway(f Found, suffix string, gone <-chan struct{}, delay time.Duration) error {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	to := path.Join(d.path, retiredName(f.Topic, f.Partition, random, suffix))
	if err := d.fs.Rename(f.Path, to); err != nil {
		return err
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		return d.fail(err)
	}
	if suffix == deleteSuffix {
		d.mu.Lock()
		d.trash = append(d.trash, trash{path: to, gone: gone, due: d.o.Now().Add(delay)})
		d.mu.Unlock()
	}
	return nil
}
