package log

import "github.com/keeplog/keeplog/record"

// Follow says that another broker leads under e: batches that this one would add as the leader of an older epoch are refused
// from here on, and an epoch of its own that has no batch is forgotten. An error is that of Err.
func (l *Log) Follow(e record.Epoch) error {
	l.lockWriter()
	defer l.mu.Unlock()
	l.w.leading.Epoch = record.NoEpoch
	l.w.fence = max(l.w.fence, e)
	return l.Err()
}
