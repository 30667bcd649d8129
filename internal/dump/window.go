package dump

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/keeplog/keeplog/record"
)

// windowSize is how much of a file is in memory at a time, in bytes. Larger batches are read piece by piece.
const windowSize = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// window reads a file forward through one buffer.
type window struct {
	r    io.ReaderAt
	size int64 // nothing is read from there on
	buf  []byte
	at   int64 // of have[0]
	have []byte
}

func (w *window) reset(r io.ReaderAt, size int64) {
	if need := int(min(windowSize, max(size, 4<<10))); len(w.buf) < need {
		w.buf = make([]byte, need)
	}
	w.r, w.size, w.at, w.have = r, size, 0, nil
}

// view returns up to n bytes at pos, fewer only at the end of the file; n is at most windowSize. They are valid until the next call.
func (w *window) view(pos int64, n int) ([]byte, error) {
	n = int(min(int64(n), max(0, w.size-pos)))
	if skip := pos - w.at; skip >= 0 && skip+int64(n) <= int64(len(w.have)) {
		return w.have[skip : skip+int64(n)], nil
	}
	kept := 0
	if skip := pos - w.at; skip >= 0 && skip < int64(len(w.have)) {
		kept = copy(w.buf, w.have[skip:])
	}
	want := int(min(int64(len(w.buf)), w.size-pos))
	got, err := w.r.ReadAt(w.buf[kept:want], pos+int64(kept))
	w.at, w.have = pos, w.buf[:kept+got]
	if len(w.have) >= n {
		return w.have[:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) { // it was cut meanwhile
		w.size = pos + int64(len(w.have))
		return w.have, nil
	}
	return w.have, err
}

// crc computes the CRC-32C of a batch's covered bytes, reading it piece by piece where it does not fit.
func (w *window) crc(pos int64, size int) (uint32, error) {
	const covered = 21
	var sum uint32
	for done := covered; done < size; {
		part, err := w.view(pos+int64(done), min(size-done, windowSize))
		if err != nil {
			return 0, err
		}
		if len(part) == 0 {
			return 0, fmt.Errorf("%w: the file ends %d bytes into it", record.ErrTorn, done)
		}
		sum = crc32.Update(sum, castagnoli, part)
		done += len(part)
	}
	return sum, nil
}

// lines of a text file are read whole, up to this many bytes.
const maxTextFile = 64 << 20

// readAll reads a whole small file; the error says when it is larger than limit.
func readAll(r io.ReaderAt, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("%d bytes, at most %d are read", size, limit)
	}
	b := make([]byte, size)
	n, err := r.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}
