package segment

import (
	"errors"
	"math"

	"github.com/keeplog/keeplog/record"
)

// ErrNone says that the segment has no batch at or after the offset: look in the next one.
var ErrNone = errNone

// ReadOptions say which range of a segment is wanted.
type ReadOptions struct {
	Offset     record.Offset
	End        record.Position // no batch at or above is given
	MaxBytes   int
	AtLeastOne bool // the whole first batch even above MaxBytes
	Abandon    func()
	// At and Size, where Size is above 0, are where the batch that holds Offset is: a range that this process wrote.
	At, Size record.Position
}

// Read returns the span from the batch that holds Offset, or the first after it. It is cut at MaxBytes, perhaps inside a
// batch, and before damage; where not even the first batch fits it is empty. Errors: ErrNone, ErrDamaged, ErrGone.
func (s *Segment) Read(o ReadOptions) (*Span, error) {
	if err := s.acquire(); err != nil {
		return nil, err
	}
	sp, err := s.span(o)
	if err != nil {
		s.release()
		return nil, err
	}
	s.link(sp)
	return sp, nil
}

func (s *Segment) span(o ReadOptions) (*Span, error) {
	h := header{at: o.At, size: o.Size}
	if o.Size <= 0 {
		var err error
		if h, err = s.seek(o.Offset, o.End); err != nil {
			return nil, err
		}
	}
	n := min(record.Position(max(o.MaxBytes, 0)), o.End-h.at)
	if n < h.size {
		if n = 0; o.AtLeastOne {
			n = h.size
		}
	}
	if n > 0 && !s.trusted() {
		if _, err := s.examine(h.at, h.at+n, o.End); err != nil {
			return nil, err
		}
		if d, ok := s.firstDamage(h.at, h.at+n); ok {
			n = d - h.at
		}
	}
	return &Span{seg: s, at: int64(h.at), n: int(n), abandon: o.Abandon}, nil
}

// Verify opens a sealed segment, and so compares its indexes and its end with what is known of them.
func (s *Segment) Verify() error {
	err := s.acquire()
	if err == nil {
		s.release()
	}
	return err
}

// PositionOf is where the batch that holds o begins, or the first after it; End where there is none. Damage that holds o
// counts as that batch.
func (s *Segment) PositionOf(o record.Offset) (record.Position, error) {
	if err := s.acquire(); err != nil {
		return 0, err
	}
	defer s.release()
	end := record.Position(s.size.Load())
	h, err := s.seek(o, end)
	var place *record.PlaceError
	switch {
	case errors.Is(err, errNone):
		return end, nil
	case errors.Is(err, ErrDamaged) && errors.As(err, &place):
		return place.Position, nil
	}
	return h.at, err
}

// About is the position from which a walk to an offset would begin, as far as the index in memory tells: it reads nothing.
func (s *Segment) About(o record.Offset) record.Position { return s.offsets.Lookup(o).Position }

// EndBefore is the offset after the last batch that ends at or before a position, the base where there is none.
func (s *Segment) EndBefore(end record.Position) (record.Offset, error) {
	if err := s.acquire(); err != nil {
		return 0, err
	}
	defer s.release()
	next := s.base
	e := s.offsets.LookupPosition(end - 1)
	if e.Position > 0 && s.checkEntry(e.Position, e.Offset) != nil {
		e.Position = 0
	}
	if _, err := s.examine(e.Position, end, end); err != nil {
		return 0, err
	}
	err := s.walk(e.Position, end, func(h header) bool {
		next = h.next()
		return true
	})
	return next, err
}

// Batch is a batch header in a walk.
type Batch struct {
	record.Batch // the header only
	At           record.Position
}

// Walk shows the headers of the batches from the one that holds offset on, up to the position end, until show returns
// false. Checksums are not compared where crc is false. Damage is hopped over.
func (s *Segment) Walk(offset record.Offset, end record.Position, crc bool, show func(Batch) bool) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	from, err := s.start(offset)
	if err != nil {
		return err
	}
	if crc {
		if _, err := s.examine(from, end, end); err != nil {
			return err
		}
	}
	return s.scan(from, end, offset, show)
}

