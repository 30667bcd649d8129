package record

import (
	"encoding/binary"
	"fmt"
)

// ControlType is the kind of a control record.
type ControlType int16

// The kinds that exist; those from LeaderChange on occur only in Kafka's metadata log.
const (
	ControlAbort          ControlType = 0
	ControlCommit         ControlType = 1
	ControlLeaderChange   ControlType = 2
	ControlSnapshotHeader ControlType = 3
	ControlSnapshotFooter ControlType = 4
	ControlKRaftVersion   ControlType = 5
	ControlKRaftVoters    ControlType = 6
)

var controlNames = [...]string{"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"}

func (t ControlType) String() string {
	if t >= 0 && int(t) < len(controlNames) {
		return controlNames[t]
	}
	return fmt.Sprintf("UNKNOWN(%d)", int16(t))
}

// Control is a parsed control record.
//
//	key   │ i16 version │ i16 type │
//	value │ i16 version │ i32 coordinator epoch │     of an end-of-transaction marker
type Control struct {
	KeyVersion       int16
	Type             ControlType
	ValueVersion     int16
	CoordinatorEpoch int32 // of ABORT and COMMIT
}

// ParseControl reads a record of a control batch. Types that it does not know are no error: they are to be skipped.
// Errors: ErrInvalidRecord.
func ParseControl(r *Record) (Control, error) {
	if len(r.Key) < 4 {
		return Control{}, invalid("control key of %d bytes", len(r.Key))
	}
	c := Control{
		KeyVersion: int16(binary.BigEndian.Uint16(r.Key)),
		Type:       ControlType(binary.BigEndian.Uint16(r.Key[2:])),
	}
	if c.KeyVersion < 0 {
		return Control{}, invalid("control key of version %d", c.KeyVersion)
	}
	if len(r.Value) >= 2 {
		c.ValueVersion = int16(binary.BigEndian.Uint16(r.Value))
	}
	if c.Type == ControlAbort || c.Type == ControlCommit {
		if len(r.Value) < 6 {
			return Control{}, invalid("%v value of %d bytes", c.Type, len(r.Value))
		}
		c.CoordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
	}
	return c, nil
}

// Marker is an end of a transaction, to be written into each of its partitions.
type Marker struct {
	Commit           bool
	ProducerID       ProducerID
	ProducerEpoch    ProducerEpoch
	CoordinatorEpoch int32
	Timestamp        int64 // ms
}

// Batch makes the control batch of the marker, with base offset 0.
func (m Marker) Batch() Batch {
	o := NewOptions()
	o.Transactional, o.Control = true, true
	o.ProducerID, o.ProducerEpoch = m.ProducerID, m.ProducerEpoch
	kind := ControlAbort
	if m.Commit {
		kind = ControlCommit
	}
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(kind))
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(m.CoordinatorEpoch))
	builder := NewBuilder(o)
	builder.Append(m.Timestamp, key, value)
	made := Batch(builder.buf)
	builder.header(made)
	return made
}
