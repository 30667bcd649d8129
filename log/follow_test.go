package log

import (
	"errors"
	"testing"

	"github.com/keeplog/keeplog/record"
	"github.com/keeplog/keeplog/vfs"
)

// A broker that led and now follows adds nothing of its own any more, however late the batch comes; and an epoch that it
// began without a batch does not end the one before it.
func TestFollowFencesTheOldEpoch(t *testing.T) {
	r := newRig(t, vfs.NewMem())
	l := r.log(0)
	own := func(epoch record.Epoch) error {
		b := replicaBatch(0, 0)
		res, err := record.Validate(b, &record.ValidateOptions{BeforeMaxMs: record.Any, AfterMaxMs: record.Any, MaxBatchBytes: 1 << 20, Codecs: r.codecs})
		must(t, err)
		_, err = l.Append(Append{Batch: b, Checked: res, Epoch: epoch, NowMs: r.now.UnixMilli()})
		return err
	}
	must(t, l.StartEpoch(4))
	must(t, own(4))
	must(t, l.StartEpoch(5)) // leads, and writes nothing
	l.Follow(6)
	if err := own(5); !errors.Is(err, ErrEpochFenced) {
		t.Errorf("a batch of epoch 5 after following in 6: %v", err)
	}
	if _, err := l.AppendReplica(replicaBatch(1, 4), 6); err != nil || l.WrittenEnd() != 2 {
		t.Fatalf("the new leader's batch of epoch 4: end %d, %v", l.WrittenEnd(), err)
	}
	if e, end := l.EndOffsetForEpoch(4); e != 4 || end != 2 {
		t.Errorf("epoch 4 ends at %d in epoch %d, want 2", end, e)
	}
	must(t, l.StartEpoch(7))
	if err := own(7); err != nil || l.WrittenEnd() != 3 {
		t.Errorf("leading again: end %d, %v", l.WrittenEnd(), err)
	}
}

// replicaBatch is a batch of one record as a leader of epoch sends it.
func replicaBatch(base record.Offset, epoch record.Epoch) record.Batch {
	o := record.NewOptions()
	o.BaseOffset, o.LeaderEpoch = base, epoch
	b := record.NewBuilder(o)
	b.Append(1_700_000_000_000, nil, []byte("v"))
	out, err := b.Batch(nil)
	if err != nil {
		panic(err)
	}
	return out
}
