package record

// Rebuild makes the batch anew in memory of its own, as Validate asked: offset deltas 0 to n−1, the topic's codec where
// it has one, timestamps as the topic has them, the producer's fields kept. b must have passed Validate with the same
// options. Records go from the one codec into the other piece by piece, and no further once the new batch is above the
// limit. Errors: ErrTooLarge then, else as Validate.
func Rebuild(b Batch, o *ValidateOptions) (Batch, error) {
	r := rebuild{b: b, o: o, codec: b.Codec(), level: DefaultLevel(b.Codec())}
	if o.Recompress {
		r.codec, r.level = o.Codec, o.Level
	}
	defer r.to.stop()
	var err error
	if b.Codec() == None {
		err = r.run(b.RecordsBytes(), nil)
	} else {
		for s := o.Codecs.open(b.Codec(), b.RecordsBytes(), o.MaxUnpackedSize); s != nil; s = s.again() {
			err = r.run(nil, s)
		}
	}
	if err != nil {
		return nil, err
	}
	return r.made, nil
}

// rebuild is the state of making one batch.
type rebuild struct {
	b     Batch
	o     *ValidateOptions
	codec Codec
	level int
	to    packer
	first int64 // timestamp delta of the first record
	max   int64 // largest timestamp
	made  Batch
}

// run reads as walk.run does.
func (r *rebuild) run(records []byte, s *stream) error {
	limit := r.o.MaxBatchBytes
	if limit <= 0 {
		limit = MaxBatchSize
	}
	r.to.stop()
	r.to = packer{
		codecs: r.o.Codecs, codec: r.codec, level: r.level,
		out: appender{b: make([]byte, HeaderSize, HeaderSize+len(r.b)), most: limit},
	}
	r.to.start()
	r.max = NoTimestamp
	count := r.b.Count()
	for i := range count {
		m, err := measure(records)
		if err == nil {
			body := records[bodyAt(records):m.size]
			r.begin(i, m.timestampDelta, uint64(len(body)))
			r.to.write(body)
			records = records[m.size:]
		} else if s != nil && (len(records) == 0 || err == errRecordLength) {
			s.have = records
			err = r.across(s, i)
			records = s.have
		}
		if r.to.err != nil {
			return r.to.err
		}
		if err != nil {
			return recordError(s, i, err)
		}
	}
	if err := noRest(records, s, count); err != nil {
		return err
	}
	return r.seal(count)
}

// across moves the record at the front of s where it is not whole in the window.
func (r *rebuild) across(s *stream, i int32) error {
	b := s.atBorder(nil)
	sh := b.head()
	if b.err != nil {
		return b.err
	}
	r.begin(i, sh.timestampDelta, b.left)
	b.to = &r.to
	b.body()
	return b.err
}

// begin writes what comes before the key of record i, whose rest has size bytes.
func (r *rebuild) begin(i int32, timestampDelta int64, size uint64) {
	if i == 0 {
		r.first = timestampDelta
	}
	r.max = max(r.max, r.b.BaseTimestamp()+timestampDelta)
	delta := timestampDelta - r.first
	size += uint64(1 + sizeVarlong(delta) + sizeVarint(i))
	if size > MaxBatchSize {
		r.to.fail(sizeError(int(size), MaxBatchSize))
		return
	}
	var made [32]byte
	head := appendVarint(made[:0], int32(size))
	head = append(head, 0)
	head = appendVarlong(head, delta)
	r.to.write(appendVarint(head, i))
}

// bodyAt is where the key's length lies in a record that is well formed.
func bodyAt(b []byte) int {
	at := 0
	number := func() {
		for b[at] >= 0x80 {
			at++
		}
		at++
	}
	number()
	at++
	number()
	number()
	return at
}

// seal ends the new batch and writes its header.
func (r *rebuild) seal(count int32) error {
	out, err := r.to.finish()
	if err != nil {
		return err
	}
	b := r.b
	builder := Builder{
		o: BuilderOptions{
			LeaderEpoch: b.PartitionLeaderEpoch(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
			BaseSequence: b.BaseSequence(), Transactional: b.Transactional(), Codec: r.codec,
		},
		count: count, lastDelta: count - 1, base: b.BaseTimestamp() + r.first, max: r.max,
	}
	if r.o.LogAppendTime {
		builder.o.TimestampType, builder.o.AppendTime = LogAppendTime, r.o.Now
	}
	r.made = Batch(out)
	builder.header(r.made)
	return nil
}
