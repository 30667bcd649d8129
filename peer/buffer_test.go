package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// counted says how much memory a buffer had taken when its bytes ended.
type counted struct {
	r    io.Reader
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read += n
	return n, err
}

// Answers of any size come whole out of a buffer that was used for others before.
func TestBufferFills(t *testing.T) {
	var c Client
	c.small.New = func() any { return new(buffer) }
	c.large.New = c.small.New
	data := make([]byte, 40<<20)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(data)
	sizes := []int{0, 1, smallBuffer - 1, smallBuffer, smallBuffer + 1, fillStep - 1, fillStep, fillStep + 1, 3 << 20, keepBuffer, keepBuffer + 1, 40 << 20}
	for _, n := range append(slices.Clone(sizes), 5, 3<<20+7, smallBuffer+9, 17<<20, 1<<20+1) {
		b := c.buffer(n)
		if err := b.fill(bytes.NewReader(data), n); err != nil {
			t.Fatal(n, err)
		}
		if !bytes.Equal(b.b, data[:n]) {
			t.Fatalf("an answer of %d bytes is another", n)
		}
		b.release()
	}
}

// A broker that names a size and does not send so much costs no more memory than sixteen times what it has sent, and 1 MiB.
func TestBufferTakesWhatArrives(t *testing.T) {
	for _, sent := range []int{0, 10, fillStep - 1, fillStep, 2 << 20, keepBuffer - 1, keepBuffer, 40 << 20} {
		var b buffer
		r := &counted{r: bytes.NewReader(make([]byte, sent))}
		err := b.fill(r, maxFetched)
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes sent: %v", sent, err)
		}
		if r.read != sent || cap(b.b) > fillStep+keepBuffer/fillStep*sent {
			t.Errorf("%d bytes sent, %d read: %d bytes taken", sent, r.read, cap(b.b))
		}
	}
}

// A large answer is read in few pieces, and neither it nor the small one behind it is waited for longer than it takes to come.
func TestLargeAnswersComeInPieces(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sizes := []int{0, 100, 256<<10 - 1, 256 << 10, patience, 7, patience + 1, 3*patience + 12345, 1, 9 * patience, 200 << 10, 5 * patience, 3}
	body := func(i int) []byte { return bytes.Repeat([]byte{byte(i + 1)}, sizes[i]) }
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for i := range sizes {
			// What is sent next is asked for, so that the reader of the one before has come to rest.
			frame := binary.BigEndian.AppendUint32(nil, uint32(4+sizes[i]))
			frame = append(binary.BigEndian.AppendUint32(frame, uint32(i)), body(i)...)
			for len(frame) > 0 {
				n, err := conn.Write(frame[:min(len(frame), 100_003)])
				if err != nil {
					t.Error(err)
					return
				}
				frame = frame[n:]
				runtime.Gosched()
			}
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	k := &link{client: New(Options{}), limit: maxFetched, conn: conn, raw: raw, in: bufio.NewReaderSize(conn, 4<<10)}
	defer k.client.Close()
	for i := range sizes {
		buf, got, err := k.answer(int32(i), true)
		if err != nil {
			t.Fatalf("answer %d, of %d bytes: %v", i, sizes[i], err)
		}
		if !bytes.Equal(got, body(i)) {
			t.Errorf("answer %d, of %d bytes, is another", i, sizes[i])
		}
		buf.release()
		var low int
		if err := raw.Control(func(fd uintptr) { low, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT) }); err != nil || low != 1 {
			t.Fatalf("after answer %d, of %d bytes, the next one is waited for until %d bytes are there (%v)", i, sizes[i], low, err)
		}
		if _, err := conn.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
}
