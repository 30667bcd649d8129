package isr

import (
	"github.com/keeplog/keeplog/record"
)

// TimeOf is the time, in ms since 1970, of the first record at or behind an offset and below the high watermark, as the leader has it; ok is
// false where there is none.
func (p *Partition) TimeOf(o record.Offset) (ms int64, ok bool, err error) {
	if err := p.checkLeader(record.NoEpoch); err != nil {
		return 0, false, err
	}
	found, ok, err := p.log.TimeOf(o, record.Offset(p.highWatermark.Load()))
	if err != nil {
		return 0, false, p.translateRead(err)
	}
	return found.Timestamp, ok, nil
}

// Leads says whether this broker leads the partition and may tell its end, and from where to where its log may be read. As for latest
// offsets, that is from when the high watermark has reached the start of the leader's epoch on, and as long as the lease runs.
func (p *Partition) Leads() (start, highWatermark record.Offset, ok bool) {
	if p.checkLeader(record.NoEpoch) != nil || p.unsettled.Load() || !p.replicas.leased() {
		return 0, 0, false
	}
	return p.log.StartOffset(), record.Offset(p.highWatermark.Load()), true
}
