package quorum

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// reopen opens Raft again after a snapshot from the leader whose last entry is another one in this member's log. The library
// remembers the old log's last entry, holds it against what the leader sends after the snapshot, and is sent the snapshot again
// and again while the leader's log grows (hashicorp/raft#697). Opened again it knows the snapshot alone.
func (q *Quorum) reopen() {
	for {
		select {
		case <-q.snaps.contradicted:
		case <-q.ctx.Done():
			return
		}
		q.o.Logger.Warn("a snapshot from the leader contradicts the log: the log is begun anew behind it")
		err := q.raft().Shutdown().Error()
		if q.ctx.Err() != nil {
			return
		}
		if err == nil {
			err = q.covered(q.snaps.newest())
		}
		if err == nil {
			err = q.startRaft()
		}
		if err != nil {
			q.fail(fmt.Errorf("quorum: begin the log anew: %w", err))
			return
		}
	}
}

// covered drops a log that a snapshot from the leader has taken the place of: one that ends before it, or whose entry at the
// snapshot's end is another. A stop between the snapshot and that leaves such a log behind.
func (q *Quorum) covered(best *snapshotInfo) error {
	if best == nil {
		return nil
	}
	first, err := q.store.FirstIndex()
	if err != nil {
		return fmt.Errorf("quorum: %w", err)
	}
	last, err := q.store.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	var l raft.Log
	contradicts := best.index >= first && best.index <= last && q.store.GetLog(best.index, &l) == nil && l.Term != best.term
	if last >= best.index && !contradicts {
		return nil
	}
	return q.store.DeleteRange(first, last)
}
