package log

import (
	"crypto/rand"
	"fmt"
	"path"
	"time"
)

// DeleteLog takes a log out: it is closed, its mark freed durably, its directory renamed, and removed by a later Tick.
func (d *Dir) DeleteLog(l *Log) error {
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
	err := d.retire(Found{Identity: l.id, Path: l.path}, deleteSuffix, all(gone), delay)
	d.mu.Lock()
	delete(d.logs, l.key())
	if err != nil { // nobody has closed it: no clean stop covers it
		d.unseen[l.path] = l.key()
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

// Quarantine renames a directory that no image knows, or that contradicts it; the server never deletes it.
func (d *Dir) Quarantine(f Found, why string) error {
	d.log.Warn("directory is put aside", "path", f.Path, "why", why)
	return d.retire(f, straySuffix, nil, 0)
}

// retire frees the mark, durably, then renames the directory.
func (d *Dir) retire(f Found, suffix string, gone <-chan struct{}, delay time.Duration) error {
	if err := d.marks.drop(markKey{f.TopicID, f.Partition}); err != nil {
		return err
	}
	if err := d.syncMarks(); err != nil {
		return err
	}
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
	return d.seen(f.Path)
}
