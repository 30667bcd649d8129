package log

import (
	"github.com/keeplog/keeplog/record"
)

// Lost are offsets whose records the disk has lost although they were durable, and behind which the log went on: Count offsets from From up to
// To, exclusive. The zero Lost is none.
type Lost struct {
	From, To record.Offset
	Count    int64
}

// and adds the offsets from up to to, which are above those that are known already.
func (o Lost) and(from, to record.Offset) Lost {
	if from >= to {
		return o
	}
	if o.Count == 0 {
		o.From = from
	}
	return Lost{From: o.From, To: to, Count: o.Count + int64(to-from)}
}

// Lost tells which offsets were lost, ok is false where there are none: those that the log went on behind, at some start, until its log start has
// passed them or they are truncated away.
func (l *Log) Lost() (o Lost, ok bool) {
	l.markMu.Lock()
	o = l.mark.Lost
	l.markMu.Unlock()
	return o, o.Count > 0 && o.To >= l.StartOffset() && o.To <= l.WrittenEnd()
}

// Marked says whether the directory had a mark of the partition when it was opened: it is, or was, here.
func (d *Dir) Marked(id Identity) bool {
	mark, ok := d.marks.get(markKey{id.TopicID, id.Partition})
	return ok && mark.here()
}

// recreate makes the directory of a partition anew that is gone as a whole although its mark says that it was here.
func (l *Log) recreate(mark Mark) error {
	if err := l.dir.Writable(); err != nil {
		return err
	}
	if err := l.dir.fs.Mkdir(l.path, 0o755); err != nil {
		return err
	}
	err := l.writePartitionFile()
	if err == nil {
		err = l.openEmpty(mark, true, mark.LogStart)
	}
	if err != nil {
		_ = l.dir.fs.RemoveAll(l.path)
	}
	return err
}
