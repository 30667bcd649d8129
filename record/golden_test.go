package record

import (
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Where we differ from Kafka, and why.
var ours = map[string]struct {
	code int
	why  string
}{
	"not snappy":      {87, "Kafka has no code for it; a client would not know that trying again is useless"},
	"not lz4":         {87, "as above"},
	"endless varint":  {87, "as above"},
	"key length -2":   {87, "Kafka takes it for null; other readers fail"},
	"value length -2": {87, "as above"},
}

// Produced batches get the answers that a Kafka broker gave (testdata/wire/produce-cases.txt).
func TestAnswersOfKafka(t *testing.T) {
	data, err := os.ReadFile("../testdata/wire/produce-cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(data)) {
		parts := strings.Split(strings.TrimSpace(line), "|")
		if strings.HasPrefix(line, "#") || len(parts) != 6 {
			continue
		}
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		name, topic := parts[0], parts[1]
		code, err := strconv.Atoi(parts[3])
		if err != nil {
			continue // the connection was closed: a null field, which is not for this package
		}
		seen++
		t.Run(name, func(t *testing.T) {
			raw, err := hex.DecodeString(parts[2])
			if err != nil {
				t.Fatal(err)
			}
			if o, differs := ours[name]; differs {
				code = o.code
			}
			o := options()
			o.Compacted, o.LogAppendTime = topic == "compacted", topic == "appendtime"
			r, err := Validate(raw, o)
			if got := kafkaCode(err); got != code {
				t.Fatalf("%v (%d), Kafka says %d", err, got, code)
			}
			var list *RecordErrors
			var indexes []string
			if errors.As(err, &list) {
				for _, e := range list.Records {
					indexes = append(indexes, strconv.Itoa(int(e.Index)))
				}
			}
			if d := cmp.Diff(parts[4], strings.Join(indexes, ",")); d != "" {
				t.Fatal(d)
			}
			if stamped := parts[5] == "append time"; stamped != (r.Action == StampAppendTime) {
				t.Fatalf("%v, Kafka: %s", r.Action, parts[5])
			}
		})
	}
	if seen < 60 {
		t.Fatalf("%d cases", seen)
	}
}

func kafkaCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrCorrupt):
		return 2
	case errors.Is(err, ErrTooLarge):
		return 10
	case errors.Is(err, ErrInvalidTimestamp):
		return 32
	case errors.Is(err, ErrUnsupportedCodec):
		return 76
	case errors.Is(err, ErrInvalidRecord):
		return 87
	}
	return -1
}
