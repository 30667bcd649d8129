package dump

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// ShapeVersion is the version of the shapes below; it grows when a field changes its meaning or goes away.
const ShapeVersion = 1

// Format of a machine-readable dump.
type Format int8

// The formats. Each item is one object with the field "kind"; the first says the version. JSON is an array of them, JSONL one a line, YAML a
// sequence.
const (
	JSON Format = iota
	JSONL
	YAML
)

// DataOptions say what a machine-readable dump holds.
type DataOptions struct {
	Format Format
	// Values puts keys, values and headers in; without, only their sizes. Keys are always there.
	Values bool
	// Hex writes bytes as hexadecimal digits, else as text where they are UTF-8 and as base64 where they are not.
	Hex bool
	// OnlyProblems leaves everything else but the total out.
	OnlyProblems bool
}

// Data is a sink for programs.
type Data struct {
	w     *bufio.Writer
	o     DataOptions
	items int64
	err   error
}

// NewData returns a sink that writes on w; Close ends the document and flushes it.
func NewData(w io.Writer, o DataOptions) *Data {
	d := &Data{w: bufio.NewWriterSize(w, 64<<10), o: o}
	d.object([]byte(`{"kind":"dump","version":` + strconv.Itoa(ShapeVersion) + `}`))
	return d
}

// Put writes one item.
func (d *Data) Put(i Item) error {
	if d.o.OnlyProblems {
		switch i.(type) {
		case *Problem, *Total:
		default:
			return d.err
		}
	}
	b, err := d.marshal(i)
	if err != nil {
		return fmt.Errorf("%s: %w", i.kind(), err)
	}
	d.object(b)
	return d.err
}

// Close ends the document.
func (d *Data) Close() error {
	if d.o.Format == JSON {
		d.write("\n]\n")
	}
	if d.err == nil {
		d.err = d.w.Flush()
	}
	return d.err
}

func (d *Data) write(s string) {
	if d.err == nil {
		_, d.err = d.w.WriteString(s)
	}
}

func (d *Data) object(b []byte) {
	switch {
	case d.o.Format == JSON && d.items == 0:
		d.write("[\n  ")
	case d.o.Format == JSON:
		d.write(",\n  ")
	case d.o.Format == YAML: // a JSON object on one line is YAML too
		d.write("- ")
	}
	d.write(string(b))
	if d.o.Format != JSON {
		d.write("\n")
	}
	d.items++
}

func (d *Data) marshal(i Item) ([]byte, error) {
	head := []byte(`{"kind":"` + i.kind() + `",`)
	switch x := i.(type) {
	case *Entry:
		return x.appendJSON(nil, []Field{{"kind", i.kind()}, {"file", x.File}, {"entry", x.What}})
	case *Record:
		return d.record(x)
	}
	b, err := json.Marshal(i)
	if err != nil {
		return nil, err
	}
	return append(head, b[1:]...), nil
}

func (d *Data) record(x *Record) ([]byte, error) {
	e := Entry{Fields: []Field{
		{"kind", x.kind()}, {"file", x.File}, {"offset", x.Offset}, {"timestamp", x.Timestamp}, {"sequence", x.Sequence},
	}}
	switch {
	case x.Marker != nil:
		e.Fields = append(e.Fields, Field{"producer_id", x.ProducerID}, Field{"producer_epoch", x.ProdEpoch})
		e.Fields = append(e.Fields, x.Marker.Fields...)
		return e.appendJSON(nil, nil)
	case x.Decoded != nil:
		e.add("decoded", x.Decoded)
		return e.appendJSON(nil, nil)
	}
	d.blob(&e, "key", x.Key)
	if d.o.Values {
		d.blob(&e, "value", x.Value)
	}
	if x.Value == nil {
		e.add("value_size", nil)
	} else {
		e.add("value_size", len(x.Value))
	}
	h := x.Headers
	if !d.o.Values {
		e.add("header_count", h.Len())
		return e.appendJSON(nil, nil)
	}
	all := []any{}
	for k, v, ok := h.Next(); ok; k, v, ok = h.Next() {
		one := &Entry{}
		d.blob(one, "key", k)
		d.blob(one, "value", v)
		all = append(all, one)
	}
	e.add("headers", all)
	return e.appendJSON(nil, nil)
}

// blob adds bytes under name, or name_hex or name_base64 where they are no text.
func (d *Data) blob(e *Entry, name string, v []byte) {
	switch {
	case v == nil:
		e.add(name, nil)
	case d.o.Hex:
		e.add(name+"_hex", hex.EncodeToString(v))
	case utf8.Valid(v):
		e.add(name, string(v))
	default:
		e.add(name+"_base64", base64.StdEncoding.EncodeToString(v))
	}
}

// ParseFormat finds a machine-readable format by its name.
func ParseFormat(s string) (Format, bool) {
	switch s {
	case "json":
		return JSON, true
	case "jsonl":
		return JSONL, true
	case "yaml":
		return YAML, true
	}
	return 0, false
}
