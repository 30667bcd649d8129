package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ScanOptions say what a [Scanner] reads.
type ScanOptions struct {
	File   string   // name for messages
	Start  Position // first byte of the first batch
	End    Position // where the data ends: nothing is read from there on
	Buffer []byte   // read buffer, at least 4 KiB, better 1 MiB and more; the scanner uses it until it is dropped
	CRC    bool     // check every CRC; without, bodies that do not fit the buffer are skipped unread
}

// minScanBuffer keeps a header and the smallest sensible read in one buffer.
const minScanBuffer = 4 << 10

// Scanner walks the batches of a file with few, large reads. It never allocates for what it reads: a batch larger than
// its buffer is checked piece by piece and shown by its header only. Not for concurrent use.
type Scanner struct {
	r        io.ReaderAt
	opts     ScanOptions
	have     []byte   // unread part of the buffer
	at       Position // of have[0]
	position Position // of the current batch
	next     Position // after the current batch
	batch    Batch
	whole    bool
	err      error
}

// NewScanner returns a scanner over r. It panics if the buffer is smaller than 4 KiB.
func NewScanner(r io.ReaderAt, opts ScanOptions) *Scanner {
	if len(opts.Buffer) < minScanBuffer {
		panic(fmt.Sprintf("record: scan buffer of %d bytes", len(opts.Buffer)))
	}
	return &Scanner{r: r, opts: opts, at: opts.Start, position: opts.Start, next: opts.Start}
}

// Scan goes to the next batch. It returns false at the end and at the first problem; Err tells which.
func (s *Scanner) Scan() bool {
	if s.err != nil {
		return false
	}
	s.position, s.batch = s.next, nil
	left := int64(s.opts.End - s.position)
	if left <= 0 {
		return false
	}
	size, err := s.header(left)
	if err != nil {
		return s.fail(err)
	}
	if int64(size) > left {
		return s.fail(fmt.Errorf("%w: it has %d bytes, %d are left", ErrTorn, size, left))
	}
	if size <= len(s.opts.Buffer) && (s.opts.CRC || size <= len(s.have)) {
		if err := s.fill(size); err != nil {
			return s.fail(err)
		}
		s.batch, s.whole = Batch(s.have[:size:size]), true
		s.have, s.at = s.have[size:], s.at+Position(size)
	} else {
		if err := s.long(size); err != nil {
			return s.fail(err)
		}
	}
	s.next = s.position + Position(size)
	if s.opts.CRC && s.whole {
		if err := s.batch.CheckCRC(); err != nil {
			return s.fail(err)
		}
	}
	return true
}

func (s *Scanner) header(left int64) (size int, err error) {
	if err := s.fill(int(min(left, HeaderSize))); err != nil {
		return 0, err
	}
	return ParseHeader(s.have[:min(len(s.have), HeaderSize)], 0)
}

// fill makes at least n bytes available from the position on, reading as much as fits.
func (s *Scanner) fill(n int) error {
	if s.at != s.position {
		s.have, s.at = nil, s.position
	}
	if len(s.have) >= n {
		return nil
	}
	kept := copy(s.opts.Buffer, s.have)
	want := int(min(int64(len(s.opts.Buffer)), int64(s.opts.End-s.at)))
	got, err := s.r.ReadAt(s.opts.Buffer[kept:want], int64(s.at)+int64(kept))
	s.have = s.opts.Buffer[:kept+got]
	if len(s.have) >= n {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the file ends %d bytes into it", ErrTorn, len(s.have))
	}
	return err
}

// long shows the header of a batch that is not wholly in the buffer, and checks its CRC where asked.
func (s *Scanner) long(size int) error {
	var head [HeaderSize]byte
	copy(head[:], s.have)
	s.whole = false
	if s.opts.CRC {
		crc := crc32.Update(0, castagnoli, s.have[atAttributes:min(size, len(s.have))])
		for done := len(s.have); done < size; {
			part := s.opts.Buffer[:min(len(s.opts.Buffer), size-done)]
			got, err := s.r.ReadAt(part, int64(s.position)+int64(done))
			if got < len(part) {
				if err == nil || errors.Is(err, io.EOF) {
					err = fmt.Errorf("%w: the file ends %d bytes into it", ErrTorn, done+got)
				}
				s.have = nil
				return err
			}
			crc = crc32.Update(crc, castagnoli, part)
			done += got
		}
		if want := binary.BigEndian.Uint32(head[atCRC:]); want != crc {
			s.have, s.next = nil, s.position+Position(size)
			return corrupt("CRC is %08x, the bytes have %08x", want, crc)
		}
	}
	copy(s.opts.Buffer, head[:])
	s.batch = Batch(s.opts.Buffer[:HeaderSize:HeaderSize])
	s.have, s.at = nil, s.position+Position(size)
	return nil
}

func (s *Scanner) fail(err error) bool {
	s.batch = nil
	s.err = &PlaceError{File: s.opts.File, Position: s.position, Err: err}
	return false
}

// Batch is the current batch. It is valid until the next call of Scan. Where Whole is false it is only the header.
func (s *Scanner) Batch() Batch { return s.batch }

// Whole says that Batch has its records too.
func (s *Scanner) Whole() bool { return s.whole }

// Position is that of the current batch, or of what stopped the scan.
func (s *Scanner) Position() Position { return s.position }

// Next is the position after the current batch; after a wrong CRC, the position after the batch that has it.
func (s *Scanner) Next() Position { return s.next }

// Err is what stopped the scan: nil at the exact end, else a [PlaceError] around ErrTorn, ErrCorrupt, ErrNewerVersion,
// ErrOldVersion or an I/O error.
func (s *Scanner) Err() error { return s.err }

// Resume forgets an error and goes on at the position p.
func (s *Scanner) Resume(p Position) { s.err, s.next = nil, p }
