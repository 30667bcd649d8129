package metadata

import (
	"errors"
	"fmt"
	"slices"
)

// LevelFeature is the feature whose level says which kinds of record may be written: those up to [Kind.Level]. It goes up when every node
// knows them, and never down.
//
//	0  kinds 1 to 13
//	1  kinds 14 to 18: shards and groups
const LevelFeature = "keeplog.metadata.version"

// MaxLevel is the highest level of [LevelFeature] that this version knows.
const MaxLevel = 1

// Level is the level of [LevelFeature] from which on records of this kind are written.
func (k Kind) Level() int16 {
	if k < KindShardAssigned {
		return 0
	}
	return 1
}

// Level is the level of [LevelFeature]; at least 1 where shards were ever assigned, as versions did that knew no levels.
func (m *Image) Level() int16 {
	if level := m.Feature(LevelFeature); level > 0 || m.shards == nil {
		return level
	}
	return KindShardAssigned.Level()
}

// ErrIncomplete says that an image lacks records that this version knows and the one that made it did not.
var ErrIncomplete = errors.New("metadata: a version that did not know some records has left them out")

// Complete returns an error that wraps ErrIncomplete where the image was made, here or where its snapshot was taken, without records that
// this version knows. What follows in the log must not be applied to it.
func (m *Image) Complete() error {
	if m.ignored == 0 {
		return nil
	}
	if len(m.ignoredKinds) == 0 {
		return fmt.Errorf("%w: %d of them", ErrIncomplete, m.ignored)
	}
	for _, k := range m.ignoredKinds {
		if _, known := decoders[k]; known {
			return fmt.Errorf("%w: among them of kind %d (%s)", ErrIncomplete, k, k)
		}
	}
	return nil
}

// ignore notes a record of a kind that this version does not know.
func (m *Image) ignore(k Kind) {
	m.ignored++
	if at, known := slices.BinarySearch(m.ignoredKinds, k); !known {
		m.ignoredKinds = slices.Insert(slices.Clone(m.ignoredKinds), at, k)
	}
}

// appendIgnored and readIgnored are for a frame of a snapshot.
func (m *Image) appendIgnored(b []byte) []byte {
	b = appendUint(b, uint64(len(m.ignoredKinds)))
	for _, k := range m.ignoredKinds {
		b = appendUint(b, uint64(k))
	}
	return b
}

func (m *Image) readIgnored(r *reader) {
	for range r.count(1) {
		m.ignoredKinds = append(m.ignoredKinds, Kind(r.uint()))
	}
	if !slices.IsSorted(m.ignoredKinds) {
		r.fail("kinds that are not in order")
	}
}
