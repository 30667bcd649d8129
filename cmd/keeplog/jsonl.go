package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keeplog/keeplog/record"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A record in JSON, as consume prints it and produce --jsonl takes it:
//
//	{"topic":"t","partition":0,"offset":7,"timestamp":1700000000000,"key":"k","value":"v","headers":[{"key":"a","value":"b"}]}
//
// Bytes that are no UTF-8 stand in key_base64 and value_base64 instead. produce heeds key, value, headers and timestamp;
// a value that is no text (an object, a number) is sent as its JSON. A tombstone says "value":null: a record without any
// value is taken for a slip.
type jsonRecord struct {
	Timestamp   *int64          `json:"timestamp"`
	Key         *string         `json:"key"`
	KeyBase64   []byte          `json:"key_base64"`
	Value       json.RawMessage `json:"value"` // nil: not there
	ValueBase64 []byte          `json:"value_base64"`
	Headers     []struct {
		Key         string  `json:"key"`
		Value       *string `json:"value"`
		ValueBase64 []byte  `json:"value_base64"`
	} `json:"headers"`
}

// jsonLines yields one record a line of JSON.
type jsonLines struct{ *pieces }

func (j jsonLines) next(r *kgo.Record) error {
	line, err := j.pieces.next()
	if err != nil {
		return err
	}
	var in jsonRecord
	if err := json.Unmarshal(line, &in); err != nil {
		return j.bad(jsonReason(line, err))
	}
	if in.Value == nil && in.ValueBase64 == nil {
		return j.bad(`the object has no "value" (a tombstone has "value":null)`)
	}
	r.Key, r.Value = in.KeyBase64, in.ValueBase64
	if in.Key != nil {
		r.Key = []byte(*in.Key)
	}
	if in.Value != nil && string(in.Value) != "null" {
		raw := bytes.TrimSpace(in.Value)
		r.Value = raw
		if raw[0] == '"' {
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return j.bad(err.Error())
			}
			r.Value = []byte(s)
		}
	}
	for _, h := range in.Headers {
		header := kgo.RecordHeader{Key: h.Key, Value: h.ValueBase64}
		if h.Value != nil {
			header.Value = []byte(*h.Value)
		}
		r.Headers = append(r.Headers, header)
	}
	if in.Timestamp != nil {
		r.Timestamp = time.UnixMilli(*in.Timestamp)
	}
	return nil
}

// jsonReason says in a person's words why line is not a record.
func jsonReason(line []byte, err error) string {
	var wrong *json.UnmarshalTypeError
	switch {
	case !bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")):
		return "no JSON object"
	case errors.As(err, &wrong) && wrong.Field != "":
		return fmt.Sprintf("%s cannot be a JSON %s", wrong.Field, wrong.Value)
	}
	return "no JSON object: " + err.Error()
}

// parseHeaders reads "k:v,k:v"; an empty text is no headers.
func parseHeaders(s string) ([]kgo.RecordHeader, error) {
	if s == "" {
		return nil, nil
	}
	var out []kgo.RecordHeader
	for _, one := range strings.Split(s, ",") {
		k, v, ok := strings.Cut(one, ":")
		if !ok {
			return nil, usagef("header %q: not KEY:VALUE", one)
		}
		out = append(out, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	return out, nil
}

// appendJSONRecord appends r as one JSON object.
func appendJSONRecord(b []byte, topic string, partition int32, r *record.Record) []byte {
	b = append(b, `{"topic":`...)
	b = appendJSONText(b, []byte(topic))
	b = append(b, `,"partition":`...)
	b = appendInt(b, int64(partition))
	b = append(b, `,"offset":`...)
	b = appendInt(b, int64(r.Offset))
	b = append(b, `,"timestamp":`...)
	b = appendInt(b, r.Timestamp)
	b = append(b, ',')
	b = appendJSONField(b, "key", r.Key)
	b = append(b, ',')
	b = appendJSONField(b, "value", r.Value)
	b = append(b, `,"headers":[`...)
	headers := r.Headers
	for i := 0; ; i++ {
		k, v, ok := headers.Next()
		if !ok {
			break
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"key":`...)
		b = appendJSONText(b, k)
		b = append(b, ',')
		b = appendJSONField(b, "value", v)
		b = append(b, '}')
	}
	return append(b, ']', '}')
}

// appendJSONField appends "name":text, "name":null, or "name_base64":… where the bytes are no UTF-8.
func appendJSONField(b []byte, name string, v []byte) []byte {
	b = append(b, '"')
	b = append(b, name...)
	switch {
	case v == nil:
		return append(b, `":null`...)
	case utf8.Valid(v):
		return appendJSONText(append(b, `":`...), v)
	}
	b = append(b, `_base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, v)
	return append(b, '"')
}

// appendJSONText appends a JSON string. Bytes that are no UTF-8 become the replacement character.
func appendJSONText(b, s []byte) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	if !utf8.Valid(s) {
		s = bytes.ToValidUTF8(s, []byte("\ufffd"))
	}
	from := 0
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		from = i + 1
	}
	return append(append(b, s[from:]...), '"')
}
