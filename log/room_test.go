package log

import (
	"errors"
	"testing"

	"github.com/keeplog/keeplog/vfs"
)

// A disk of 64 MiB is filled up to its reserve: what is allocated ahead must not make half of it unusable.
func TestAllocationAheadLeavesTheReserveAlone(t *testing.T) {
	const total, reserve = 64 << 20, 8 << 20
	fs := vfs.NewFaulty(vfs.NewMem())
	r := newRig(t, fs)
	r.settings.Reserve = reserve
	r.config.Segment.Bytes = 1 << 30
	must(t, r.dir.Close())
	fs.SetFree(total)
	r.open()
	l := r.log(0)
	written := int64(0)
	for {
		_, b, err := r.write(l, sent{size: 64 << 10})
		if errors.Is(err, ErrReserve) {
			break
		}
		must(t, err)
		written += int64(len(b))
		must(t, r.step.Run())
	}
	if written < (total-reserve)*8/10 {
		t.Errorf("appends are refused after %d MiB of %d MiB above the reserve", written>>20, (total-reserve)>>20)
	}
}
