package log

import (
	"slices"

	"github.com/keeplog/keeplog/record"
)

// epochs is the leader epochs of a log: pure, guarded by Log.mu. In a log without records the newest epoch stays, at the log
// start: without it a replica whose records have all expired could not tell that another's history is not its own.
type epochs struct {
	entries []EpochEntry // epochs and starts grow
	changed bool         // differs from the checkpoint on disk
	// first says that before is the epoch of the record below the first entry, which is deleted.
	first  bool
	before record.Epoch
}

// remain is the epochs of a log without records, which ends at end.
func (e *epochs) remain(epoch record.Epoch, end record.Offset) {
	e.entries, e.first, e.before = []EpochEntry{{epoch, end}}, true, epoch
}

// latest is the newest epoch, −1 for none.
func (e *epochs) latest() record.Epoch {
	if len(e.entries) == 0 {
		return record.NoEpoch
	}
	return e.entries[len(e.entries)-1].Epoch
}

// assign says that epoch begins at start. Entries it contradicts go: those with a later start, or with a later or equal
// epoch.
func (e *epochs) assign(epoch record.Epoch, start record.Offset) {
	if epoch < 0 {
		return
	}
	n := len(e.entries)
	if n > 0 && e.entries[n-1].Epoch == epoch && e.entries[n-1].Start <= start {
		return
	}
	for n > 0 && (e.entries[n-1].Start >= start || e.entries[n-1].Epoch > epoch) {
		n--
	}
	if n > 0 && e.entries[n-1].Epoch == epoch { // it began before
		e.changed = e.changed || n < len(e.entries)
		e.entries = e.entries[:n]
		return
	}
	e.entries = append(e.entries[:n], EpochEntry{epoch, start})
	e.changed = true
}

// truncateEnd drops the epochs that begin at or after end. Where that is all of them the one of the last deleted record stays.
func (e *epochs) truncateEnd(end record.Offset) {
	n := countBelow(e.entries, end)
	e.changed = e.changed || n < len(e.entries)
	if e.entries = e.entries[:n]; n == 0 && e.first {
		e.remain(e.before, end)
	}
}

// truncateStart drops the epochs that end at or before start; the one that holds start then begins there.
func (e *epochs) truncateStart(start record.Offset) {
	if before := e.at(start - 1); before >= 0 {
		e.first, e.before = true, before
	}
	drop := 0
	for drop+1 < len(e.entries) && e.entries[drop+1].Start <= start {
		drop++
	}
	if drop > 0 {
		e.entries, e.changed = slices.Delete(e.entries, 0, drop), true
	}
	if len(e.entries) > 0 && e.entries[0].Start < start {
		e.entries[0].Start, e.changed = start, true
	}
}

// countBelow counts the entries that begin before end.
func countBelow(entries []EpochEntry, end record.Offset) int {
	n := len(entries)
	for n > 0 && entries[n-1].Start >= end {
		n--
	}
	return n
}

// at is the epoch of an offset, −1 when unknown.
func (e *epochs) at(o record.Offset) record.Epoch {
	for i := len(e.entries) - 1; i >= 0; i-- {
		if e.entries[i].Start <= o {
			return e.entries[i].Epoch
		}
	}
	return record.NoEpoch
}

// endOf answers for the largest known epoch that is at most asked: it and where it ends. (−1, −1) where asked is above all
// or nothing is known; the asked epoch and the first known start where it is below all.
func (e *epochs) endOf(asked record.Epoch, end record.Offset) (record.Epoch, record.Offset) {
	n := len(e.entries)
	switch {
	case n == 0 || asked < 0 || asked > e.entries[n-1].Epoch:
		return record.NoEpoch, -1
	case asked == e.entries[n-1].Epoch:
		return asked, end
	case asked < e.entries[0].Epoch:
		return asked, e.entries[0].Start
	}
	for i := n - 2; ; i-- {
		if e.entries[i].Epoch <= asked {
			return e.entries[i].Epoch, e.entries[i+1].Start
		}
	}
}
