package metadata

import (
	"bytes"
	"testing"
)

// The epoch of the newest unclean election outlives the mark, clean elections and a snapshot: a replica that was away all the
// time still learns of it.
func TestUncleanEpochStays(t *testing.T) {
	img := New()
	apply := func(records ...Record) {
		t.Helper()
		next, _, out, err := Apply(img, nil, Entry{Index: img.Index() + 1, Term: 1, Payload: payload(t, records...)})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Results[0] {
			if r.Err() != nil {
				t.Fatal(r.Err())
			}
		}
		img = next
	}
	at := func() *Partition { p, _ := img.Partition(TopicID{1}, 1); return p }
	part := Partition{Replicas: []BrokerID{1, 2, 3}, ISR: []BrokerID{1}, Leader: 1}
	apply(TopicCreated{Name: "t", ID: TopicID{1}, Partitions: []Partition{part, part}})
	apply(PartitionChanged{TopicID: TopicID{1}, Partition: 1, Leader: new(BrokerID(2)), ISR: &[]BrokerID{2}, Unclean: new(true)})
	if p := at(); p.LeaderEpoch != 1 || p.UncleanEpoch != 1 || !p.Unclean {
		t.Fatalf("after an unclean election: %+v", p)
	}
	apply(PartitionChanged{TopicID: TopicID{1}, Partition: 1, PartitionEpoch: 1, Unclean: new(false)})
	apply(PartitionChanged{TopicID: TopicID{1}, Partition: 1, PartitionEpoch: 2, Leader: new(BrokerID(3)), ISR: &[]BrokerID{2, 3}})
	if p := at(); p.LeaderEpoch != 2 || p.UncleanEpoch != 1 || p.Unclean {
		t.Fatalf("after a clean election: %+v", p)
	}
	var b bytes.Buffer
	if err := img.WriteSnapshot(&b, nil); err != nil {
		t.Fatal(err)
	}
	back, _, err := ReadSnapshot(&b)
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := back.Partition(TopicID{1}, 1); p.UncleanEpoch != 1 {
		t.Errorf("after a snapshot: %+v", p)
	}
	if d := Diff(back, img); !d.Empty() {
		t.Errorf("the snapshot differs: %+v", d)
	}
}
