package api

import (
	"testing"

	"github.com/keeplog/keeplog/metadata"
)

// A notification that was under way when its fetch was answered finds what it watched, also when the topic is gone by then.
func TestLateProgress(t *testing.T) {
	w := newWorld(t)
	id := w.topic("t", 1)
	r := fetchOf(want{topic: "t", id: id})
	r.MinBytes, r.MaxWaitMillis = 10, 60_000
	c, s := w.begin(r, 13)
	waiting(t, s)
	f := c.parked.Load()
	w.apply(metadata.TopicDeleted{ID: id})
	f.Build()
	f.parts[0].Progress()
}
