package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// Pieces must be those of strings.Split, whatever the reads are cut into, and those over the limit errors in their places.
func TestPiecesAreThoseOfSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		term := rapid.SampledFrom([]string{"\n", "ab", "\x00\x00", "aab"}).Draw(t, "terminator")
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "\n", "\x00", "aaaaaaaa", term})).Draw(t, "text"), "")
		limit := rapid.IntRange(0, 12).Draw(t, "limit")
		var r io.Reader = strings.NewReader(text)
		if rapid.Bool().Draw(t, "one byte a read") {
			r = iotest.OneByteReader(r)
		}
		var want []string
		split := strings.Split(text, term)
		if split[len(split)-1] == "" {
			split = split[:len(split)-1]
		}
		for i, s := range split {
			if len(s) > limit {
				s = fmt.Sprintf("line %d: %d bytes", i+1, len(s))
			}
			want = append(want, s)
		}
		var got []string
		p := newPieces(r, []byte(term), limit)
		for {
			piece, err := p.next()
			var bad *badInput
			if errors.As(err, &bad) {
				head, _, _ := strings.Cut(bad.Error(), ",")
				got = append(got, head)
				continue
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				break
			}
			got = append(got, string(piece))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

// Pieces stay as they are while later ones are read, over many chunks, and memory does not grow with a long line.
func TestPiecesStayAndMemoryIsBounded(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	var text bytes.Buffer
	var want [][]byte
	for range 3000 {
		line := bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, rng.IntN(2000))
		want = append(want, line)
		text.Write(append(bytes.Clone(line), '\n'))
	}
	p := newPieces(&text, []byte("\n"), 1<<20)
	var got [][]byte
	for {
		piece, err := p.next()
		if err != nil {
			break
		}
		got = append(got, piece)
	}
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("line %d changed", i+1)
		}
	}

	p = newPieces(io.MultiReader(io.LimitReader(endless{}, 64<<20), strings.NewReader("\nafter\n")), []byte("\n"), 1000)
	_, err := p.next()
	if err == nil || err.Error() != "line 1: 67108864 bytes, the largest that the topic takes is 1000" {
		t.Fatal(err)
	}
	if piece, err := p.next(); string(piece) != "after" || err != nil {
		t.Fatalf("%q, %v", piece, err)
	}
	if len(p.buf) > 2*inputChunk {
		t.Fatalf("a buffer of %d bytes", len(p.buf))
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func TestLengthPrefixedInput(t *testing.T) {
	in := &prefixed{r: strings.NewReader("\x00\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x05large\x00\x00\x00\x02zz\x00\x00\x00\x09cut"), limit: 4}
	var got []string
	for {
		var r kgo.Record
		err := in.next(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			got = append(got, "error "+err.Error())
			var bad *badInput
			if !errors.As(err, &bad) {
				break
			}
			continue
		}
		got = append(got, string(r.Value))
	}
	want := []string{"a", "", "error record 3: 5 bytes, the largest that the topic takes is 4", "zz", "error record 5: 9 bytes, the largest that the topic takes is 4"}
	if len(got) > 4 {
		got, want = got[:4], want[:4] // the last is larger than the limit and cut short: either error is right
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

func TestParseSpan(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	none := point{kind: pointNone}
	for in, want := range map[string]span{
		"start":                        {point{}, none},
		"end":                          {point{kind: pointEnd}, none},
		"0":                            {point{pointOffset, 0}, none},
		"9223372036854775807":          {point{pointOffset, 1<<63 - 1}, none},
		"+5":                           {point{pointAfter, 5}, none},
		"-5":                           {point{pointBefore, 5}, none},
		"5-9":                          {point{pointOffset, 5}, point{pointOffset, 10}},
		"5-5":                          {point{pointOffset, 5}, point{pointOffset, 6}},
		"@1700000000123":               {point{pointTime, 1_700_000_000_123}, none},
		"@-1h":                         {point{pointTime, 1_700_000_000_000 - 3_600_000}, none},
		"@-2d":                         {point{pointTime, 1_700_000_000_000 - 2*86_400_000}, none},
		"@-1h--30m":                    {point{pointTime, 1_700_000_000_000 - 3_600_000}, point{pointTime, 1_700_000_000_000 - 1_800_000}},
		"@1970-01-01T00:00:01Z":        {point{pointTime, 1000}, none},
		"@1970-01-01T01:00:01+01:00":   {point{pointTime, 1000}, none},
		"@1970-01-02":                  {point{pointTime, 86_400_000}, none},
		"@1970-01-02-1970-01-03":       {point{pointTime, 86_400_000}, point{pointTime, 2 * 86_400_000}},
		"@1000-2000":                   {point{pointTime, 1000}, point{pointTime, 2000}},
		"@1970-01-01T00:00:01Z-now":    {point{pointTime, 1000}, point{pointTime, 1_700_000_000_000}},
		"@1970-01-01T00:00:01.5Z-2000": {point{pointTime, 1500}, point{pointTime, 2000}},
	} {
		got, err := parseSpan(in, now)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "5-", "-", "9-5", "@", "@x", "@2000-1000", "--5", "+-5", "9223372036854775808", "0x10", "1-2-3", "@-"} {
		if got, err := parseSpan(in, now); err == nil {
			t.Errorf("%q is taken for %v", in, got)
		}
	}
}

func TestYAML(t *testing.T) {
	var out bytes.Buffer
	err := writeYAML(&out, struct {
		Version int              `json:"version"`
		Empty   []int            `json:"empty"`
		None    map[string]int   `json:"none"`
		Null    *string          `json:"null"`
		Texts   []string         `json:"texts"`
		Nested  [][]int          `json:"nested"`
		Objects []map[string]any `json:"objects"`
	}{
		1,
		[]int{},
		map[string]int{},
		nil,
		[]string{"plain", "", "true", "1", "a: b", "line\nbreak", "- x"},
		[][]int{{1, 2}, {}},
		[]map[string]any{{"a": 1, "b": map[string]any{"c": false}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `version: 1
empty: []
none: {}
"null": null
texts:
  - plain
  - ""
  - "true"
  - "1"
  - "a: b"
  - "line\nbreak"
  - "- x"
nested:
  - - 1
    - 2
  - []
objects:
  - a: 1
    b:
      c: false
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Fatal(d)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"orders", "payments", "x"}
	for in, want := range map[string]string{"order": "orders", "Order": "orders", "ordres": "orders", "paymnt": "payments", "users": "", "y": "", "orders-by-day": ""} {
		if got := nearest(in, names); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 20: "1 MiB", 5 << 30: "5 GiB", -2048: "-2 KiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