// scan reads headers with the scanner, so that show gets all fields.
func (s *Segment) scan(from, end record.Position, offset record.Offset, show func(Batch) bool) error {
	pooled := s.env.small.Get().(*[]byte)
	defer s.env.small.Put(pooled)
	sc := record.NewScanner(s.file, record.ScanOptions{File: s.name(LogExt), Start: from, End: end, Buffer: *pooled})
	for {
		if beyond, hit := s.beyondDamage(sc.Next()); hit {
			sc.Resume(beyond)
			continue
		}
		if !sc.Scan() {
			err := sc.Err()
			if err == nil || !IsDamage(err) {
				return err
			}
			if _, eerr := s.examine(from, end, end); eerr != nil { // find out what it is
				return eerr
			}
			if beyond, hit := s.beyondDamage(sc.Position()); hit {
				sc.Resume(beyond)
				continue
			}
			if errors.Is(err, record.ErrTorn) { // the end cuts a batch
				return nil
			}
			return err
		}
		if b := sc.Batch(); b.LastOffset() >= offset && !show(Batch{Batch: b, At: sc.Position()}) {
			return nil
		}
	}
}

// NewestTimestamp is the largest timestamp of the segment in ms, −1 for none. For a sealed segment it comes from the last
// entry of the time index, which is checked against the log when the segment is opened.
func (s *Segment) NewestTimestamp() (int64, error) {
	if s.known.Load() || s.isActive() {
		return s.newest.Load(), nil
	}
	if err := s.acquire(); err != nil {
		return 0, err
	}
	defer s.release()
	t, ok := s.times.Last()
	if !ok {
		return record.NoTimestamp, nil
	}
	return t.Timestamp, nil
}

// isActive says that the segment has a writer.
func (s *Segment) isActive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

// wholeCheck is the size up to which a whole segment is read again before it is deleted for its age.
const wholeCheck = 64 << 20

// ConfirmNewest is the largest timestamp by the batches themselves: what deletion by age asks before it acts, since an
// index can be wrong in ways that no check sees. A segment that this process wrote is known.
func (s *Segment) ConfirmNewest() (int64, error) {
	if s.known.Load() {
		return s.newest.Load(), nil
	}
	if err := s.acquire(); err != nil {
		return 0, err
	}
	defer s.release()
	active := s.isActive()
	end := record.Position(s.size.Load())
	if end <= wholeCheck {
		if _, err := s.examine(0, end, end); err != nil {
			return 0, err
		}
	}
	newest := int64(record.NoTimestamp)
	err := s.scan(0, end, math.MinInt64, func(b Batch) bool {
		newest = max(newest, b.MaxTimestamp())
		return true
	})
	if err != nil {
		return 0, err
	}
	if len(s.Damages()) > 0 { // what was lost may have been newer
		modified, err := s.ModTimeMs()
		if err != nil {
			return 0, err
		}
		newest = max(newest, modified)
	}
	if active { // its writer keeps it, and may have moved on
		return max(newest, s.newest.Load()), nil
	}
	s.newest.Store(newest)
	s.known.Store(true)
	return newest, nil
}

// FindTime shows the headers of the batches that have a timestamp of at least ts and end at or after from, below end, in
// order, until show returns false.
func (s *Segment) FindTime(ts int64, from record.Offset, end record.Position, show func(Batch) bool) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	t := s.times.Lookup(max(ts, math.MinInt64+1) - 1) // the batch of the first entry with ts may not be the first that has it
	offset := t.Offset
	if t.Timestamp < 0 || !s.ownIndex && s.checkTime(t) != nil {
		offset = s.base
	}
	at, err := s.start(max(offset, from))
	if err != nil {
		return err
	}
	return s.scan(at, end, from, func(b Batch) bool { return b.MaxTimestamp() < ts || show(b) })
}

// ReadBatch reads a whole batch, whose header Walk or FindTime showed, and compares its checksum. buf is used where it is
// large enough.
func (s *Segment) ReadBatch(b Batch, buf []byte) (record.Batch, error) {
	if err := s.acquire(); err != nil {
		return nil, err
	}
	defer s.release()
	if n := b.Size(); cap(buf) < n {
		if int64(b.At)+int64(n) > s.size.Load() {
			return nil, s.place(b.At, record.ErrTorn)
		}
		buf = make([]byte, n)
	} else {
		buf = buf[:n]
	}
	if _, err := s.file.ReadAt(buf, int64(b.At)); err != nil {
		return nil, s.place(b.At, err)
	}
	batch := record.Batch(buf)
	if batch.Size() != len(buf) {
		return nil, s.place(b.At, ErrDamaged)
	}
	if err := batch.CheckCRC(); err != nil {
		return nil, s.place(b.At, errors.Join(ErrDamaged, err))
	}
	return batch, nil
}
