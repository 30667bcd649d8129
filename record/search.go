package record

import (
	"errors"
	"io"
)

// FindBatch looks at every byte from o.Start on for a whole batch with a right CRC and returns the position of the first,
// or found false. It is for telling a torn end from damage with batches behind it, so it is slow on purpose: a place
// counts only if its header is one that a broker could have written, with a base offset of at least lowest, and the CRC
// is then checked in the other half of the buffer, which must have 8 KiB or more. Errors are those of r.
func FindBatch(r io.ReaderAt, o ScanOptions, lowest Offset) (at Position, found bool, err error) {
	half := len(o.Buffer) / 2
	window, rest := o.Buffer[:half], o.Buffer[half:]
	for start := o.Start; start+HeaderSize <= o.End; {
		n, err := r.ReadAt(window[:min(int64(half), int64(o.End-start))], int64(start))
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, false, &PlaceError{File: o.File, Position: start, Err: err}
		}
		for i := 0; i+HeaderSize <= n; i++ {
			p := start + Position(i)
			if window[i+atMagic] != Magic || !plausible(Batch(window[i:n]), lowest, int64(o.End-p)) {
				continue
			}
			s := NewScanner(r, ScanOptions{File: o.File, Start: p, End: o.End, Buffer: rest, CRC: true})
			if s.Scan() {
				return p, true, nil
			}
			if !errors.Is(s.Err(), ErrCorrupt) && !errors.Is(s.Err(), ErrTorn) {
				return 0, false, s.Err()
			}
		}
		if n < HeaderSize {
			break
		}
		start += Position(n - HeaderSize + 1)
	}
	return 0, false, nil
}

// plausible says whether a header could be one that a broker wrote, with left bytes in the file from its start on.
func plausible(b Batch, lowest Offset, left int64) bool {
	size, err := ParseHeader(b, 0)
	return err == nil && int64(size) <= left && b.BaseOffset() >= lowest && b.LastOffsetDelta() >= 0 &&
		b.Count() >= 0 && int64(b.Count()) <= int64(b.LastOffsetDelta())+1 && b.Codec().Known() &&
		b.PartitionLeaderEpoch() >= NoEpoch
}
