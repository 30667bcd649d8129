package node

import (
	"testing"

	"github.com/keeplog/keeplog/metadata"
)

// The image is shown before its subscribers hear of it: what the applier finds in an image beyond the changes that it was told of does not
// count as applied.
func TestAppliedIsWhatWasTaken(t *testing.T) {
	n, err := start(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	empty := n.quorum.Image()
	makeTopic(t, n, "s")
	first := n.quorum.Image()
	makeTopic(t, n, "t")
	second := n.quorum.Image()

	a := newApplier(n.cfg.NodeID(), n.quorum, n.replicas, n.settings)
	heard := uint64(0)
	a.told = func() { heard = a.index() }
	a.changed(metadata.Diff(empty, first), first)
	a.apply() // which finds the second topic in the newest image
	if got := a.index(); got != first.Index() || heard != got {
		t.Errorf("told of index %d, applied %d, and reported %d; the newest image is %d", first.Index(), got, heard, second.Index())
	}
	a.changed(metadata.Diff(first, second), second)
	if got := a.index(); got != first.Index() {
		t.Errorf("index %d while changes of %d wait", got, second.Index())
	}
	a.apply()
	if got := a.index(); got != second.Index() || heard != got {
		t.Errorf("applied %d, and reported %d, not %d", got, heard, second.Index())
	}
}
