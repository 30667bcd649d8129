package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/metrics"
	"time"

	"github.com/itchyny/gojq"
)

// Bounds of one call of a jq expression.
const (
	jqTime    = 500 * time.Millisecond
	jqMemory  = 256 << 20 // growth of the heap, bytes
	jqResults = 10_000
	jqLook    = 5 * time.Millisecond // how often a call that takes long is looked at
)

var (
	errJQTime   = errors.New("it ran for longer than " + jqTime.String())
	errNoJSON   = errors.New("no JSON")
	errJQMemory = errors.New("it took more than 256 MiB")
)

// jqFilter is a compiled expression.
type jqFilter struct{ code *gojq.Code }

func newJQ(expr string) (*jqFilter, error) {
	query, err := gojq.Parse(expr)
	if err != nil {
		return nil, usagef("--jq: %v", err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return nil, usagef("--jq: %v", err)
	}
	return &jqFilter{code}, nil
}

// run gives the record to the expression and returns all results.
func (j *jqFilter) run(recordJSON []byte) ([]any, error) {
	var in map[string]any
	if err := decodeJSON(recordJSON, &in); err != nil {
		return nil, err
	}
	var inner any
	if s, ok := in["value"].(string); ok && decodeJSON([]byte(s), &inner) == nil {
		in["value"] = inner
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer watchCall(cancel)()
	var out []any
	iter := j.code.RunWithContext(ctx, in)
	for {
		v, ok := iter.Next()
		if !ok {
			return out, nil
		}
		if err, isErr := v.(error); isErr {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			var halt *gojq.HaltError
			if errors.As(err, &halt) && halt.Value() == nil {
				return out, nil
			}
			return nil, err
		}
		if out = append(out, v); len(out) > jqResults {
			return nil, fmt.Errorf("more than %d results", jqResults)
		}
	}
}

// decodeJSON reads one JSON text and leaves its numbers as they stand, however large.
func decodeJSON(text []byte, to any) error {
	if !json.Valid(text) {
		return errNoJSON
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(to)
}

// watchCall cancels a call that takes too long or too much. The function it returns ends the watch.
func watchCall(cancel context.CancelCauseFunc) func() {
	started := time.Now()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	var before uint64
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(jqLook, func() {
		<-ready
		metrics.Read(heap)
		now := heap[0].Value.Uint64()
		if before == 0 {
			before = now
		}
		switch {
		case time.Since(started) > jqTime:
			cancel(errJQTime)
		case now > before+jqMemory:
			cancel(errJQMemory)
		default:
			timer.Reset(jqLook)
		}
	})
	close(ready)
	return func() { timer.Stop() }
}
