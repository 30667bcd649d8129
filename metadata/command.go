package metadata

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// Lane is one of the queues of a proposer. Each has one command in flight.
type Lane uint8

// The lanes.
const (
	LaneMetadata Lane = 0
	LaneOffsets  Lane = 1
)

// Session says who proposes. With Epoch -1 (a broker that is not yet registered) nothing is remembered, and the records must
// be safe to repeat.
type Session struct {
	Broker BrokerID
	// Epoch is the broker's epoch; a command of an older one is refused.
	Epoch int64
	Lane  Lane
	// Sequence goes up by one with each command of the lane; the same one again is the same command again.
	Sequence uint64
}

// NoEpoch is the Epoch of a session that is not remembered.
const NoEpoch int64 = -1

// Group is the records of one caller. The records of a group stand or fall one by one, in order.
type Group struct {
	// Term is the Raft term in which the records were planned: in another term they are all refused, because the image may
	// have moved since. 0 is any.
	Term    uint64
	Records []Record
}

// Command is what one log entry carries.
type Command struct {
	Session Session
	Groups  []Group
}

const (
	commandMagic   = 'K'
	commandVersion = 1
	commandHead    = 6
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendCommand appends the bytes of a command:
//
//	┌───────┬─────────┬────────────────┬──────────────────────────────────────────────────────┐
//	│ 'K'   │ version │ CRC-32C        │ body                                                 │
//	│ 1     │ 1       │ 4, big-endian  │ broker epoch lane sequence │ groups: term, records…   │
//	└───────┴─────────┴────────────────┴──────────────────────────────────────────────────────┘
//	                    over version and body
//	record:  ┌──────┬────────┬─────────┬────────┐
//	         │ kind │ length │ version │ fields │   kind and length are unsigned varints;
//	         └──────┴────────┴─────────┴────────┘   length counts version and fields
func AppendCommand(w []byte, c *Command) []byte {
	groups := make([][]byte, len(c.Groups))
	for i := range c.Groups {
		groups[i] = AppendGroup(nil, &c.Groups[i])
	}
	return AppendEncoded(w, c.Session, groups)
}

// AppendEncoded appends the bytes of a command whose groups AppendGroup has written.
func AppendEncoded(w []byte, s Session, groups [][]byte) []byte {
	start := len(w)
	w = append(w, commandMagic, commandVersion, 0, 0, 0, 0)
	w = appendInt(w, int64(s.Broker))
	w = appendInt(w, s.Epoch)
	w = append(w, byte(s.Lane))
	w = appendUint(w, s.Sequence)
	w = appendUint(w, uint64(len(groups)))
	for _, g := range groups {
		w = append(w, g...)
	}
	binary.BigEndian.PutUint32(w[start+2:], commandCRC(w[start:]))
	return w
}

// AppendGroup appends the bytes of one group, as they stand in a command.
func AppendGroup(w []byte, g *Group) []byte {
	w = appendUint(w, g.Term)
	w = appendUint(w, uint64(len(g.Records)))
	for _, rec := range g.Records {
		at := len(w)
		w = rec.appendBody(w)
		var head [2 * binary.MaxVarintLen64]byte
		h := appendUint(appendUint(head[:0], uint64(rec.Kind())), uint64(len(w)-at))
		w = slices.Insert(w, at, h...)
	}
	return w
}

// commandCRC covers the version and the body.
func commandCRC(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[1:2], castagnoli), castagnoli, b[commandHead:])
}

