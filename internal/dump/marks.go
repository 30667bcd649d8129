package dump

import "github.com/keeplog/keeplog/record"

type markSlot struct {
	segment                    record.Offset
	offset                     record.Offset
	offsetEntries, timeEntries int64
}

type markTable struct{}

func (t *markTable) find(id [16]byte, partition int32) *markSlot { return nil }

func (d *Dump) readMarks(path string) *markTable { return nil }
func (f *file) marks()                           {}
func (f *file) window(p *partition)              {}
func (f *file) raft()                            {}
