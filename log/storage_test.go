package log

import (
	"errors"
	"syscall"
	"testing"

	"github.com/keeplog/keeplog/vfs"
)

// What the operating system refuses is a storage error for who asks with errors.Is, whatever its number; nothing of the batch
// stays, and the next one goes in when the trouble is over.
func TestRefusedCallsAreStorageErrors(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		f := vfs.NewFaulty(vfs.NewMem())
		r := newRig(t, f)
		r.config.Segment.Bytes = 3000
		l := r.log(0)
		for range 5 {
			r.add(l, sent{count: 1, size: 500})
		}
		end := l.WrittenEnd()
		f.Inject(vfs.Fault{Ops: []vfs.Op{vfs.OpOpen, vfs.OpCreate}, Err: errno, Sticky: true})
		_, _, err := r.write(l, sent{count: 1, size: 900}) // it needs a new segment
		if !errors.Is(err, ErrStorage) || !errors.Is(err, errno) {
			t.Errorf("%v: the append answers %v", errno, err)
		}
		if l.WrittenEnd() != end {
			t.Errorf("%v: the end moved from %d to %d", errno, end, l.WrittenEnd())
		}
		f.Heal()
		if _, _, err := r.write(l, sent{count: 1, size: 900}); err != nil {
			t.Errorf("%v is over, and the append answers %v", errno, err)
		}
	}
}
