package dump

import "github.com/keeplog/keeplog/record"

// fixKind is a way to mend damage.
type fixKind int8

const (
	fixNone fixKind = iota
	// fixBatch puts an empty batch for the offsets first..last in the place of the bytes pos..end.
	fixBatch
	// fixRemove takes the file away: the server makes it anew from the log.
	fixRemove
	// fixTopicID writes partition.metadata anew.
	fixTopicID
)

// fix is what Repair does about a problem.
type fix struct {
	what        fixKind
	pos, end    int64
	first, last record.Offset
	epoch       record.Epoch
	id          [16]byte
}
