package record

import (
	"errors"
	"io"
	"math"
)

// Action says what has to be done to a batch before it may be stored.
type Action int8

const (
	// InPlace: store the bytes as they are, with base offset and leader epoch set.
	InPlace Action = iota
	// FixMaxTimestamp: set the largest timestamp and clear the LogAppendTime bit, with a new CRC ([Result.Apply]).
	FixMaxTimestamp
	// StampAppendTime: set the append time and its bit, with a new CRC ([Result.Apply]).
	StampAppendTime
	// RebuildBatch: make a new batch with [Rebuild].
	RebuildBatch
)

func (a Action) String() string {
	return [...]string{"in place", "fix max timestamp", "stamp append time", "rebuild"}[a]
}

// Any is the limit that lets everything pass, for the timestamp limits.
const Any = math.MaxInt64

// ValidateOptions are the rules of the topic and the request for a produced batch.
type ValidateOptions struct {
	Now             int64 // wall time in ms
	BeforeMaxMs     int64 // how far before Now a timestamp may lie, ms; Any for no limit
	AfterMaxMs      int64 // how far after Now, ms
	LogAppendTime   bool  // the topic has the broker's time
	Compacted       bool  // the topic is compacted: every record needs a key
	NoZstd          bool  // the request version does not know zstd
	SkipUnpack      bool  // do not unpack compressed batches: their records are taken on trust
	MaxBatchBytes   int   // largest batch, 0 for no limit
	MaxUnpackedSize int   // largest size of the records once unpacked, bytes; must be above 0 unless SkipUnpack
	Recompress      bool  // the topic has a codec of its own, Codec at Level
	Codec           Codec
	Level           int
	Codecs          *Codecs
}

// Result says what a valid batch needs.
type Result struct {
	Action         Action
	MaxTimestamp   int64 // largest timestamp, or the append time; ms, −1 for none
	OffsetDeltaMax int32 // offset delta of the first record with that timestamp; the last record under append time
}

// Apply does FixMaxTimestamp and StampAppendTime in place; b is the batch that was validated.
func (r Result) Apply(b Batch) {
	switch r.Action {
	case FixMaxTimestamp:
		b.SetMaxTimestamp(CreateTime, r.MaxTimestamp)
	case StampAppendTime:
		b.SetMaxTimestamp(LogAppendTime, r.MaxTimestamp)
	}
}

// Validate checks the records field of a produce request for one partition by Kafka's rules: exactly one intact batch
// of magic 2, base offset 0, no control record, every record well formed. It changes nothing and does not allocate for
// a valid batch, but to grow what Codecs reuses. Compressed batches go through a window of at most 256 KiB and 12 bytes
// for each of theirs, whatever they unpack to (a raw snappy block: all of it, at most 22); zstd batches that refer
// further back take turns in one window of 8 MiB. The first violation ends the work. Errors: ErrInvalidRecord,
// ErrInvalidTimestamp (both perhaps as [RecordErrors]), ErrCorrupt, ErrTooLarge, ErrUnsupportedCodec.
func Validate(buf []byte, o *ValidateOptions) (Result, error) {
	b, err := single(buf, o)
	if err != nil {
		return Result{}, err
	}
	if err := checkFrame(b, o); err != nil {
		return Result{}, err
	}
	w := walk{b: b, o: o, max: NoTimestamp, sequential: true}
	switch {
	case b.Codec() == None:
		err = w.run(b.RecordsBytes(), nil)
	case o.SkipUnpack:
		w.max, w.maxDelta = b.MaxTimestamp(), b.LastOffsetDelta()
	default:
		for s := o.Codecs.open(b.Codec(), b.RecordsBytes(), o.MaxUnpackedSize); s != nil; s = s.again() {
			w = walk{b: b, o: o, max: NoTimestamp, sequential: true}
			err = w.run(nil, s)
		}
	}
	if err != nil {
		return Result{}, err
	}
	return w.result(), nil
}

// single checks that buf holds exactly one batch of a version that is taken.
func single(buf []byte, o *ValidateOptions) (Batch, error) {
	if len(buf) <= atMagic {
		return nil, invalid("%d bytes are no batch, a request carries exactly one for each partition", len(buf))
	}
	b := Batch(buf)
	if b.Magic() < 0 || b.Magic() > Magic {
		return nil, corrupt("magic %d", b.Magic())
	}
	if b.Magic() != Magic {
		return nil, invalid("magic %d, only %d is accepted", b.Magic(), Magic)
	}
	size := int64(b.Length()) + logOverhead
	if size < HeaderSize {
		return nil, corrupt("length %d", b.Length())
	}
	if size > int64(len(buf)) {
		return nil, invalid("the batch announces %d bytes, the request has %d", size, len(buf))
	}
	if o.NoZstd && b.Codec() == Zstd {
		return nil, ErrUnsupportedCodec
	}
	if size < int64(len(buf)) {
		return nil, invalid("%d bytes follow the batch, a request carries exactly one for each partition", int64(len(buf))-size)
	}
	return b, nil
}

