package torture

import (
	"bytes"
	"fmt"
	"strconv"
)

// Partition is a partition of a topic.
type Partition struct {
	Topic  string
	Number int32
}

func (p Partition) String() string { return p.Topic + "-" + strconv.Itoa(int(p.Number)) }

// ID names a record within its partition: the producer in the upper 16 bits, in the lower 48 its sequence, which begins at 1 and
// grows by 1 with each record that the producer writes to that partition. 0 is no record.
type ID uint64

const (
	sequenceBits = 48
	maxProducer  = 1<<16 - 1
	maxSequence  = 1<<sequenceBits - 1
)

// NewID makes the ID of a record; producer is 0 to 65535, sequence 1 to 2⁴⁸−1.
func NewID(producer int, sequence int64) ID {
	return ID(uint64(producer)<<sequenceBits | uint64(sequence))
}

// Producer is who wrote the record.
func (id ID) Producer() int { return int(id >> sequenceBits) }

// Sequence is its number among the producer's records of the partition.
func (id ID) Sequence() int64 { return int64(id & maxSequence) }

func (id ID) String() string {
	return fmt.Sprintf("record %d of producer %d", id.Sequence(), id.Producer())
}

// appendValue writes the value of a record, with the filler behind it.
func appendValue(dst []byte, id ID, partition int32, filler []byte) []byte {
	dst = append(dst, 't')
	dst = strconv.AppendInt(dst, int64(id.Producer()), 10)
	dst = append(dst, '-')
	dst = strconv.AppendInt(dst, int64(partition), 10)
	dst = append(dst, '-')
	dst = strconv.AppendInt(dst, id.Sequence(), 10)
	return append(append(dst, ' '), filler...)
}

// parseValue reads what appendValue wrote; ok is false for any other bytes.
func parseValue(v []byte) (id ID, partition int32, ok bool) {
	head, _, found := bytes.Cut(v, []byte{' '})
	if !found || len(head) == 0 || head[0] != 't' {
		return 0, 0, false
	}
	parts := bytes.Split(head[1:], []byte{'-'})
	if len(parts) != 3 {
		return 0, 0, false
	}
	var n [3]int64
	for i, most := range [3]int64{maxProducer, 1<<31 - 1, maxSequence} {
		v, err := strconv.ParseInt(string(parts[i]), 10, 64)
		if err != nil || v < 0 || v > most {
			return 0, 0, false
		}
		n[i] = v
	}
	return NewID(int(n[0]), n[2]), int32(n[1]), n[2] > 0
}
