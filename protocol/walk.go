package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
)

// kind is how a field is written.
type kind uint8

const (
	fixed  kind = iota // width bytes
	text               // i16 or compact length, bytes
	blob               // i32 or compact length, bytes
	array              // i32 or compact count, elements
	object             // a struct that may be null: i8 (−1: null), then its fields
	tag                // a known tag, in the tag buffer that ends its struct
)

// field is one field of a message and the versions that have it.
type field struct {
	kind     kind
	width    int     // of fixed; in a plan also of array, where all elements have it
	min, max int16   // versions that have it
	nullable int16   // first version in which it may be null
	pointer  bool    // decoded behind a pointer
	number   uint32  // of tag
	cost     int     // bytes that decoding allocates for each element, beside what its fields add
	serving  int     // bytes that answering takes for each element, as measured
	items    []field // of array (none: a struct without fields does not exist), object and tag
	plain    bool    // array of a primitive, whose elements have no tags of their own
}

const never = math.MaxInt16

// amplification is how many times its own size a request may take in memory, and slack what is free: of decoding, and of decoding and
// answering together. The latter lets through what clients really send: some ten thousand elements, however short.
const (
	amplification = 32
	slack         = 4 << 10
	servingSlack  = 16 << 20
	// tagCost is what an unknown tag takes in the map that keeps it, growth included.
	tagCost    = 160
	stringCost = 16
)

// compile leaves of the fields what a version has, joins neighbours of fixed width, and marks the arrays whose elements
// all have one width.
func compile(fields []field, version int16, flexible bool) []field {
	var plan []field
	for _, f := range fields {
		if version < f.min || version > f.max {
			continue
		}
		f.items = compile(f.items, version, flexible || f.kind == tag)
		if f.kind == array && len(f.items) == 1 && f.items[0].kind == fixed && (f.plain || !flexible) {
			f.width = f.items[0].width
		}
		if last := len(plan) - 1; f.kind == fixed && last >= 0 && plan[last].kind == fixed {
			plan[last].width += f.width
			continue
		}
		plan = append(plan, f)
	}
	return plan
}

// walker goes over a body by its shape.
type walker struct {
	b        []byte
	at       int
	version  int16
	flexible bool
	cost     int64 // of decoding
	serving  int64 // of answering
	limit    int64 // of cost; 0 is none
}

// check returns what decoding and answering take, in bytes. Bytes after the body are ignored, as Kafka does.
func (a *API) check(version int16, body []byte) (int64, error) {
	w := walker{b: body, version: version, flexible: a.IsFlexible(version), limit: amplification*int64(len(body)) + slack}
	plan := a.plans[version-a.Min]
	if err := w.fields(plan); err != nil {
		return 0, err
	}
	if w.flexible {
		if err := w.tags(plan); err != nil {
			return 0, err
		}
	}
	return w.cost + w.serving, nil
}

func (w *walker) fields(fields []field) error {
	for i := range fields {
		f := &fields[i]
		switch {
		case f.kind == tag:
			continue
		case f.kind == fixed && f.width <= w.left():
			w.at += f.width
			continue
		}
		if err := w.field(f); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) field(f *field) error {
	switch f.kind {
	case fixed:
		return w.skip(int64(f.width))
	case text, blob:
		return w.bytes(f)
	case array:
		return w.array(f)
	case object:
		if w.left() < 1 {
			return w.short()
		}
		w.at++
		if int8(w.b[w.at-1]) < 0 {
			return w.null(f)
		}
		if err := w.spend(int64(f.cost)); err != nil {
			return err
		}
		if err := w.fields(f.items); err != nil {
			return err
		}
		return w.tags(f.items)
	}
	panic("protocol: kind of field")
}

func (w *walker) left() int { return len(w.b) - w.at }

func (w *walker) short() error {
	return fmt.Errorf("%w: it ends in the middle, at byte %d", ErrMalformed, w.at)
}

func (w *walker) null(f *field) error {
	if w.version < f.nullable {
		return fmt.Errorf("%w: null at byte %d, where a value must be", ErrMalformed, w.at)
	}
	return nil
}

func (w *walker) skip(n int64) error {
	if n > int64(w.left()) {
		return w.short()
	}
	w.at += int(n)
	return nil
}

// spend adds to what decoding will allocate.
func (w *walker) spend(n int64) error {
	w.cost += n
	if w.limit > 0 && (w.cost > w.limit || w.cost+w.serving > w.limit+servingSlack) {
		return ErrTooCostly
	}
	return nil
}

// uvarint reads an unsigned number of 32 bits.
func (w *walker) uvarint() (uint32, error) {
	var u uint32
	for i := 0; i < 5; i++ {
		if w.left() < 1 {
			return 0, w.short()
		}
		c := w.b[w.at]
		w.at++
		u |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			if i == 4 && c > 0x0f {
				break
			}
			return u, nil
		}
	}
	return 0, fmt.Errorf("%w: a number above 32 bits at byte %d", ErrMalformed, w.at)
}

