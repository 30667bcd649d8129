package api

import (
	"encoding/binary"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/record"
)

// TagLost is a tagged field of ours (KIP-482) in each partition of a DescribeLogDirs answer, version 2 and up: which offsets the disk of this
// replica has lost. It is there only where some were. Clients that do not know it skip it.
//
//	│ i64 from │ i64 to, exclusive │ i64 count │
const TagLost uint32 = 10_001

// AppendLost appends the value of TagLost.
func AppendLost(b []byte, o log.Lost) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(o.From))
	b = binary.BigEndian.AppendUint64(b, uint64(o.To))
	return binary.BigEndian.AppendUint64(b, uint64(o.Count))
}

// ParseLost reads the value of TagLost; ok is false for what is none. Bytes behind it are of a later version, and skipped.
func ParseLost(b []byte) (o log.Lost, ok bool) {
	if len(b) < 24 {
		return o, false
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
	o = log.Lost{From: record.Offset(at(0)), To: record.Offset(at(8)), Count: at(16)}
	return o, o.From >= 0 && o.From < o.To && o.Count > 0 && o.Count <= int64(o.To-o.From)
}
