package metadata

import "testing"

// Bootstrap voters count before they have registered, and once.
func TestSize(t *testing.T) {
	img := New()
	img.voters = []Voter{{ID: 1}, {ID: 2}, {ID: 3}}
	for i, id := range []BrokerID{2, 4} {
		img.brokers = img.brokers.put(id, &Broker{ID: id})
		if got, want := img.Size(), 3+i; got != want {
			t.Errorf("%d, not %d", got, want)
		}
	}
	if got := New().Size(); got != 0 {
		t.Errorf("an empty image has %d brokers", got)
	}
}
