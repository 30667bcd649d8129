package torture

import "time"

// The kinds of violation of groups.
const (
	// CommitLost: an acknowledged commit of an offset is not there, nor a later one.
	CommitLost Kind = "commit lost"
	// CommitWentBack: a committed offset below one that was told earlier, without being acknowledged.
	CommitWentBack Kind = "commit went back"
	// TwoOwners: two members had a partition in the same generation, or one was given it while another had it and was in touch with the
	// coordinator.
	TwoOwners Kind = "two owners"
	// Missed: a group committed an offset behind a record that no member of it was given.
	Missed Kind = "missed"
)

// groupKinds are those that are told whenever groups were at work.
func groupKinds() []Kind { return []Kind{CommitLost, CommitWentBack, TwoOwners, Missed} }

// Share is a partition as a group reads it.
type Share struct {
	Group string
	Partition
}

// Commit is an offset that a member commits.
type Commit struct {
	Member string
	// Generation is that of the classic protocol, or the member's epoch.
	Generation int32
	Offset     int64
}

// CommitFloor is what a question for a committed offset must be answered with at least, if it is sent after this was taken.
type CommitFloor struct{ acked, shown int64 }

// shareHistory is what is known of a share. Guarded by Checker.mu.
type shareHistory struct {
	// acked is the last acknowledged commit, of the highest generation in which one was; its offset is −1 at first.
	acked Commit
	// shown is the highest committed offset that was told, −1 at first.
	shown int64
	// unsure are commits without an answer. The broker may carry one out late, behind a later one of the same member; behind one of another
	// member it must not.
	unsure map[int64]string
	owners map[int32]string
	// holders are those who have it now, with the time at which the last question was sent that was answered so.
	holders map[string]time.Duration
	given   []uint64 // a bit for each offset that a member was given
	// resumed is the highest offset at which a member began.
	resumed int64
}

func (c *Checker) share(s Share) *shareHistory {
	h := c.shares[s]
	if h == nil {
		h = &shareHistory{acked: Commit{Offset: -1}, shown: -1, unsure: map[int64]string{}, owners: map[int32]string{}, holders: map[string]time.Duration{}}
		c.shares[s] = h
	}
	return h
}

// Committed says that a commit was acknowledged.
func (c *Checker) Committed(s Share, got Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commits++
	h := c.share(s)
	switch {
	case got.Generation > h.acked.Generation || h.acked.Offset < 0:
		h.acked = got
	case got.Generation == h.acked.Generation && got.Offset > h.acked.Offset:
		h.acked = got
	}
}

// Unsure says that a commit was sent and nothing is known of what became of it. It is told before the member sends another one.
func (c *Checker) Unsure(s Share, sent Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.share(s).unsure[sent.Offset] = sent.Member
}

// CommitFloor is what an answer must reach whose question is sent after this call returns.
func (c *Checker) CommitFloor(s Share) CommitFloor {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.share(s)
	return CommitFloor{h.acked.Offset, h.shown}
}

// CommitShown says that a question sent when the floor was floor was answered with the committed offset, −1 for none.
func (c *Checker) CommitShown(s Share, floor CommitFloor, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.share(s)
	if offset >= floor.acked && offset >= floor.shown {
		h.shown = max(h.shown, offset)
		return
	}
	if by, ok := h.unsure[offset]; ok && by == h.acked.Member {
		h.acked.Offset, h.shown = offset, offset
		return
	}
	if offset < floor.acked {
		c.violated(CommitLost, "group %s, %s: the committed offset is %d after %d was acknowledged", s.Group, s.Partition, offset, floor.acked)
	} else {
		c.violated(CommitWentBack, "group %s, %s: the committed offset is %d after %d was told", s.Group, s.Partition, offset, floor.shown)
	}
	h.acked.Offset, h.shown = offset, offset // told once
}

// Owns says that a member was given the partition in a generation.
func (c *Checker) Owns(s Share, member string, generation int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.share(s)
	if other, ok := h.owners[generation]; ok && other != member {
		c.violated(TwoOwners, "group %s, %s: in generation %d both %s and %s", s.Group, s.Partition, generation, other, member)
		return
	}
	h.owners[generation] = member
}

// Hold says that a member has a partition: the question was sent at Sent, and the answer came at Now, counted from some moment of the run.
type Hold struct {
	Member    string
	Sent, Now time.Duration
}

// holdTime is how long, from its last question on, a member is sure of what it has: its coordinator puts nobody out before the rebalance
// timeout and the session are over.
const holdTime = min(memberSession, memberRebalance) - time.Second

// Holds says that a member has the partition until it is told to be released.
func (c *Checker) Holds(s Share, got Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.share(s)
	for other, sent := range h.holders {
		if other != got.Member && got.Now-sent < holdTime {
			c.violated(TwoOwners, "group %s, %s: given to %s while %s has it, which was in touch %s ago", s.Group, s.Partition, got.Member, other, (got.Now - sent).Round(time.Millisecond))
			delete(h.holders, other)
		}
	}
	h.holders[got.Member] = max(got.Sent, h.holders[got.Member])
}

// Released says that a member no longer has the partition. It is told before anybody else can be.
func (c *Checker) Released(s Share, member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.share(s).holders, member)
}

// Given says that a member was given the record at an offset, and has done with it what it does before it commits.
func (c *Checker) Given(s Share, offset int64) {
	if offset < 0 || offset >= maxOffset {
		return // told as strange by who reads
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.share(s)
	if n := int(offset/64) + 1; n > len(h.given) {
		h.given = append(h.given, make([]uint64, n-len(h.given))...)
	}
	h.given[offset/64] |= 1 << (offset % 64)
}

// Resumed says that a member began to read at a committed offset.
func (c *Checker) Resumed(s Share, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.share(s)
	h.resumed = max(h.resumed, offset)
}

// judgeGroups looks for records that groups left out.
func (c *Checker) judgeGroups() {
	for s, h := range c.shares {
		records := c.parts[s.Partition]
		if records == nil {
			continue
		}
		end := max(h.resumed, h.acked.Offset, h.shown)
		for offset := range min(end, int64(len(records.given))) {
			at := int(offset / 64)
			if records.given[offset] != 0 && (at >= len(h.given) || h.given[at]&(1<<(offset%64)) == 0) {
				c.violated(Missed, "group %s, %s: no member was given offset %d, and %d is committed", s.Group, s.Partition, offset, end)
			}
		}
	}
}

// sound are the ends of the partitions of which no batch was damaged on purpose: everything below them can be read.
func (c *Checker) sound() map[Partition]int64 {
	ends := c.Ends()
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range ends {
		if len(c.parts[p].rotten) > 0 {
			delete(ends, p)
		}
	}
	return ends
}
