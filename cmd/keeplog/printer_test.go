package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/keeplog/keeplog/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func built(t testing.TB, change func(*record.BuilderOptions), values ...string) record.Batch {
	t.Helper()
	o := record.NewOptions()
	change(&o)
	b := record.NewBuilder(o)
	for _, v := range values {
		b.Append(1_700_000_000_000, []byte("k"), []byte(v))
	}
	batch, err := b.Batch(record.NewCodecs())
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func printAll(t testing.TB, flags *consumeFlags, c *chunk) string {
	t.Helper()
	var out bytes.Buffer
	a := &app{streams: streams{out: &out, err: io.Discard}}
	p, err := a.newPrinter(flags)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.chunk(c); err != nil {
		t.Fatal(err)
	}
	if err := p.flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Only what committed transactions and plain producers wrote is printed with --read-committed; markers never are.
func TestReadCommittedDropsAbortedTransactions(t *testing.T) {
	var log []byte
	add := func(offset record.Offset, pid record.ProducerID, marker record.ControlType, values ...string) {
		o := record.NewOptions()
		o.BaseOffset, o.ProducerID, o.Transactional = offset, pid, pid >= 0
		b := record.NewBuilder(o)
		if values == nil {
			o.Control = true
			b = record.NewBuilder(o)
			b.Append(0, []byte{0, 0, 0, byte(marker)}, []byte{0, 0, 0, 0, 0, 0})
		}
		for _, v := range values {
			b.Append(0, nil, []byte(v))
		}
		batch, err := b.Batch(record.NewCodecs())
		if err != nil {
			t.Fatal(err)
		}
		log = append(log, batch...)
	}
	add(0, 7, 0, "aborted")
	add(1, 8, 0, "committed")
	add(2, -1, 0, "plain")
	add(3, 7, record.ControlAbort)
	add(4, 7, 0, "committed later")
	add(5, 8, record.ControlCommit)
	add(6, 7, record.ControlCommit)
	add(7, 8, 0, "aborted too")
	add(8, 8, record.ControlAbort)
	aborted := []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 8, FirstOffset: 7}, {ProducerID: 7, FirstOffset: 0}}
	c := &chunk{part: &part{tp: tp{"t", 0}}, to: math.MaxInt64, batches: log, aborted: aborted}
	if d := cmp.Diff("committed\nplain\ncommitted later\n", printAll(t, &consumeFlags{format: `%v\n`, readCommitted: true}, c)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff("aborted\ncommitted\nplain\ncommitted later\naborted too\n", printAll(t, &consumeFlags{format: `%v\n`}, c)); d != "" {
		t.Error(d)
	}
}

// The JSON that is written by hand must read back as what it was made of.
func TestJSONRecordReadsBack(t *testing.T) {
	for _, v := range []string{"", "plain", "quote\" back\\ tab\t nl\n cr\r nul\x00 del\x7f é 世界 \u2028", "\xff\xfe", "{\"a\":1}"} {
		b := built(t, func(*record.BuilderOptions) {}, v)
		c := &chunk{part: &part{tp: tp{"t", 3}}, to: math.MaxInt64, batches: b}
		var out bytes.Buffer
		a := &app{streams: streams{out: &out, err: io.Discard}, flags: globalFlags{output: "jsonl"}}
		p, err := a.newPrinter(&consumeFlags{format: `%v\n`})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.chunk(c); err != nil {
			t.Fatal(err)
		}
		if err := p.flush(); err != nil {
			t.Fatal(err)
		}
		var back struct {
			Topic       string  `json:"topic"`
			Partition   int     `json:"partition"`
			Key         string  `json:"key"`
			Value       *string `json:"value"`
			ValueBase64 []byte  `json:"value_base64"`
		}
		if err := json.Unmarshal(out.Bytes(), &back); err != nil {
			t.Fatalf("%q: %v", out.String(), err)
		}
		got := string(back.ValueBase64)
		if back.Value != nil {
			got = *back.Value
		}
		if got != v || back.Topic != "t" || back.Partition != 3 || back.Key != "k" {
			t.Errorf("%q came back as %q in %s", v, got, out.String())
		}
	}
}

// The default format of plain records: no allocation per record.
func BenchmarkPrintValueLines(b *testing.B) {
	values := make([]string, 1000)
	for i := range values {
		values[i] = string(bytes.Repeat([]byte("x"), 200))
	}
	batch := built(b, func(*record.BuilderOptions) {}, values...)
	c := &chunk{part: &part{tp: tp{"t", 0}}, to: math.MaxInt64, batches: batch}
	a := &app{streams: streams{out: io.Discard, err: io.Discard}}
	p, err := a.newPrinter(&consumeFlags{format: `%v\n`})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(200 * 1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.chunk(c); err != nil {
			b.Fatal(err)
		}
	}
}
