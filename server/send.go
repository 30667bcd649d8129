package server

import (
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/keeplog/keeplog/server/api"
)

const (
	// sendBatch is the number of answers gathered into one write.
	sendBatch = 32
	// writeStep bounds the bytes of one write call; writePieces the slices of one, below the kernel's 1,024.
	writeStep   = 1 << 20
	writePieces = 512
	// copyStep is the memory that one connection's copied spans take at a time: it stays taken while the client does not read.
	// copyLeast is what they get by when Server.copies is used up.
	copyStep  = 64 << 10
	copyLeast = 4 << 10
	// sendfileMin is the default of Options.SendfileMin: below it copying costs less processor time (BenchmarkSpans).
	sendfileMin = 64 << 10
)

// writerState is the memory of whoever holds the write token.
type writerState struct {
	batch [sendBatch]*slot
	iov   net.Buffers
	used  net.Buffers // iov's backing array, kept because a write consumes iov
	size  int         // bytes in iov
	// copied is the buffer that iov's copies of spans lie in, nil for none; filled is how much of it is used, charged what it took
	// from Server.copies.
	copied  *Buffer
	filled  int
	charged int64
}

// send writes the answers of a batch in order. An answer that closes the connection ends the batch with its cause.
func (c *conn) send(batch []*slot) (err error) {
	defer func() {
		c.dropIOV()
		c.writeSince.Store(0)
	}()
	for _, s := range batch {
		a := &s.answer
		if a.Close != nil {
			if err := c.flush(); err != nil {
				return err
			}
			return fmt.Errorf("key %d version %d: %w", s.call.Key, s.call.Version, a.Close)
		}
		if a.None {
			continue
		}
		if err := c.sendBytes(a.Head); err != nil {
			return err
		}
		for i := range a.Parts {
			if err := c.sendPart(&a.Parts[i]); err != nil {
				return err
			}
		}
	}
	return c.flush()
}

// sendBytes adds bytes to the gathered write. They stay untouched until the next flush.
func (c *conn) sendBytes(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), writeStep-c.out.size)
		c.out.used = append(c.out.used, b[:n])
		c.out.size += n
		b = b[n:]
		if c.out.size >= writeStep || len(c.out.used) >= writePieces {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *conn) sendPart(p *api.Part) error {
	if p.Span == nil {
		return c.sendBytes(p.Bytes)
	}
	n := p.Span.Len()
	if c.raw != nil && c.srv.o.Send == SendAuto && n >= c.srv.o.SendfileMin {
		if fd, pos, ok := p.Span.File(); ok {
			if err := c.flushMore(); err != nil {
				return err
			}
			return c.sendfile(int(fd), pos, n)
		}
	}
	return c.copySpan(p.Span, n)
}

// copySpan reads a span in pieces into the connection's buffer and adds them to the gathered write. When the buffer is full it is
// written: a client that does not read holds one buffer, however many spans its answers have.
func (c *conn) copySpan(s api.Span, n int) error {
	for off := 0; off < n; {
		room := c.room(n - off)
		if len(room) == 0 {
			if err := c.flush(); err != nil {
				return err
			}
			continue
		}
		b := room[:min(n-off, len(room))]
		if got, err := s.ReadAt(b, int64(off)); got < len(b) {
			return fmt.Errorf("read of a log file: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		c.out.filled += len(b)
		off += len(b)
		if err := c.sendBytes(b); err != nil {
			return err
		}
	}
	return nil
}

// room is what is free of the connection's buffer, which it gets here when it has none: no larger than want asks for.
func (c *conn) room(want int) []byte {
	o := &c.out
	if o.copied == nil {
		size := copyLeast
		if want > copyLeast && c.srv.copies.TryAcquire(copyStep) {
			size, o.charged = copyStep, copyStep
		}
		o.copied, o.filled = c.srv.pool.Get(size), 0
	}
	free := o.copied.Bytes()[o.filled:]
	return free[:min(len(free), writeStep-o.size)] // a piece is never cut by a flush, which gives the buffer back
}

// flush writes what was gathered.
func (c *conn) flush() error {
	if c.raw != nil {
		return c.flushWith(0)
	}
	if c.out.size == 0 {
		return nil
	}
	c.writeSince.Store(c.now())
	c.out.iov = c.out.used
	_, err := c.out.iov.WriteTo(c.net)
	c.dropIOV()
	return err
}

// flushMore writes what was gathered and tells the kernel that a file follows, so that the head does not leave as a packet of its own.
func (c *conn) flushMore() error { return c.flushWith(unix.MSG_MORE) }

// flushWith writes what was gathered; whatever the client takes is progress.
func (c *conn) flushWith(flags int) error {
	if c.out.size == 0 {
		return nil
	}
	c.writeSince.Store(c.now())
	c.out.iov = c.out.used
	var failure error
	err := c.raw.Write(func(sock uintptr) bool {
		for len(c.out.iov) > 0 {
			n, err := unix.SendmsgBuffers(int(sock), c.out.iov, nil, nil, flags|unix.MSG_NOSIGNAL)
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
			case err != nil:
				failure = fmt.Errorf("sendmsg: %w", err)
				return true
			default:
				c.out.iov = consume(c.out.iov, n)
				c.writeSince.Store(c.now())
			}
		}
		return true
	})
	c.dropIOV()
	return errors.Join(err, failure)
}

// consume takes n bytes off the front.
func consume(l net.Buffers, n int) net.Buffers {
	for len(l) > 0 && n >= len(l[0]) {
		n -= len(l[0])
		l = l[1:]
	}
	if n > 0 {
		l[0] = l[0][n:]
	}
	return l
}

func (c *conn) dropIOV() {
	clear(c.out.used)
	c.out.used, c.out.iov, c.out.size = c.out.used[:0], nil, 0
	if c.out.copied != nil {
		c.out.copied.Release()
		c.srv.copies.Release(c.out.charged)
		c.out.copied, c.out.charged = nil, 0
	}
}

// sendfile moves n bytes at pos of a file to the socket without copying them through this process. The file's own cursor is not used, so
// any number of connections may send from one descriptor.
func (c *conn) sendfile(fd int, pos int64, n int) error {
	var failure error
	c.writeSince.Store(c.now())
	err := c.raw.Write(func(sock uintptr) bool {
		for n > 0 {
			m, err := unix.Sendfile(int(sock), fd, &pos, min(n, writeStep))
			if m > 0 {
				n -= m
				c.writeSince.Store(c.now())
			}
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR, err == nil && m > 0:
			case err == nil:
				failure = fmt.Errorf("sendfile: %w", io.ErrUnexpectedEOF)
				return true
			default:
				failure = fmt.Errorf("sendfile: %w", err)
				return true
			}
		}
		return true
	})
	return errors.Join(err, failure)
}
