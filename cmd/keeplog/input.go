package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const inputChunk = 256 << 10

// badInput is one record of the input that cannot be sent; the ones after it can.
type badInput struct {
	at  string // "line 3", "record 3"
	why string
}

func (b *badInput) Error() string { return b.at + ": " + b.why }

// input yields records from text or bytes. What it puts into a record stays valid for good.
type input interface {
	// next fills r. io.EOF: no more; *badInput: this one not, go on.
	next(r *kgo.Record) error
	// buffered is how much is read and not yet yielded: 0 means that next may wait for the outside.
	buffered() int
}

// pieces cuts a stream at a terminator. A piece is never overwritten: each chunk of memory is used once and left to
// the garbage collector when its last record is acknowledged.
type pieces struct {
	r          io.Reader
	term       []byte
	limit      int // largest piece, bytes
	buf        []byte
	start, end int
	scanned    int // bytes after start that are known to hold no terminator
	n          int64
	eof, open  bool // open: the last piece had no terminator
	read       func()
}

func newPieces(r io.Reader, term []byte, limit int) *pieces {
	return &pieces{r: r, term: term, limit: limit, read: func() {}}
}

func (p *pieces) buffered() int { return p.end - p.start }

// next returns the next piece without its terminator. n counts the pieces, from 1.
func (p *pieces) next() ([]byte, error) {
	for {
		from := max(p.start, p.start+p.scanned-len(p.term)+1)
		if i := p.find(from); i >= 0 {
			piece := p.buf[p.start:i:i]
			p.start, p.scanned = i+len(p.term), 0
			p.n++
			if len(piece) > p.limit {
				return nil, p.tooLong(int64(len(piece)))
			}
			return piece, nil
		}
		p.scanned = p.end - p.start
		switch {
		case p.eof && p.scanned == 0:
			return nil, io.EOF
		case p.eof:
			piece := p.buf[p.start:p.end:p.end]
			p.start, p.scanned, p.open = p.end, 0, true
			p.n++
			if len(piece) > p.limit {
				return nil, p.tooLong(int64(len(piece)))
			}
			return piece, nil
		case p.scanned > p.limit+len(p.term):
			return nil, p.skip()
		}
		if err := p.fill(); err != nil {
			return nil, err
		}
	}
}

func (p *pieces) find(from int) int {
	i := -1
	if len(p.term) == 1 {
		i = bytes.IndexByte(p.buf[from:p.end], p.term[0])
	} else {
		i = bytes.Index(p.buf[from:p.end], p.term)
	}
	if i < 0 {
		return -1
	}
	return from + i
}

// fill reads more, into a new chunk when this one is full.
func (p *pieces) fill() error {
	if p.end == len(p.buf) {
		left := p.end - p.start
		fresh := make([]byte, max(inputChunk, 2*left))
		copy(fresh, p.buf[p.start:p.end])
		p.buf, p.start, p.end = fresh, 0, left
	}
	n, err := p.r.Read(p.buf[p.end:])
	p.end += n
	p.read()
	if errors.Is(err, io.EOF) {
		p.eof = true
		return nil
	}
	return err
}

// skip drops a piece that is over the limit, in bounded memory.
func (p *pieces) skip() error {
	total := int64(0)
	p.n++
	for {
		if i := p.find(p.start); i >= 0 {
			total += int64(i - p.start)
			p.start, p.scanned = i+len(p.term), 0
			return p.tooLong(total)
		}
		keep := min(len(p.term)-1, p.end-p.start)
		total += int64(p.end - p.start - keep)
		if p.eof {
			p.start, p.scanned, p.open = p.end, 0, true
			return p.tooLong(total + int64(keep))
		}
		fresh := make([]byte, inputChunk)
		copy(fresh, p.buf[p.end-keep:p.end])
		p.buf, p.start, p.end = fresh, 0, keep
		if err := p.fill(); err != nil {
			return err
		}
	}
}

func (p *pieces) tooLong(n int64) *badInput {
	return p.bad(fmt.Sprintf("%d bytes, the largest that the topic takes is %d", n, p.limit))
}

func (p *pieces) bad(why string) *badInput {
	return &badInput{at: fmt.Sprintf("line %d", p.n), why: why}
}

// lines yields one value a piece.
type lines struct{ *pieces }

func (l lines) next(r *kgo.Record) error {
	v, err := l.pieces.next()
	r.Value = v
	return err
}

// whole yields all of a stream as one value.
type whole struct {
	r     io.Reader
	limit int
	done  bool
}

func (w *whole) buffered() int { return 0 }

func (w *whole) next(r *kgo.Record) error {
	if w.done {
		return io.EOF
	}
	w.done = true
	v, err := io.ReadAll(io.LimitReader(w.r, int64(w.limit)+1))
	if err != nil {
		return err
	}
	if len(v) > w.limit {
		return &badInput{at: "the whole input", why: fmt.Sprintf("more than the %d bytes that the topic takes in one record", w.limit)}
	}
	r.Value = v
	return nil
}

// prefixed yields values that each follow their length.
//
//	│ u32 length, big-endian │ value │ …
type prefixed struct {
	r     io.Reader
	limit int
	n     int64
}

func (p *prefixed) buffered() int { return 1 }

func (p *prefixed) next(r *kgo.Record) error {
	var head [4]byte
	p.n++
	if _, err := io.ReadFull(p.r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return failf("record %d: the input ends inside a length", p.n)
		}
		return err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > int64(p.limit) {
		if m, err := io.CopyN(io.Discard, p.r, n); err != nil {
			return failf("record %d: the input ends after %d of %d bytes", p.n, m, n)
		}
		return &badInput{at: fmt.Sprintf("record %d", p.n), why: fmt.Sprintf("%d bytes, the largest that the topic takes is %d", n, p.limit)}
	}
	r.Value = make([]byte, n)
	if m, err := io.ReadFull(p.r, r.Value); err != nil {
		return failf("record %d: the input ends after %d of %d bytes", p.n, m, n)
	}
	return nil
}

// fields yields records by a format: the literals between two fields part them, the one at the end ends the record.
type fields struct {
	*pieces
	parts []formatPart
}

// newFields checks that parts can be read back. Without a literal at the end a record ends with its line.
func newFields(r io.Reader, parts []formatPart, limit int) (*fields, error) {
	term := []byte("\n")
	if n := len(parts); n > 0 && parts[n-1].field == 0 {
		term = parts[n-1].literal
		parts = parts[:n-1]
	}
	hasField := false
	for i, p := range parts {
		switch {
		case p.field == 'o' || p.field == 's':
			return nil, usagef("%%%c cannot be read: the broker gives it", p.field)
		case p.field != 0 && i > 0 && parts[i-1].field != 0:
			return nil, usagef("%%%c%%%c: a separator must stand between two fields", parts[i-1].field, p.field)
		}
		hasField = hasField || p.field != 0
	}
	if !hasField {
		return nil, usagef("the format has no field to read")
	}
	return &fields{pieces: newPieces(r, term, limit), parts: parts}, nil
}

func (f *fields) next(r *kgo.Record) error {
	rest, err := f.pieces.next()
	if err != nil {
		return err
	}
	for i, p := range f.parts {
		if p.field == 0 {
			var ok bool
			if rest, ok = bytes.CutPrefix(rest, p.literal); !ok {
				return f.bad(fmt.Sprintf("no %q where the format has it", p.literal))
			}
			continue
		}
		field := rest
		if i+1 < len(f.parts) {
			before, _, ok := bytes.Cut(rest, f.parts[i+1].literal)
			if !ok {
				return f.bad(fmt.Sprintf("no %q after %%%c", f.parts[i+1].literal, p.field))
			}
			field, rest = before, rest[len(before):]
		} else {
			rest = nil
		}
		if err := setField(r, p.field, field); err != nil {
			return f.bad(err.Error())
		}
	}
	if len(rest) > 0 {
		return f.bad("more text than the format has")
	}
	return nil
}

func setField(r *kgo.Record, field byte, text []byte) error {
	switch field {
	case 'v':
		r.Value = text
	case 'k':
		r.Key = text
	case 't':
		r.Topic = string(text)
	case 'h':
		headers, err := parseHeaders(string(text))
		r.Headers = headers
		return err
	case 'p':
		n, err := parseCount(string(text))
		if err != nil || n > 1<<31-1 {
			return fmt.Errorf("%q is no partition", text)
		}
		r.Partition = int32(n)
	case 'd', 'D':
		ms, err := parseTime(string(text), time.Time{})
		if err != nil || (field == 'D' && !isDigits(text)) {
			return fmt.Errorf("%q is no time", text)
		}
		r.Timestamp = time.UnixMilli(ms)
	}
	return nil
}

func isDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// inputFailed says that the input could not be read on.
func inputFailed(name string, err error) error {
	var ce *cliError
	if errors.As(err, &ce) {
		e := *ce
		e.msg = name + e.msg
		return &e
	}
	if name == "" {
		name = "stdin: "
	}
	return failf("%scannot read it (%s)", name, lastPart(err))
}
