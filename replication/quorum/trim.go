package quorum

import (
	"time"
)

const (
	// maxTrailing and minTrailing bound the entries that stay in the log behind a snapshot, for followers that are behind.
	maxTrailing = 10_240
	minTrailing = 64
	// maxTrailingBytes bounds their size.
	maxTrailingBytes = 64 << 20
)

// snapshotLoop takes a snapshot when enough was applied since the last one.
func (q *Quorum) snapshotLoop() {
	t := time.NewTicker(q.o.Timing.SnapshotEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-q.ctx.Done():
			return
		}
		entries, bytes := q.fsm.entries.Load(), q.fsm.bytes.Load()
		if entries < q.o.Timing.SnapshotEntries && bytes < q.o.Timing.SnapshotBytes {
			continue
		}
		if err := q.Snapshot(); err != nil {
			q.o.Logger.Error("no snapshot of the metadata could be taken; the log keeps growing", "entries", entries, "bytes", bytes, "error", err)
		}
	}
}

// snapshot takes one, and lets the log keep as many entries behind it as fit.
func (q *Quorum) snapshot() error {
	c := q.raft().ReloadableConfig()
	if c.TrailingLogs = q.o.Timing.Trailing; c.TrailingLogs == 0 {
		c.TrailingLogs = trailing(q.fsm.entries.Load(), q.fsm.bytes.Load())
	}
	if err := q.raft().ReloadConfig(c); err != nil {
		return err
	}
	return q.raft().Snapshot().Error()
}

// trailing is the number of entries that stay, by the size of the last ones.
func trailing(entries, bytes uint64) uint64 {
	if bytes == 0 || entries == 0 {
		return maxTrailing
	}
	return max(minTrailing, min(maxTrailing, maxTrailingBytes/max(1, bytes/entries)))
}
