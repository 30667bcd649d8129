package record

import "math"

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
// a valid uncompressed batch. Errors: ErrInvalidRecord, ErrInvalidTimestamp (both perhaps as [RecordErrors]),
// ErrCorrupt, ErrTooLarge, ErrUnsupportedCodec.
func Validate(buf []byte, o *ValidateOptions) (Result, error) {
	b, err := single(buf, o)
	if err != nil {
		return Result{}, err
	}
	if err := checkFrame(b, o); err != nil {
		return Result{}, err
	}
	w := walk{b: b, o: o, max: NoTimestamp, sequential: true}
	codec := b.Codec()
	switch {
	case codec == None:
		err = w.run(b.RecordsBytes())
	case o.SkipUnpack:
		w.max, w.maxDelta = b.MaxTimestamp(), b.LastOffsetDelta()
	default:
		scratch := o.Codecs.buffer()
		defer o.Codecs.release(scratch)
		var records []byte
		if records, err = o.Codecs.Unpack(b, *scratch, o.MaxUnpackedSize); err == nil {
			*scratch = records
			err = w.run(records)
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

func (w *walk) run(records []byte) error {
	base, stamped := w.b.BaseTimestamp(), w.b.TimestampType() == LogAppendTime
	count := w.b.Count()
	for i := range count {
		r, err := measure(records)
		if err != nil {
			return badRecord(i, err)
		}
		records = records[r.size:]
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
	if len(records) > 0 {
		return invalid("%d bytes are left after record %d, the last", len(records), count-1)
	}
	if w.errs != nil {
		return w.errs
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

// maxRecordErrors is how many refused records of a batch are named; it bounds what a small compressed batch can cost.
const maxRecordErrors = 1 << 16

func (w *walk) refuse(index int32, timestamp int64, cause error) {
	if w.errs == nil {
		w.errs = &RecordErrors{}
	}
	if len(w.errs.Records) == maxRecordErrors {
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

// Rebuild makes the batch anew in memory of its own, as Validate asked: offset deltas 0 to n−1, the topic's codec where
// it has one, timestamps as the topic has them, the producer's fields kept. b must have passed Validate with the same
// options. Errors: ErrTooLarge where the new batch is above the limit, else as Validate.
func Rebuild(b Batch, o *ValidateOptions) (Batch, error) {
	scratch := o.Codecs.buffer()
	defer o.Codecs.release(scratch)
	records, err := o.Codecs.Unpack(b, *scratch, o.MaxUnpackedSize)
	if err != nil {
		return nil, err
	}
	if b.Codec() != None {
		*scratch = records
	}
	options := BuilderOptions{
		LeaderEpoch: b.PartitionLeaderEpoch(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), Transactional: b.Transactional(),
		Codec: b.Codec(), Level: DefaultLevel(b.Codec()), SizeHint: len(records),
	}
	if o.Recompress {
		options.Codec, options.Level = o.Codec, o.Level
	}
	if o.LogAppendTime {
		options.TimestampType, options.AppendTime = LogAppendTime, o.Now
	}
	builder := NewBuilder(options)
	base := b.BaseTimestamp()
	var r Record
	for i := range b.Count() {
		n, err := r.parse(records)
		if err != nil {
			return nil, badRecord(i, err)
		}
		records = records[n:]
		builder.add(i, base+r.TimestampDelta, &r)
	}
	made, err := builder.Batch(o.Codecs)
	if err != nil {
		return nil, err
	}
	if o.MaxBatchBytes > 0 && len(made) > o.MaxBatchBytes {
		return nil, sizeError(len(made), o.MaxBatchBytes)
	}
	return made, nil
}