// checkFrame checks all that the header tells.
func checkFrame(b Batch, o *ValidateOptions) error {
	if b.BaseOffset() != 0 {
		return invalid("base offset %d, a producer sends 0", b.BaseOffset())
	}
	if o.MaxBatchBytes > 0 && len(b) > o.MaxBatchBytes {
		return sizeError(len(b), o.MaxBatchBytes)
	}
	if err := b.CheckCRC(); err != nil {
		return err
	}
	switch count := b.Count(); {
	case b.LastOffsetDelta() < 0:
		return invalid("last offset delta %d", b.LastOffsetDelta())
	case count <= 0:
		return invalid("record count %d", count)
	case int64(count) != int64(b.LastOffsetDelta())+1:
		return invalid("%d records, but offset deltas up to %d", count, b.LastOffsetDelta())
	case b.HasProducer() && b.BaseSequence() < 0:
		return invalid("sequence %d with producer id %d", b.BaseSequence(), b.ProducerID())
	case b.Control():
		return invalid("clients may not write control records")
	case !b.Codec().Known():
		return invalid("%v does not exist", b.Codec())
	}
	return nil
}

// walk is the state of going through the records once.
type walk struct {
	b          Batch
	o          *ValidateOptions
	max        int64
	maxDelta   int32
	sequential bool
	errs       *RecordErrors
}

// run checks the records that lie in records and, where s is not nil, go on in s. It stops at the first record that is
// malformed and at the first byte after the last one.
func (w *walk) run(records []byte, s *stream) error {
	base, stamped := w.b.BaseTimestamp(), w.b.TimestampType() == LogAppendTime
	count := w.b.Count()
	for i := range count {
		r, err := measure(records)
		if err == nil {
			records = records[r.size:]
		} else {
			if s != nil && (len(records) == 0 || err == errRecordLength) {
				s.have = records
				r, err = across(s)
				records = s.have
			}
			if err != nil {
				return recordError(s, i, err)
			}
		}
		if r.offsetDelta != i {
			w.sequential = false
		}
		timestamp := base + r.timestampDelta
		if timestamp > w.max {
			w.max, w.maxDelta = timestamp, i
		}
		if w.o.Compacted && r.nullKey {
			w.refuse(i, timestamp, ErrNullKey)
		} else if w.badTimestamp(timestamp, stamped) {
			w.refuse(i, timestamp, ErrInvalidTimestamp)
		}
	}
	if err := noRest(records, s, count); err != nil {
		return err
	}
	if w.errs != nil {
		return w.errs
	}
	return nil
}

// recordError is what is wrong with record i: the record itself, or what it is unpacked from.
func recordError(s *stream, i int32, err error) error {
	if s != nil && s.err != nil && !errors.Is(s.err, io.EOF) {
		return s.err
	}
	return badRecord(i, err)
}

// noRest checks that nothing follows the last record, and lets the decoder check its sums.
func noRest(records []byte, s *stream, count int32) error {
	if len(records) == 0 && s != nil {
		if err := s.more(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		records = s.have
	}
	if len(records) > 0 {
		return invalid("at least %d bytes are left after record %d, the last", len(records), count-1)
	}
	return nil
}

// badTimestamp is the rule for one record; stamped tells whether the producer set the broker's bit.
func (w *walk) badTimestamp(timestamp int64, stamped bool) bool {
	if w.o.LogAppendTime || timestamp == NoTimestamp {
		return stamped
	}
	distance := timestamp - w.o.Now
	return distance > w.o.AfterMaxMs || distance < -w.o.BeforeMaxMs
}

// Refused records are named up to maxRecordErrors, and in a compressed batch, where one costs next to nothing, up to
// fewRecordErrors and one for four bytes of the batch: what is refused must not cost more memory than what is taken.
const (
	maxRecordErrors = 1 << 16
	fewRecordErrors = 1 << 10
)

func (w *walk) refuse(index int32, timestamp int64, cause error) {
	if w.errs == nil {
		w.errs = &RecordErrors{}
	}
	if have := len(w.errs.Records); have == maxRecordErrors || have >= fewRecordErrors+len(w.b)/4 {
		return
	}
	w.errs.Records = append(w.errs.Records, RecordError{Index: index, Timestamp: timestamp, Cause: cause})
}

func (w *walk) result() Result {
	r := Result{MaxTimestamp: w.max, OffsetDeltaMax: w.maxDelta}
	if w.o.LogAppendTime {
		r.MaxTimestamp, r.OffsetDeltaMax = w.o.Now, w.b.LastOffsetDelta()
	}
	switch {
	case !w.sequential, w.o.Recompress && w.o.Codec != w.b.Codec():
		r.Action = RebuildBatch
	case w.o.LogAppendTime:
		r.Action = StampAppendTime
	case w.b.TimestampType() == LogAppendTime, r.MaxTimestamp != w.b.MaxTimestamp():
		r.Action = FixMaxTimestamp
	}
	return r
}
