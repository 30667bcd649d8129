package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A process that is paused, or a machine without power, takes connections or swallows them, and says nothing. Each try to reach one
// broker therefore has a part of the command's time only, and then counts as a connection that could not be made: so the client
// goes on with another broker, and asks who leads, instead of waiting for this one.
//
//	dial ─► first word within firstWord ──► answers, each within the client's request time-out
//	  │          └─ none: errSilent, as a dial that failed
//	  └─ silent a moment ago, and another broker answered since: errSilent at once

// errSilent is a broker that took the connection, or did not even refuse it, and said nothing.
var errSilent = errors.New("no answer")

// errAvoided is errSilent without another try, a moment after it.
var errAvoided = fmt.Errorf("%w", errSilent)

const (
	// firstWord is how long a broker may take for its first word, twice that after each failure in a row.
	firstWord = time.Second
	// silentFor is how long a silent broker is left alone while others answer.
	silentFor = 3 * time.Second
)

// patience is how long the next try to reach addr may last.
func (r *reach) patience(addr string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(firstWord<<min(r.tried[addr].row, 4), r.limit-r.limit/8)
}

// avoids says whether addr was silent a moment ago, while another one answered.
func (r *reach) avoids(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since, ok := r.silent[addr]; !ok || time.Since(since) > silentFor {
		return false
	}
	for other, t := range r.tried {
		if other != addr && t.err == nil {
			return true
		}
	}
	return false
}

// fellSilent notes that addr did not answer, and is the error to return.
func (r *reach) fellSilent(addr string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent[addr] = time.Now()
	return failedDial(errSilent)
}

// failedDial is err as the client knows it from a dial that failed.
func failedDial(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

// dialer connects to brokers, with TLS where tlsConfig is not nil.
func (r *reach) dialer(tlsConfig *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if r.avoids(addr) {
			return nil, failedDial(errAvoided)
		}
		end := time.Now().Add(r.patience(addr))
		limited, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		dial := (&net.Dialer{}).DialContext
		if tlsConfig != nil {
			dial = (&tls.Dialer{Config: tlsConfig}).DialContext
		}
		conn, err := dial(limited, network, addr)
		switch {
		case err == nil:
			return &firstWordConn{Conn: conn, reach: r, addr: addr, end: end}, nil
		case limited.Err() != nil && ctx.Err() == nil:
			return nil, r.fellSilent(addr)
		}
		return nil, err
	}
}

// firstWordConn is a connection on which the other side must say something before end.
type firstWordConn struct {
	net.Conn
	reach *reach
	addr  string
	end   time.Time
	heard atomic.Bool
}

// Read implements net.Conn.
func (c *firstWordConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(true)
	}
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && !c.heard.Load() && !time.Now().Before(c.end) {
		return n, c.reach.fellSilent(c.addr)
	}
	return n, err
}

// SetReadDeadline implements net.Conn.
func (c *firstWordConn) SetReadDeadline(t time.Time) error {
	if !c.heard.Load() && (t.IsZero() || t.After(c.end)) {
		t = c.end
	}
	return c.Conn.SetReadDeadline(t)
}

// firstToAnswer puts the seed that answers first at the front, so that a silent one costs no time.
func (r *reach) firstToAnswer(ctx context.Context, tlsConfig *tls.Config) []string {
	if len(r.seeds) < 2 {
		return r.seeds
	}
	ctx, cancel := context.WithTimeout(ctx, min(firstWord, r.limit))
	defer cancel()
	answers := make(chan int, len(r.seeds))
	for i, seed := range r.seeds {
		go func() {
			if !answersAt(ctx, withPort(seed), tlsConfig) {
				i = -1
			}
			answers <- i
		}()
	}
	for range r.seeds {
		if at := <-answers; at >= 0 {
			out := []string{r.seeds[at]}
			return append(append(out, r.seeds[:at]...), r.seeds[at+1:]...)
		}
	}
	return r.seeds
}

// withPort adds Kafka's port to an address that has none.
func withPort(seed string) string {
	if _, _, err := net.SplitHostPort(seed); err == nil {
		return seed
	}
	return net.JoinHostPort(seed, "9092")
}

// answersAt says whether something at addr answers an ApiVersions request before ctx ends.
func answersAt(ctx context.Context, addr string, tlsConfig *tls.Config) bool {
	dial := (&net.Dialer{}).DialContext
	if tlsConfig != nil {
		dial = (&tls.Dialer{Config: tlsConfig}).DialContext
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("keeplog")).AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 0)); err != nil {
		return false
	}
	var size [4]byte
	_, err = io.ReadFull(conn, size[:])
	return err == nil && binary.BigEndian.Uint32(size[:]) < 1<<20
}
