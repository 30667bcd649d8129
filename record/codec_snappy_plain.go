package record

import "encoding/binary"

// The decoder knows an extension of the snappy format, a short copy from offset 0 for "the last offset again", that other
// readers lack: a block is looked through for it before it is unpacked. The elements of a block are a chain, each begins
// where the one before ends, and following it waits for memory at every link. So four lanes go at once, from four places
// of the block:
//
//	│ lane 0 ──▶      │ lane 1 ──▶      │ lane 2 ──▶      │ lane 3 ──▶      │
//
// Only lane 0 begins at an element for sure. But lanes that begin inside of one meet the right chain soon, and from then
// on they are on it: where a lane ends, the next one is followed again from its start until both meet.

// snappySteps are the sizes of elements by their first byte; 0: a literal with its length in the bytes that follow.
var snappySteps = func() (steps [256]uint8) {
	for tag := range steps {
		switch tag & 3 {
		case 0:
			if n := tag >> 2; n < 60 {
				steps[tag] = uint8(n) + 2
			}
		default:
			steps[tag] = [...]uint8{1: 2, 2: 3, 3: 5}[tag&3]
		}
	}
	return steps
}()

// snappyStep is the size of the element at b[i], found with its first bit set where it is the extension. It reads one byte
// behind i, and more only where the literal is long.
func snappyStep(b []byte, i int) (step int, found uint32) {
	two := uint32(binary.LittleEndian.Uint16(b[i:]))
	if step = int(snappySteps[two&0xff]); step == 0 {
		step = snappyLong(b, i)
	}
	return step, snappyExtension(two)
}

// snappyExtension has its first bit set where two bytes are the extension: looked at are the two bits of the kind, three
// high bits of the offset and its low byte.
func snappyExtension(two uint32) uint32 { return (two&0xFFE3 ^ 1) - 1 }

// snappyLong is the size of a long literal. It is rare, and kept out of line.
//
//go:noinline
func snappyLong(b []byte, at int) int {
	b = b[at:]
	extra := int(b[0]>>2) - 59
	step := 2 + extra
	for i := min(extra, len(b)-1); i > 0; i-- {
		step += int(b[i]) << (8 * (i - 1))
	}
	return step
}

// plainSnappy tells whether a block, without its size, keeps to the plain format. Elements that run past the end are left
// to the decoder.
func plainSnappy(b []byte) bool {
	const lanes, least = 4, 1 << 10
	if len(b) < least {
		_, extended := snappyChain(b, 0, len(b))
		return !extended
	}
	var at [lanes]int
	var starts [lanes + 1]int
	for i := range lanes {
		starts[i] = len(b) / lanes * i
		at[i] = starts[i]
	}
	starts[lanes] = len(b)
	found := snappyLanes(b, &at, &starts)
	for i := range lanes {
		var more bool
		at[i], more = snappyChain(b, at[i], starts[i+1])
		found = found || more
	}
	pos := at[0]
	for i := 1; i < lanes; i++ {
		var more bool
		pos, more = snappyMeet(b, pos, span{starts[i], starts[i+1], at[i]})
		found = found || more
	}
	if found { // perhaps by a lane before it was on the chain
		_, found = snappyChain(b, 0, len(b))
	}
	return !found
}

// snappyLanes follows all chains while none is at its end.
func snappyLanes(b []byte, at *[4]int, starts *[5]int) (extended bool) {
	p, q, r, s := at[0], at[1], at[2], at[3]
	end := len(b) - 1
	pe, qe, re, se := starts[1], starts[2], starts[3], end
	var found uint32
	for p < pe && q < qe && r < re && s < se {
		i, j := uint32(binary.LittleEndian.Uint16(b[p:])), uint32(binary.LittleEndian.Uint16(b[q:]))
		k, l := uint32(binary.LittleEndian.Uint16(b[r:])), uint32(binary.LittleEndian.Uint16(b[s:]))
		found |= snappyExtension(i) | snappyExtension(j) | snappyExtension(k) | snappyExtension(l)
		ni, nj, nk, nl := int(snappySteps[i&0xff]), int(snappySteps[j&0xff]), int(snappySteps[k&0xff]), int(snappySteps[l&0xff])
		if ni == 0 {
			ni = snappyLong(b, p)
		}
		if nj == 0 {
			nj = snappyLong(b, q)
		}
		if nk == 0 {
			nk = snappyLong(b, r)
		}
		if nl == 0 {
			nl = snappyLong(b, s)
		}
		p, q, r, s = p+ni, q+nj, r+nk, s+nl
	}
	*at = [4]int{p, q, r, s}
	return found>>31 != 0
}

// snappyChain follows one chain from i until it is at or behind end.
func snappyChain(b []byte, i, end int) (at int, extended bool) {
	var found uint32
	for end = min(end, len(b)-1); i < end; {
		n, e := snappyStep(b, i)
		i += n
		found |= e
	}
	return i, found>>31 != 0
}

// span is a part of a block that was followed from start, ending at at.
type span struct{ start, end, at int }

// snappyMeet follows the right chain from pos into the part, and leaves the rest to the lane of that as soon as they meet.
func snappyMeet(b []byte, pos int, of span) (at int, extended bool) {
	var found uint32
	end := min(of.end, len(b)-1)
	for lane := of.start; pos < end; {
		switch {
		case pos == lane:
			return of.at, found>>31 != 0
		case pos < lane:
			n, e := snappyStep(b, pos)
			pos += n
			found |= e
		default:
			if lane >= end {
				at, extended = snappyChain(b, pos, of.end)
				return at, extended || found>>31 != 0
			}
			n, _ := snappyStep(b, lane)
			lane += n
		}
	}
	return pos, found>>31 != 0
}
