package dump

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/keeplog/keeplog/record"
)

// TextOptions say how Text prints.
type TextOptions struct {
	// Paths names the file of each part; for a dump of one file it is left out.
	Paths bool
	// Summary prints one line a file.
	Summary bool
	// OnlyProblems prints nothing but problems.
	OnlyProblems bool
	// Notes prints notes too where OnlyProblems is set.
	Notes bool
	// Values prints values and headers whole, not only their size.
	Values bool
	// Hex prints keys and values as hexadecimal digits.
	Hex bool
	// Total prints a line about the whole at the end.
	Total bool
}

// Text prints items for people.
type Text struct {
	w    *bufio.Writer
	o    TextOptions
	line []byte
	// what is wrong with the file that is open, told at its end
	later   []string
	dropped int
	err     error
}

// maxLater bounds the problems of one file that are kept for its end.
const maxLater = 1000

// NewText returns a sink that prints on w; Close flushes it.
func NewText(w io.Writer, o TextOptions) *Text { return &Text{w: bufio.NewWriterSize(w, 64<<10), o: o} }

// Put prints one item.
func (t *Text) Put(i Item) error {
	t.line = t.line[:0]
	if t.o.OnlyProblems {
		if p, ok := i.(*Problem); ok && (p.Severity != Note || t.o.Notes) {
			t.flushLine(t.problem(p))
		}
		if x, ok := i.(*Total); ok && t.o.Total {
			t.flushLine(t.total(x))
		}
		return t.err
	}
	switch x := i.(type) {
	case *FileStart:
		t.start(x)
	case *Batch:
		t.flushLine(t.batch(x))
	case *Record:
		t.flushLine(t.record(x))
	case *Entry:
		t.flushLine(t.fields(append(t.line, x.What...), x.Fields))
	case *Problem:
		if len(t.later) < maxLater {
			t.later = append(t.later, string(t.problem(x)))
		} else {
			t.dropped++
		}
		if x.Position == -1 && x.End == -1 && t.o.Summary {
			t.tell()
		}
	case *FileEnd:
		t.end(x)
	case *Total:
		t.tell()
		if t.o.Total {
			t.flushLine(t.total(x))
		}
	}
	return t.err
}

// Close writes what is buffered.
func (t *Text) Close() error {
	t.tell()
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.err
}

func (t *Text) flushLine(b []byte) {
	t.line = append(b, '\n')
	if t.err == nil {
		_, t.err = t.w.Write(t.line)
	}
	t.line = t.line[:0]
}

func (t *Text) tell() {
	for _, l := range t.later {
		t.flushLine(append(t.line[:0], l...))
	}
	if t.dropped > 0 {
		t.flushLine(fmt.Appendf(t.line[:0], "%d more problems in this file", t.dropped))
	}
	t.later, t.dropped = t.later[:0], 0
}

func (t *Text) start(x *FileStart) {
	t.tell()
	if !t.o.Paths || t.o.Summary {
		return
	}
	b := fmt.Appendf(t.line, "%s  %s  %s", x.Path, x.Type, Bytes(x.Size))
	if x.State != "" {
		b = append(append(b, "  "...), x.State...)
	}
	t.flushLine(b)
}

func (t *Text) end(x *FileEnd) {
	if t.o.Summary {
		b := fmt.Appendf(t.line, "%s  %s  %s", x.Path, x.Type, Bytes(x.Size))
		switch {
		case x.Type == TypeSegment && x.First >= 0:
			b = fmt.Appendf(b, "  offsets %d..%d  batches %d  records %d", x.First, x.Last, x.Entries, x.Records)
			if x.MaxTime >= 0 {
				b = append(append(append(append(b, "  "...), Time(x.MinTime)...), ".."...), Time(x.MaxTime)...)
			}
		case x.Type == TypeSegment:
			b = append(b, "  empty"...)
		default:
			b = fmt.Appendf(b, "  entries %d", x.Entries)
		}
		if x.Damage > 0 {
			b = append(b, "  DAMAGED"...)
		}
		t.flushLine(b)
	}
	t.tell()
}

func (t *Text) batch(x *Batch) []byte {
	b := append(t.line, "batch   pos "...)
	at := len(b)
	b = strconv.AppendInt(b, int64(x.Position), 10)
	for len(b) < at+5 {
		b = append(b, ' ')
	}
	b = append(b, "  offsets "...)
	b = strconv.AppendInt(b, int64(x.Base), 10)
	b = append(b, ".."...)
	b = strconv.AppendInt(b, int64(x.Last), 10)
	b = append(b, "  n "...)
	b = strconv.AppendInt(b, int64(x.Count), 10)
	b = append(append(b, "  "...), x.Codec...)
	b = append(b, "  epoch "...)
	b = strconv.AppendInt(b, int64(x.Epoch), 10)
	if x.ProducerID >= 0 {
		b = append(b, "  producer "...)
		b = strconv.AppendInt(b, int64(x.ProducerID), 10)
		b = append(b, '/')
		b = strconv.AppendInt(b, int64(x.ProdEpoch), 10)
		if x.BaseSeq >= 0 {
			b = append(b, " seq "...)
			b = strconv.AppendInt(b, int64(x.BaseSeq), 10)
			b = append(b, ".."...)
			b = strconv.AppendInt(b, int64(x.LastSeq), 10)
		}
	}
	if x.Txn {
		b = append(b, "  transactional"...)
	}
	if x.Control {
		b = append(b, "  control"...)
	}
	if x.TimeType != record.CreateTime.String() {
		b = append(append(b, "  append time "...), Time(x.MaxTime)...)
	}
	if x.Horizon != nil {
		b = append(append(b, "  delete horizon "...), Time(*x.Horizon)...)
	}
	if x.CRCComputed == nil {
		return append(b, "  crc ok"...)
	}
	return fmt.Appendf(b, "  crc BAD (stored %08x, computed %08x)", x.CRC, *x.CRCComputed)
}

