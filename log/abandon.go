package log

import "errors"

// Abandon closes the directory without the mark of a clean stop, as a start that failed must: logs that were not opened
// have not been recovered, and the next start has to look at them.
func (d *Dir) Abandon() error {
	d.ticking.Lock()
	defer d.ticking.Unlock()
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	errs := []error{d.committer.Close()}
	errs = append(errs, d.closeLogs(d.open())...)
	return errors.Join(append(errs, d.syncMarks(), d.marks.file.Close(), d.lock.Close())...)
}
