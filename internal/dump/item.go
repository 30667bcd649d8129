package dump

import (
	"encoding/json"
	"fmt"

	"github.com/keeplog/keeplog/record"
)

// Item is one thing found. Items and what they point to are valid only during Sink.Put.
type Item interface{ kind() string }

// Sink takes items in order. An error of Put ends the dump.
type Sink interface {
	Put(Item) error
	// Close ends the output; it does not close the writer.
	Close() error
}

// Kinds of a file, as in FileStart.Type.
const (
	TypeSegment    = "segment"
	TypeIndex      = "offset index"
	TypeTimeIndex  = "time index"
	TypeTxnIndex   = "transaction index"
	TypeSnapshot   = "producer snapshot"
	TypeWindow     = "producer window"
	TypeEpochs     = "leader epochs"
	TypeTopicID    = "partition metadata"
	TypeOffsets    = "offset checkpoint"
	TypeProperties = "meta properties"
	TypeCleanStop  = "clean stop marker"
	TypeMarks      = "marks"
	TypeSpare      = "spare segment"
	TypeTorn       = "torn tail"
	TypeBad        = "saved bad bytes"
	TypeLock       = "lock"
	TypeRaftStore  = "raft store"
	TypeRaftSnap   = "raft snapshot"
	TypeKRaftSnap  = "kraft snapshot"
	TypeKRaftVotes = "kraft quorum state"
	TypeUnfinished = "unfinished file"
	TypeForeign    = "foreign file"
)

// FileStart opens the part about one file.
type FileStart struct {
	Path string `json:"path"`
	Type string `json:"type"`
	// Size is the length in bytes when the file was opened.
	Size int64 `json:"size"`
	// State is what the suffix of the name says: deleted, cleaned, swap; empty for a file in use.
	State string `json:"state,omitempty"`
}

// FileEnd closes the part about one file.
type FileEnd struct {
	Path string `json:"path"`
	Type string `json:"type"`
	Size int64  `json:"size"`
	// Entries counts batches, index entries, producers or lines.
	Entries int64 `json:"entries"`
	// Records counts the records of the batches by their headers.
	Records int64 `json:"records,omitempty"`
	// First and Last are the offsets in a segment, −1 when it is empty.
	First record.Offset `json:"first_offset"`
	Last  record.Offset `json:"last_offset"`
	// MinTime and MaxTime are the smallest base and largest max timestamp of the batches in ms, −1 for none.
	MinTime int64 `json:"min_timestamp"`
	MaxTime int64 `json:"max_timestamp"`
	Damage  int   `json:"damage"`
	Notes   int   `json:"notes"`
}

// Batch is a batch header and what became of its check.
type Batch struct {
	File     string          `json:"file"`
	Position record.Position `json:"position"`
	Size     int             `json:"size"`
	Base     record.Offset   `json:"base_offset"`
	Last     record.Offset   `json:"last_offset"`
	Count    int32           `json:"count"`
	Codec    string          `json:"codec"`
	Epoch    record.Epoch    `json:"leader_epoch"`
	TimeType string          `json:"timestamp_type"`
	BaseTime int64           `json:"base_timestamp"`
	MaxTime  int64           `json:"max_timestamp"`
	Horizon  *int64          `json:"delete_horizon,omitempty"`
	Producer
	Txn         bool    `json:"transactional"`
	Control     bool    `json:"control"`
	CRC         uint32  `json:"crc"`
	CRCComputed *uint32 `json:"crc_computed,omitempty"`
	OK          bool    `json:"ok"`
}

// Producer is who made a batch; −1 everywhere where nobody said so.
type Producer struct {
	ProducerID record.ProducerID    `json:"producer_id"`
	ProdEpoch  record.ProducerEpoch `json:"producer_epoch"`
	BaseSeq    record.Sequence      `json:"base_sequence"`
	LastSeq    record.Sequence      `json:"last_sequence"`
}

// Record is one record of a batch.
type Record struct {
	File      string          `json:"file"`
	Offset    record.Offset   `json:"offset"`
	Timestamp int64           `json:"timestamp"`
	Sequence  record.Sequence `json:"sequence"`
	Key       []byte          `json:"-"`
	Value     []byte          `json:"-"`
	Headers   record.Headers  `json:"-"`
	// Marker is set in a control batch: what the record says.
	Marker *Entry `json:"-"`
	// Decoded is set with Options.Decode: the key and value of an internal topic in words.
	Decoded *Entry `json:"-"`
	// ProducerID and ProdEpoch are those of the batch; shown with markers.
	ProducerID record.ProducerID    `json:"-"`
	ProdEpoch  record.ProducerEpoch `json:"-"`
}

// Field is a name and a value: a string, a number, a boolean, a list or an Entry.
type Field struct {
	Name  string
	Value any
}

// Entry is one entry of any other file, its fields in file order.
type Entry struct {
	File string
	// What names the entry: "index", "time", "producer", "offset", …
	What   string
	Fields []Field
}

// Severity ranks problems.
type Severity string

// The severities.
const (
	// Damage is something that is not as it was written.
	Damage Severity = "damage"
	// Unsupported is something that this version cannot read: written by a newer or a very old one.
	Unsupported Severity = "unsupported"
	// Note is something that looks odd and is normal.
	Note Severity = "note"
)

// Problem is something to know about a place in a file.
type Problem struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	// Position and End are the bytes concerned, End exclusive; both −1 when it is about the file as a whole.
	Position int64 `json:"position"`
	End      int64 `json:"end"`
	// First and Last are the offsets concerned; −1 when there are none.
	First record.Offset `json:"first_offset"`
	Last  record.Offset `json:"last_offset"`
	Text  string        `json:"text"`
	// Hint says what can be done; may be empty.
	Hint string `json:"hint,omitempty"`

	// fix is what Repair would do about it.
	fix fix
}

// Total closes the whole dump.
type Total struct {
	Files       int   `json:"files"`
	Bytes       int64 `json:"bytes"`
	Batches     int64 `json:"batches"`
	Records     int64 `json:"records"`
	Damage      int   `json:"damage"`
	Unsupported int   `json:"unsupported"`
	Notes       int   `json:"notes"`
}

func (*FileStart) kind() string { return "file" }
func (*FileEnd) kind() string   { return "file_end" }
func (*Batch) kind() string     { return "batch" }
func (*Record) kind() string    { return "record" }
func (*Entry) kind() string     { return "entry" }
func (*Problem) kind() string   { return "problem" }
func (*Total) kind() string     { return "total" }

// Get returns the value of a field, nil when there is none.
func (e *Entry) Get(name string) any {
	for i := range e.Fields {
		if e.Fields[i].Name == name {
			return e.Fields[i].Value
		}
	}
	return nil
}

// MarshalJSON writes the fields in order.
func (e *Entry) MarshalJSON() ([]byte, error) { return e.appendJSON(nil, nil) }

func (e *Entry) appendJSON(dst []byte, head []Field) ([]byte, error) {
	dst = append(dst, '{')
	first := true
	for _, fields := range [2][]Field{head, e.Fields} {
		for _, f := range fields {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			name, err := json.Marshal(f.Name)
			if err != nil {
				return dst, err
			}
			value, err := json.Marshal(f.Value)
			if err != nil {
				return dst, fmt.Errorf("field %s: %w", f.Name, err)
			}
			dst = append(append(append(dst, name...), ':'), value...)
		}
	}
	return append(dst, '}'), nil
}