func (t *Text) record(x *Record) []byte {
	b := append(t.line, "  "...)
	b = strconv.AppendInt(b, int64(x.Offset), 10)
	b = append(append(append(b, "  "...), Time(x.Timestamp)...), "  "...)
	if x.Marker != nil {
		b = append(b, x.Marker.What...)
		if x.ProducerID >= 0 {
			b = fmt.Appendf(b, "  producer %d/%d", x.ProducerID, x.ProdEpoch)
		}
		if len(x.Marker.Fields) > 1 {
			b = t.fields(b, x.Marker.Fields[1:])
		}
		return b
	}
	if x.Decoded != nil {
		return t.fields(append(b, x.Decoded.What...), x.Decoded.Fields[1:])
	}
	b = t.blob(append(b, "key "...), x.Key)
	b = append(b, "  value "...)
	switch {
	case t.o.Values || t.o.Hex || x.Value == nil:
		b = t.blob(b, x.Value)
	default:
		b = append(b, Bytes(int64(len(x.Value)))...)
	}
	h := x.Headers
	if h.Len() == 0 {
		return b
	}
	b = append(b, "  headers "...)
	if !t.o.Values {
		return strconv.AppendInt(b, int64(h.Len()), 10)
	}
	for first := true; ; first = false {
		k, v, ok := h.Next()
		if !ok {
			return b
		}
		if !first {
			b = append(b, ' ')
		}
		b = t.blob(append(strconv.AppendQuote(b, string(k)), '='), v)
	}
}

func (t *Text) blob(b, v []byte) []byte {
	switch {
	case v == nil:
		return append(b, "null"...)
	case t.o.Hex:
		return fmt.Appendf(b, "%x", v)
	case utf8.Valid(v):
		return strconv.AppendQuote(b, string(v))
	}
	return strconv.AppendQuoteToASCII(b, string(v))
}

// fields prints name and value pairs; names lose their underscores.
func (t *Text) fields(b []byte, fields []Field) []byte {
	for _, f := range fields {
		b = append(b, "  "...)
		for _, c := range []byte(f.Name) {
			if c == '_' {
				c = ' '
			}
			b = append(b, c)
		}
		b = t.value(append(b, ' '), f.Name, f.Value)
	}
	return b
}

func (t *Text) value(b []byte, name string, v any) []byte {
	switch x := v.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		if x == "" || needsQuotes(x) {
			return strconv.AppendQuote(b, x)
		}
		return append(b, x...)
	case int64:
		if isTime(name) {
			return append(b, Time(x)...)
		}
		return strconv.AppendInt(b, x, 10)
	case *Entry:
		b = append(b, '{')
		for i, f := range x.Fields {
			if i > 0 {
				b = append(b, ' ')
			}
			b = t.value(append(append(b, f.Name...), '='), f.Name, f.Value)
		}
		return append(b, '}')
	case []string:
		all := make([]any, len(x))
		for i := range x {
			all[i] = x[i]
		}
		return t.value(b, name, all)
	case map[string]any:
		e := &Entry{}
		for _, k := range slices.Sorted(maps.Keys(x)) {
			e.add(k, x[k])
		}
		return t.value(b, name, e)
	case []any:
		b = append(b, '[')
		for i, e := range x {
			if i > 0 {
				b = append(b, ' ')
			}
			b = t.value(b, name, e)
		}
		return append(b, ']')
	}
	return fmt.Append(b, v)
}

func needsQuotes(s string) bool {
	for _, c := range s {
		if c <= ' ' || c == '"' || c == 0x7f || c == utf8.RuneError {
			return true
		}
	}
	return false
}

// isTime says that a field of this name holds ms since 1970.
func isTime(name string) bool {
	switch name {
	case "timestamp", "commit_timestamp", "expire_timestamp", "state_timestamp", "last_update", "start", "resolved_timestamp":
		return true
	}
	return false
}

func (t *Text) problem(p *Problem) []byte {
	var b []byte
	if p.Severity == Note {
		b = append(b, "note: "...)
	}
	if t.o.Paths || t.o.OnlyProblems {
		b = append(append(b, p.File...), ": "...)
	}
	b = append(b, p.Text...)
	if p.Hint != "" {
		if t.o.OnlyProblems || t.o.Summary {
			b = append(bytes.TrimSuffix(b, []byte(".")), "; "...)
		} else {
			b = append(b, '\n')
		}
		b = append(b, p.Hint...)
	}
	return b
}

func (t *Text) total(x *Total) []byte {
	b := fmt.Appendf(t.line, "%s, %s, %s, %s: ", plural(int64(x.Files), "file"), Bytes(x.Bytes), plural(x.Batches, "batch"), plural(x.Records, "record"))
	if x.Damage == 0 {
		b = append(b, "no damage"...)
	} else {
		b = append(b, plural(int64(x.Damage), "damaged place")...)
	}
	if x.Unsupported > 0 {
		b = append(append(b, ", "...), plural(int64(x.Unsupported), "place")...)
		b = append(b, " in a format that is not supported"...)
	}
	if x.Notes > 0 {
		b = append(append(b, ", "...), plural(int64(x.Notes), "note")...)
	}
	return b
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if what == "batch" {
		return strconv.FormatInt(n, 10) + " batches"
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

// Time prints ms since 1970 in RFC 3339, UTC, "-" for none.
func Time(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// Bytes prints a size for people.
func Bytes(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range [...]string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	if unit == "B" {
		return strconv.FormatInt(n, 10) + " B"
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + unit
}
