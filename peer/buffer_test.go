package peer

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
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
