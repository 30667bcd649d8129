package group

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// checkFold: what a live core says it has stored is what the tables have, and loading that gives the same again.
func checkFold(t testing.TB, n *node, w *world, name string) {
	t.Helper()
	turn, g, err := n.open(name)
	if err != nil {
		return
	}
	stored := g.core.Stored()
	busy := len(g.batches) > 0
	turn.settle(g)
	turn.end()
	if busy {
		return
	}
	w.mu.Lock()
	entries := w.tables.Entries(name)
	w.mu.Unlock()
	if diff := cmp.Diff(entries, stored, emptyIsNil); diff != "" {
		t.Errorf("group %s: the tables (-) and its core (+) differ:\n%s", name, diff)
	}
	loaded, err := Load(name, entries, Env{Now: time.Now(), Settings: &w.settings, Topics: topics{w.image()}, NewID: w.newID, Known: true})
	if err != nil {
		t.Errorf("group %s: %v", name, err)
		return
	}
	if diff := cmp.Diff(entries, loaded.Stored(), emptyIsNil); diff != "" {
		t.Errorf("group %s: stored (-) and loaded (+) differ:\n%s", name, diff)
	}
}

var emptyIsNil = cmp.Transformer("nil", func(e []Entry) []Entry {
	if len(e) == 0 {
		return nil
	}
	return e
})
