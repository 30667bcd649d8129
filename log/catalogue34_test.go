package log

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// Catalogue 34, the part of the log: what is read ends at the bound that the caller read once, also where that is the end of the
// log, which grows meanwhile, and over rolls.
func TestCatalogue34_ReadsEndAtTheirBound(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	r.config = smallSegments()
	l := r.log(0)
	const batches = 3000
	var writer sync.WaitGroup
	writer.Go(func() {
		for range batches {
			if _, _, err := r.write(l, sent{size: 50}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	next := func(at record.Offset) (record.Offset, error) {
		bound := l.WrittenEnd()
		sp, err := l.Read(ReadRequest{Offset: at, Bound: bound, MaxBytes: 1 << 20})
		if err != nil || sp == nil {
			return at, err
		}
		defer sp.Release()
		b := make([]byte, sp.Len())
		if _, err := sp.ReadAt(b, 0); err != nil {
			return at, err
		}
		for {
			batch, rest, err := record.Next(b)
			if err != nil || batch == nil {
				return at, err
			}
			b, at = rest, batch.NextOffset()
			if at > bound {
				return at, fmt.Errorf("up to %d was asked for, and a batch ends at %d", bound, at)
			}
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for at := record.Offset(0); at < batches && time.Now().Before(deadline); {
		var err error
		if at, err = next(at); err != nil {
			t.Fatal(err)
		}
	}
	writer.Wait()
}
