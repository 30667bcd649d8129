package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/itchyny/gojq"
	"github.com/keeplog/keeplog/record"
)

// printBuffer is how much is gathered for one write to stdout.
const printBuffer = 256 << 10

// style is how records are printed.
type style int

const (
	styleValueLine style = iota // %v\n, the fast way
	styleFormat
	styleJSONL
	styleJSON
	styleYAML
	stylePrefixed
)

// printer turns batches into text on w. One goroutine uses it.
type printer struct {
	w         io.Writer
	buf       []byte
	codecs    *record.Codecs
	scratch   []byte
	style     style
	parts     []formatPart
	hex       bool
	null      string
	limit     int64 // records left to print; below 0: no limit
	filter    *filter
	jq        *jqFilter
	committed bool
	skipped   int64 // records that --jq failed for
	broken    error // why w took no more; what was in the buffer then is lost
	unheard   bool  // it is a pipe that nobody reads any more
	complain  func(format string, args ...any)
	jsonBuf   []byte
}

func (a *app) newPrinter(flags *consumeFlags) (*printer, error) {
	p := &printer{
		w: a.out, codecs: record.NewCodecs(), hex: flags.hex, null: flags.null, limit: -1,
		committed: flags.readCommitted, complain: a.say, buf: make([]byte, 0, printBuffer+64<<10),
	}
	if flags.limit > 0 {
		p.limit = flags.limit
	}
	format := flags.format
	if a.flags.output == "wide" && format == `%v\n` {
		format = `%t %p %o %d %k %v\n`
	}
	var err error
	if p.parts, err = parseFormat(format); err != nil {
		return nil, err
	}
	p.style = styleFormat
	switch {
	case a.flags.output == "json":
		p.style = styleJSON
	case a.flags.output == "jsonl":
		p.style = styleJSONL
	case a.flags.output == "yaml":
		p.style = styleYAML
	case flags.prefixed:
		p.style = stylePrefixed
	case format == `%v\n` && !flags.hex && flags.null == "":
		p.style = styleValueLine
	}
	if p.filter, err = newFilter(flags); err != nil {
		return nil, err
	}
	if flags.jq != "" {
		p.jq, err = newJQ(flags.jq)
	}
	return p, err
}

// flush writes what is in the buffer. After it has failed once it fails always.
func (p *printer) flush() error {
	if p.broken != nil || len(p.buf) == 0 {
		return p.broken
	}
	_, err := p.w.Write(p.buf)
	p.buf = p.buf[:0]
	if cap(p.buf) > 8*printBuffer {
		p.buf = make([]byte, 0, printBuffer+64<<10)
	}
	if err != nil {
		p.unheard = errors.Is(err, syscall.EPIPE)
		p.broken = failf("cannot write to stdout: %s", lastPart(err))
	}
	return p.broken
}

// chunk prints the records of c that lie in its range.
func (p *printer) chunk(c *chunk) error {
	aborted := newAborted(c.aborted, p.committed)
	rest := c.batches
	for len(rest) > 0 {
		b, after, err := record.Next(rest)
		if err != nil {
			return damagedBatch(c.part.tp, c.from, err)
		}
		rest = after
		if b.Control() {
			if err := aborted.control(b, p); err != nil {
				return damagedBatch(c.part.tp, int64(b.BaseOffset()), err)
			}
			continue
		}
		if int64(b.LastOffset()) < c.from || int64(b.BaseOffset()) >= c.to || aborted.drops(b) {
			continue
		}
		if err := p.batch(c, b); err != nil {
			return err
		}
	}
	return nil
}

func damagedBatch(t tp, offset int64, err error) *cliError {
	return &cliError{
		msg:  fmt.Sprintf("%s offset %d: CORRUPT_MESSAGE (%v)", t, offset, err),
		code: "CORRUPT_MESSAGE", exit: exitDamaged,
	}
}

func (p *printer) batch(c *chunk, b record.Batch) error {
	if err := b.CheckCRC(); err != nil {
		return damagedBatch(c.part.tp, int64(b.BaseOffset()), err)
	}
	records, err := p.codecs.Unpack(b, p.scratch, maxUnpacked)
	if err != nil {
		return damagedBatch(c.part.tp, int64(b.BaseOffset()), err)
	}
	if b.Codec() != record.None {
		p.scratch = records[:0]
	}
	it := record.Iterate(b, records)
	plain := p.style == styleValueLine && p.filter == nil && p.jq == nil
	for it.Next() {
		r := it.Record()
		if int64(r.Offset) < c.from || int64(r.Offset) >= c.to {
			continue
		}
		if p.limit == 0 {
			return errEnough
		}
		if plain {
			p.buf = append(append(p.buf, r.Value...), '\n')
			p.limit = max(p.limit-1, -1)
		} else if err := p.record(c.part, r); err != nil {
			return err
		}
		if len(p.buf) >= printBuffer {
			if err := p.flush(); err != nil {
				return err
			}
		}
		if p.limit == 0 {
			return errEnough
		}
	}
	if err := it.Err(); err != nil {
		return damagedBatch(c.part.tp, int64(b.BaseOffset()), err)
	}
	return nil
}