// length reads the length of a text, blob or array; −1 is null.
func (w *walker) length(k kind) (int64, error) {
	if w.flexible {
		u, err := w.uvarint()
		return int64(u) - 1, err
	}
	if k == text {
		if w.left() < 2 {
			return 0, w.short()
		}
		w.at += 2
		return int64(int16(binary.BigEndian.Uint16(w.b[w.at-2:]))), nil
	}
	if w.left() < 4 {
		return 0, w.short()
	}
	w.at += 4
	return int64(int32(binary.BigEndian.Uint32(w.b[w.at-4:]))), nil
}

func (w *walker) bytes(f *field) error {
	n, err := w.length(f.kind)
	if err != nil {
		return err
	}
	if n < 0 {
		return w.null(f)
	}
	if f.kind == text {
		if n > math.MaxInt16 {
			return fmt.Errorf("%w: a string of %d bytes", ErrMalformed, n)
		}
		cost := (n + 15) &^ 15
		if f.pointer {
			cost += stringCost
		}
		if err := w.spend(cost); err != nil {
			return err
		}
	}
	return w.skip(n)
}

func (w *walker) array(f *field) error {
	n, err := w.length(array)
	if err != nil {
		return err
	}
	if n < 0 {
		return w.null(f)
	}
	if n > int64(w.left()) { // no element is shorter than a byte
		return fmt.Errorf("%w: %d elements, %d bytes are left", ErrMalformed, n, w.left())
	}
	w.serving += n * int64(f.serving)
	if err := w.spend(n * int64(f.cost)); err != nil {
		return err
	}
	if f.width > 0 {
		return w.skip(n * int64(f.width))
	}
	for range n {
		if err := w.fields(f.items); err != nil {
			return err
		}
		if w.flexible && !f.plain {
			if err := w.tags(f.items); err != nil {
				return err
			}
		}
	}
	return nil
}

// tags reads the tag buffer at the end of a struct whose fields are given. What is known must have its shape.
func (w *walker) tags(fields []field) error {
	if w.left() > 0 && w.b[w.at] == 0 {
		w.at++
		return nil
	}
	count, err := w.uvarint()
	if err != nil {
		return err
	}
	for range count {
		number, err := w.uvarint()
		if err != nil {
			return err
		}
		size, err := w.uvarint()
		if err != nil {
			return err
		}
		if int64(size) > int64(w.left()) {
			return w.short()
		}
		f := known(fields, number)
		if f == nil {
			if err := w.spend(tagCost); err != nil {
				return err
			}
			w.at += int(size)
			continue
		}
		if err := w.inside(f, int(size)); err != nil {
			return err
		}
	}
	return nil
}

func known(fields []field, number uint32) *field {
	for i := range fields {
		if f := &fields[i]; f.kind == tag && f.number == number {
			return f
		}
	}
	return nil
}

// inside checks a known tag, which must fill its size exactly.
func (w *walker) inside(f *field, size int) error {
	end := w.at + size
	inner := walker{b: w.b[:end], at: w.at, version: w.version, flexible: true, cost: w.cost, serving: w.serving, limit: w.limit}
	if err := inner.fields(f.items); err != nil {
		return err
	}
	if !f.plain {
		if err := inner.tags(f.items); err != nil {
			return err
		}
	}
	if inner.at != end {
		return fmt.Errorf("%w: %d bytes left over in tag %d", ErrMalformed, end-inner.at, f.number)
	}
	w.at, w.cost, w.serving = end, inner.cost, inner.serving
	return nil
}
