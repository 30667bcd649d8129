package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"
)

// told is a writer that another goroutine waits for.
type told struct {
	mu    sync.Mutex
	text  bytes.Buffer
	first chan struct{}
	once  sync.Once
}

func (w *told) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.once.Do(func() { close(w.first) })
	return w.text.Write(p)
}

// Ctrl-C is an answer to a question: nothing is done.
func TestInterruptAtAQuestion(t *testing.T) {
	nobody, typing := io.Pipe()
	defer typing.Close()
	w := &told{first: make(chan struct{})}
	a := &app{streams: streams{in: nobody, err: w, inTTY: true}}
	ctx, cancel := context.WithCancelCause(context.Background())
	answer := make(chan error, 1)
	go func() { answer <- a.confirm(ctx, "delete everything") }()
	<-w.first
	cancel(errInterrupted)
	select {
	case err := <-answer:
		if !errors.Is(err, errInterrupted) {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the question is still there")
	}
}

// Only yes is yes.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "": false, "yy\n": false} {
		a := &app{streams: streams{in: bytes.NewBufferString(answer), err: io.Discard, inTTY: true}}
		if err := a.confirm(t.Context(), "delete everything"); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
}
