package quorum

import (
	"fmt"
	"os"
	"path"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/keeplog/keeplog/vfs"
)

const (
	canaryName = "keeplog-canary"
	// hang is how long the disk may take for one call.
	hang = 5 * time.Second
)

// watchdog looks for a disk that hangs: one call of the store, or one small write and flush each second, that takes longer
// than 5 s. Where other voters can take over the node ends then, because a leader whose disk hangs still sends heartbeats
// and would be leader for ever. A single voter only says so: nobody could take over.
func (q *Quorum) watchdog() {
	var canary atomic.Int64
	if q.peers != nil {
		q.work.Go(func() { q.sing(&canary) })
	}
	t := time.NewTicker(time.Second)
	defer t.Stop()
	start, said := time.Now(), false
	ran := newRunning(start)
	for {
		select {
		case <-t.C:
		case <-q.ctx.Done():
			return
		}
		longest := q.store.busy()
		if at := canary.Load(); at != 0 {
			longest = max(longest, time.Since(start)-time.Duration(at))
		}
		longest = ran.bound(time.Now(), longest)
		switch {
		case longest < hang:
			said = false
		case q.replaceable():
			q.fail(fmt.Errorf("quorum: the disk of %s has not answered for %v", q.o.Dir, longest.Round(time.Second)))
			return
		case !said:
			said = true
			q.o.Logger.Error("the disk of the metadata log hangs", "dir", q.o.Dir, "for", longest.Round(time.Second))
		}
	}
}

// running tells a disk that hangs from a process that was stopped: the calls of one that did not run took their time too.
type running struct{ last, woke time.Time }

func newRunning(now time.Time) running { return running{now, now} }

// bound is called each second. It bounds how long a call counts to the time since the process last woke from a stop.
func (r *running) bound(now time.Time, longest time.Duration) time.Duration {
	if now.Sub(r.last) > 2*time.Second {
		r.woke = now
	}
	r.last = now
	return min(longest, now.Sub(r.woke))
}

// replaceable says that others can take over.
func (q *Quorum) replaceable() bool {
	n := 0
	for _, s := range q.servers() {
		if s.Suffrage == raft.Voter {
			n++
		}
	}
	return n > 1
}

// sing writes and flushes a byte each second. started is when the one under way began, 0 between them.
func (q *Quorum) sing(started *atomic.Int64) {
	f, err := q.o.FS.OpenFile(path.Join(q.o.Dir, canaryName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		q.fail(fmt.Errorf("quorum: watch the disk: %w", err))
		return
	}
	defer f.Close()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	begin := time.Now()
	for n := byte(0); ; n++ {
		select {
		case <-t.C:
		case <-q.ctx.Done():
			return
		}
		started.Store(int64(time.Since(begin)) + 1)
		err := writeByte(f, n)
		started.Store(0)
		if err != nil {
			q.fail(fmt.Errorf("quorum: watch the disk: %w", err))
			return
		}
	}
}

func writeByte(f vfs.File, b byte) error {
	if _, err := f.WriteAt([]byte{b}, 0); err != nil {
		return err
	}
	return f.SyncData()
}
