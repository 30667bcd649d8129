package isr

import (
	"time"

	"github.com/keeplog/keeplog/record"
)

// waiter is a produce request's part for one partition, written and not yet answered.
type waiter struct {
	end      record.Offset // exclusive: answered when the awaited end is at least this
	deadline time.Time     // monotonic
	result   ProduceResult
	done     func(ProduceResult)
}

// waitQueue holds waiters in the order of their writes. A repeated batch may stand behind later ends than its own; it is
// then answered with them.
type waitQueue struct {
	items []waiter
	head  int
}

func (q *waitQueue) empty() bool { return q.head == len(q.items) }

func (q *waitQueue) push(w waiter) {
	if q.head > 0 && q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	q.items = append(q.items, w)
}

// popReached moves the waiters whose end is reached to out.
func (q *waitQueue) popReached(end record.Offset, out []waiter) []waiter {
	for q.head < len(q.items) && q.items[q.head].end <= end {
		out = append(out, q.items[q.head])
		q.items[q.head] = waiter{}
		q.head++
	}
	q.compact()
	return out
}

// popExpired moves the waiters whose time is up to out; the others keep their order.
func (q *waitQueue) popExpired(now time.Time, out []waiter) []waiter {
	kept := q.head
	for i := q.head; i < len(q.items); i++ {
		if w := q.items[i]; !w.deadline.After(now) {
			out = append(out, w)
		} else {
			q.items[kept] = w
			kept++
		}
	}
	clear(q.items[kept:])
	q.items = q.items[:kept]
	return out
}

// popAll moves every waiter to out.
func (q *waitQueue) popAll(out []waiter) []waiter {
	out = append(out, q.items[q.head:]...)
	clear(q.items)
	q.items, q.head = q.items[:0], 0
	return out
}

// compact gives the space of answered waiters back once it is most of the slice.
func (q *waitQueue) compact() {
	if q.head < 64 || q.head*2 < len(q.items) {
		return
	}
	n := copy(q.items, q.items[q.head:])
	clear(q.items[n:])
	q.items, q.head = q.items[:n], 0
}
