package segment

import (
	"errors"
	"io"

	"github.com/keeplog/keeplog/record"
)

// header is what a walk needs of a batch.
type header struct {
	at, size     record.Position
	base, last   record.Offset
	maxTimestamp int64
}

func (h header) next() record.Offset  { return h.last + 1 }
func (h header) end() record.Position { return h.at + h.size }

func headerOf(b record.Batch, at record.Position) header {
	return header{at: at, size: record.Position(b.Size()), base: b.BaseOffset(), last: b.LastOffset(), maxTimestamp: b.MaxTimestamp()}
}

// header reads the header of the batch at a position.
func (s *Segment) header(at record.Position) (h header, err error) {
	err = io.ErrUnexpectedEOF
	werr := s.walk(at, record.Position(s.size.Load()), func(found header) bool {
		h, err = found, nil
		return false
	})
	if werr != nil {
		err = werr
	}
	if err == nil && h.at != at {
		err = s.place(at, ErrDamaged)
	}
	return h, err
}

func (s *Segment) place(at record.Position, err error) error {
	return &record.PlaceError{File: s.name(LogExt), Position: at, Err: err}
}

// walk shows the headers of the batches from a batch's start on, as far as they end at or before to, until show returns
// false. It does not look at checksums: it hops over known damage and stops with an error at what is no header.
func (s *Segment) walk(from, to record.Position, show func(header) bool) error {
	pooled := s.env.small.Get().(*[]byte)
	defer s.env.small.Put(pooled)
	buf, have, haveAt := *pooled, 0, from
	for at := from; at < to; {
		if beyond, hit := s.beyondDamage(at); hit {
			at = beyond
			continue
		}
		if at < haveAt || at+record.HeaderSize > haveAt+record.Position(have) {
			n, err := s.file.ReadAt(buf[:min(int64(len(buf)), int64(to-at))], int64(at))
			if n < record.HeaderSize {
				if err == nil || errors.Is(err, io.EOF) {
					return nil // a partial header at the end
				}
				return s.place(at, err)
			}
			have, haveAt = n, at
		}
		b := record.Batch(buf[at-haveAt : at-haveAt+record.HeaderSize])
		size, err := record.ParseHeader(b, 0)
		if err != nil {
			return s.place(at, err)
		}
		if at+record.Position(size) > to || !show(headerOf(b, at)) {
			return nil
		}
		at += record.Position(size)
	}
	return nil
}

// errNone says that the segment has no batch at or after an offset.
var errNone = errors.New("no such batch in this segment")

// examineStep is how far ahead a search compares checksums.
const examineStep = 128 << 10

// seek finds the first batch that ends at or after target, among those that end at or before to. Errors: errNone;
// ErrDamaged where the batch was lost to damage. The segment must be acquired.
func (s *Segment) seek(target record.Offset, to record.Position) (header, error) {
	from, err := s.start(target)
	if err != nil {
		return header{}, err
	}
	for from < to {
		ahead := to
		if _, any := s.gap(from, to); any {
			if ahead, err = s.examine(from, min(from+examineStep, to), to); err != nil {
				return header{}, err
			}
		}
		found, err := s.seekIn(target, from, ahead)
		if err != nil || found.size > 0 {
			return found, err
		}
		from = ahead
	}
	if d, ok := s.damageHolding(target, to, to+1); ok { // batches are missing at the end
		return header{}, s.place(d.From, ErrDamaged)
	}
	return header{}, errNone
}

// seekIn searches an examined range. A zero header means that there is none in it.
func (s *Segment) seekIn(target record.Offset, from, to record.Position) (header, error) {
	var found header
	passed := to
	err := s.walk(from, to, func(h header) bool {
		if h.last < target {
			return true
		}
		found, passed = h, h.at
		return false
	})
	if err != nil {
		return header{}, err
	}
	if d, ok := s.damageHolding(target, from, passed); ok {
		return header{}, s.place(d.From, ErrDamaged)
	}
	return found, nil
}

// start is the position of a batch at or before target, from the index. Entries that do not fit the log, or that point
// into damage, are passed by: the walk then begins earlier.
func (s *Segment) start(target record.Offset) (record.Position, error) {
	e := s.offsets.Lookup(target)
	for e.Position > 0 && !s.ownIndex {
		err := s.checkEntry(e.Position, e.Offset)
		if err == nil {
			break
		}
		if !IsDamage(err) {
			return 0, err
		}
		e = s.offsets.LookupPosition(e.Position - 1)
	}
	return e.Position, nil
}

// checkEntry tests that a sound batch which ends with offset last begins at a position.
func (s *Segment) checkEntry(at record.Position, last record.Offset) error {
	h, err := s.header(at)
	if err != nil {
		return err
	}
	if h.last != last {
		return s.place(at, ErrDamaged)
	}
	if s.isExamined(at) {
		return nil
	}
	return s.checkBatch(h)
}

// checkBatch compares the checksum of one batch.
func (s *Segment) checkBatch(h header) error {
	pool := s.env.pool(h.size)
	pooled := pool.Get().(*[]byte)
	defer pool.Put(pooled)
	sc := record.NewScanner(s.file, record.ScanOptions{File: s.name(LogExt), Start: h.at, End: h.end(), Buffer: *pooled, CRC: true})
	sc.Scan()
	return sc.Err()
}

// IsDamage says that an error comes from the bytes, not from the file system.
func IsDamage(err error) bool {
	for _, kind := range []error{ErrDamaged, record.ErrCorrupt, record.ErrTorn, record.ErrOldVersion, record.ErrNewerVersion, io.ErrUnexpectedEOF} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
