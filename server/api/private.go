package api

import (
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/lag"
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

// TagLag is a tagged field of ours in ListOffsets, version 6 and up. In a request, which may have no topics, it asks how far groups are behind
// in the partitions that this broker leads, and in the answer it says so; package lag has the format of both. A broker that does not know it, or is
// asked what is no question, answers without it.
const TagLag uint32 = 10_002

// TagAwaited is a tagged field of ours in a member of a DescribeGroups answer, version 5 and up: one byte, 1. It is there when a rebalance waits
// for this member, to join again or, for the leader, to make the assignment.
const TagAwaited uint32 = 10_003

// Lag says how far groups are behind; *lag.Sampler is one.
type Lag interface {
	Ask(q *lag.Query, now time.Time) *lag.Answer
}

// lagRoom is what the answer about lag may take, in bytes.
const lagRoom = 48 << 20

// addLag adds what is asked about lag. It may read logs, and waits for room where the call has none yet.
func (a *API) addLag(c *Call, req *kmsg.ListOffsetsRequest, resp *kmsg.ListOffsetsResponse) error {
	var q *lag.Query
	req.UnknownTags.Each(func(key uint32, value []byte) {
		if key == TagLag {
			q, _ = lag.ParseQuery(value)
		}
	})
	if q == nil || a.o.Lag == nil {
		return nil
	}
	if room := min(lagRoom, a.capacity); c.weight == 0 && (len(q.Groups) == 0 || len(q.Groups) > 100) {
		if err := a.room.Acquire(c.Ctx, room); err != nil {
			return err
		}
		c.weight = room
	}
	resp.UnknownTags.Set(TagLag, lag.AppendAnswer(nil, a.o.Lag.Ask(q, a.o.Now())))
	return nil
}