// DecodeCommand reads a command. Errors wrap ErrCorrupt or ErrNewerVersion. Records of unknown kinds come as [Unknown]. The
// command keeps nothing of b.
func DecodeCommand(b []byte) (*Command, error) {
	if len(b) < commandHead || b[0] != commandMagic {
		return nil, fmt.Errorf("%w: no command head in %d bytes", ErrCorrupt, len(b))
	}
	if want, got := binary.BigEndian.Uint32(b[2:]), commandCRC(b); want != got {
		return nil, fmt.Errorf("%w: CRC of a command is %08x, its bytes make %08x", ErrCorrupt, want, got)
	}
	if b[1] > commandVersion {
		return nil, fmt.Errorf("%w: command version %d, this program knows %d", ErrNewerVersion, b[1], commandVersion)
	}
	r := &reader{b: b[commandHead:]}
	c := &Command{Session: Session{Broker: r.int32(), Epoch: r.int(), Lane: Lane(r.byte()), Sequence: r.uint()}}
	c.Groups = make([]Group, r.count(2))
	for i := range c.Groups {
		g := &c.Groups[i]
		g.Term = r.uint()
		g.Records = make([]Record, r.count(2))
		for j := range g.Records {
			rec, err := decodeRecord(r)
			if err != nil {
				return nil, fmt.Errorf("group %d, record %d: %w", i, j, err)
			}
			g.Records[j] = rec
		}
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return c, nil
}

type laneKey struct {
	broker BrokerID
	lane   Lane
}

func compareLanes(a, b laneKey) int {
	return cmp.Or(cmp.Compare(a.broker, b.broker), cmp.Compare(a.lane, b.lane))
}

// laneState is the last command of a lane and its answer.
type laneState struct {
	epoch    int64
	sequence uint64
	index    uint64
	// results are those of the command, as appendResults writes them.
	results []byte
}

// Result is what became of one record.
type Result struct {
	Refusal Refusal
	// Value is what the record's documentation says, else 0.
	Value int64
}

// appendResults writes the number of records of each group and, of those, the results that are not zero.
func appendResults(w []byte, groups [][]Result) []byte {
	w = appendUint(w, uint64(len(groups)))
	for _, g := range groups {
		w = appendUint(w, uint64(len(g)))
	}
	for n, g := range groups {
		for i, r := range g {
			if r != (Result{}) {
				w = appendUint(w, uint64(n))
				w = appendUint(w, uint64(i))
				w = append(w, byte(r.Refusal))
				w = appendInt(w, r.Value)
			}
		}
	}
	return w
}

// maxResults bounds the records of one command: an entry has at most 1 MiB, a record at least 3 bytes.
const maxResults = 1 << 19

func readResults(b []byte) ([][]Result, error) {
	r := &reader{b: b}
	groups := make([][]Result, r.count(1))
	left := uint64(maxResults)
	for n := range groups {
		size := r.uint()
		if size > left {
			r.fail("%d results, at most %d", size, left)
			break
		}
		left -= size
		groups[n] = make([]Result, size)
	}
	for r.err == nil && len(r.b) > 0 {
		n, i := r.uint(), r.uint()
		if r.err != nil || n >= uint64(len(groups)) || i >= uint64(len(groups[n])) {
			r.fail("result %d of group %d", i, n)
			break
		}
		groups[n][i] = Result{Refusal: Refusal(r.byte()), Value: r.int()}
	}
	return groups, r.err
}

// RecordSize is the number of bytes that a record takes in a command.
func RecordSize(rec Record) int {
	n := len(rec.appendBody(nil))
	return n + len(appendUint(appendUint(nil, uint64(rec.Kind())), uint64(n)))
}

// AppendOutcome appends the bytes of an outcome's index and results, for who proposed on another node.
func AppendOutcome(w []byte, o *Outcome) []byte {
	return appendResults(appendBool(appendUint(w, o.Index), o.Duplicate), o.Results)
}

// DecodeOutcome reads what AppendOutcome wrote. The error wraps ErrCorrupt.
func DecodeOutcome(b []byte) (Outcome, error) {
	r := &reader{b: b}
	o := Outcome{Index: r.uint(), Duplicate: r.bool()}
	if r.err != nil {
		return Outcome{}, r.err
	}
	var err error
	o.Results, err = readResults(r.b)
	return o, err
}