// record prints one record, if the filters let it through.
func (p *printer) record(at *part, r *record.Record) error {
	if p.filter != nil && (!p.filter.matchesKey(r.Key) || !p.hasHeaders(r)) {
		return nil
	}
	if p.jq != nil {
		results, err := p.jq.run(p.appendJSON(at, r))
		if err != nil {
			p.skipped++
			if p.skipped <= badInputsTold {
				p.complain("error: %s offset %d: jq: %v", at.tp, r.Offset, err)
			}
			return nil
		}
		for _, v := range results {
			switch v {
			case nil, false:
				continue
			case true:
				p.print(at, r)
			default:
				line, err := gojq.Marshal(v)
				if err != nil {
					return err
				}
				p.buf = append(append(p.buf, line...), '\n')
			}
			if p.limit = max(p.limit-1, -1); p.limit == 0 {
				return errEnough
			}
		}
		return nil
	}
	p.print(at, r)
	p.limit = max(p.limit-1, -1)
	return nil
}

func (p *printer) appendJSON(at *part, r *record.Record) []byte {
	p.jsonBuf = appendJSONRecord(p.jsonBuf[:0], at.topic, at.partition, r)
	return p.jsonBuf
}

func (p *printer) hasHeaders(r *record.Record) bool {
	for _, want := range p.filter.headers {
		found := false
		headers := r.Headers
		for {
			k, v, ok := headers.Next()
			if !ok {
				break
			}
			found = found || (bytes.Equal(k, want[0]) && bytes.Equal(v, want[1]))
		}
		if !found {
			return false
		}
	}
	return true
}

func (p *printer) print(at *part, r *record.Record) {
	switch p.style {
	case styleValueLine:
		p.buf = append(append(p.buf, r.Value...), '\n')
	case stylePrefixed:
		p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(len(r.Value)))
		p.buf = append(p.buf, r.Value...)
	case styleJSONL:
		p.buf = append(appendJSONRecord(p.buf, at.topic, at.partition, r), '\n')
	case styleJSON:
		var out bytes.Buffer
		_ = json.Indent(&out, p.appendJSON(at, r), "", "  ") // what we wrote ourselves is JSON
		p.buf = append(append(p.buf, out.Bytes()...), '\n')
	case styleYAML:
		var out bytes.Buffer
		_ = writeYAML(&out, json.RawMessage(p.appendJSON(at, r)))
		p.buf = append(append(p.buf, "---\n"...), out.Bytes()...)
	default:
		for i := range p.parts {
			if f := &p.parts[i]; f.field == 0 {
				p.buf = append(p.buf, f.literal...)
			} else {
				p.field(at, r, f.field)
			}
		}
	}
}

func (p *printer) field(at *part, r *record.Record, field byte) {
	switch field {
	case 'v':
		p.bytes(r.Value)
	case 'k':
		p.bytes(r.Key)
	case 't':
		p.buf = append(p.buf, at.topic...)
	case 'p':
		p.buf = appendInt(p.buf, int64(at.partition))
	case 'o':
		p.buf = appendInt(p.buf, int64(r.Offset))
	case 'd':
		p.buf = time.UnixMilli(r.Timestamp).UTC().AppendFormat(p.buf, "2006-01-02T15:04:05.000Z")
	case 'D':
		p.buf = appendInt(p.buf, r.Timestamp)
	case 's':
		p.buf = appendInt(p.buf, int64(len(r.Value)))
	case 'h':
		headers := r.Headers
		for i := 0; ; i++ {
			k, v, ok := headers.Next()
			if !ok {
				return
			}
			if i > 0 {
				p.buf = append(p.buf, ',')
			}
			p.buf = append(append(append(p.buf, k...), ':'), v...)
		}
	}
}

func (p *printer) bytes(v []byte) {
	switch {
	case v == nil:
		p.buf = append(p.buf, p.null...)
	case p.hex:
		p.buf = hex.AppendEncode(p.buf, v)
	default:
		p.buf = append(p.buf, v...)
	}
}

func appendInt(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }
