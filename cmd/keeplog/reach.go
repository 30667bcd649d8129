package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// reach remembers which addresses answered and which did not, so that a failure can be explained. The client calls it
// from many goroutines.
type reach struct {
	seeds []string
	limit time.Duration // of one try

	mu     sync.Mutex
	tried  map[string]attempt
	silent map[string]time.Time // when an address was last found silent
}

// attempt is the last try to connect to one address.
type attempt struct {
	node int32 // below 0: an address the user gave
	err  error // nil: it answered
	row  int   // failures since it last answered
}

func newReach(seeds []string, limit time.Duration) *reach {
	return &reach{seeds: seeds, limit: limit, tried: make(map[string]attempt), silent: make(map[string]time.Time)}
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (r *reach) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	key := net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
	r.mu.Lock()
	defer r.mu.Unlock()
	t := attempt{node: meta.NodeID, err: err, row: r.tried[key].row}
	if was, ok := r.tried[key]; ok && t.node < 0 {
		t.node = was.node // a broker's address that the user gave too
	}
	switch {
	case err == nil:
		t.row = 0
	case !errors.Is(err, errAvoided):
		t.row++
	}
	r.tried[key] = t
}

// failure is why a broker could not be reached the last time; nil when it could, or was not tried.
func (r *reach) failure(node int32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	for _, t := range r.tried {
		if t.node == node && t.err != nil {
			err = t.err
		} else if t.node == node {
			return nil
		}
	}
	return err
}

// explain says which of that many brokers cannot be reached; nil if every one that was tried answered.
func (r *reach) explain(err error, brokers int) *cliError {
	r.mu.Lock()
	defer r.mu.Unlock()
	answered, failedNode, failedSeed := "", "", ""
	for _, addr := range slices.Sorted(mapKeys(r.tried)) {
		t := r.tried[addr]
		switch {
		case t.err == nil:
			answered = addr
		case t.node >= 0:
			failedNode = addr
		default:
			failedSeed = addr
		}
	}
	switch {
	case failedNode != "":
		t := r.tried[failedNode]
		e := &cliError{
			msg:  fmt.Sprintf("cannot reach broker %d at %s (%s)", t.node, failedNode, netReason(t.err)),
			code: "UNREACHABLE", exit: exitUnreachable,
		}
		var dns *net.DNSError
		switch {
		case answered != "" && !slices.Contains(r.seeds, failedNode) && (brokers < 2 || errors.As(t.err, &dns)):
			e.advertised = true
			e.why = fmt.Sprintf("%s answered, and told this client to use the name %s", answered, failedNode)
			e.try = "set advertised.listeners to a name that clients can resolve and reach"
		case answered != "":
			e.why = fmt.Sprintf("it is down, or cannot be reached from here; %s answered", answered)
			e.try = "keeplog cluster health"
		default:
			if errors.Is(t.err, syscall.ECONNREFUSED) {
				e.why = "nothing listens there"
			}
			e.try = "start it, or another address: -b HOST:PORT"
		}
		return e
	case answered == "" && failedSeed != "":
		e := &cliError{
			msg:  fmt.Sprintf("cannot reach %s (%s)", failedSeed, netReason(r.tried[failedSeed].err)),
			code: "UNREACHABLE", exit: exitUnreachable,
		}
		if len(r.seeds) > 1 {
			e.msg = fmt.Sprintf("cannot reach any of %s (%s)", strings.Join(r.seeds, ","), netReason(r.tried[failedSeed].err))
		}
		if errors.Is(r.tried[failedSeed].err, syscall.ECONNREFUSED) {
			e.why = "nothing listens there"
		}
		e.try = "keeplog serve, or another address: -b HOST:PORT"
		return e
	case isNetwork(err) && answered == "":
		return &cliError{
			msg:  fmt.Sprintf("%s: no Kafka broker (%s)", strings.Join(r.seeds, ","), netReason(err)),
			code: "UNREACHABLE", exit: exitUnreachable, try: "-b HOST:PORT of a Kafka listener",
		}
	case isNetwork(err):
		return &cliError{
			msg:  fmt.Sprintf("%s: the connection broke (%s)", answered, netReason(err)),
			code: "UNREACHABLE", exit: exitUnreachable, try: "the same again; keeplog cluster health",
		}
	}
	return nil
}

func mapKeys(m map[string]attempt) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func isNetwork(err error) bool {
	var ne net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	return errors.As(err, &ne) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// netReason is the shortest true text for why a connection failed.
func netReason(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return "it closed the connection"
	case errors.Is(err, errSilent), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer"
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return "no answer"
	}
	return lastPart(err)
}

// lastPart cuts the chain of "x: y: z" that wrapped errors make.
func lastPart(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
