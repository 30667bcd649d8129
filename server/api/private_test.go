package api

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/lag"
)

// fakeLag remembers what it was asked.
type fakeLag struct{ asked []lag.Query }

func (f *fakeLag) Ask(q *lag.Query, now time.Time) *lag.Answer {
	f.asked = append(f.asked, *q)
	return &lag.Answer{Sums: []lag.Sum{{Group: "g", Lag: now.UnixMilli() % 1000, Partitions: 2}}}
}

// The lag of groups rides in a tagged field of ListOffsets; without the tag, in old versions, and where the tag is no question, the answer is as ever.
func TestLagTag(t *testing.T) {
	w := newWorld(t)
	f := &fakeLag{}
	w.api.o.Lag = f
	w.now = w.now.Add(17 * time.Millisecond)
	for _, c := range []struct {
		version int16
		tag     []byte
		want    bool
	}{
		{11, lag.AppendQuery(nil, &lag.Query{Sums: true, Groups: []string{"g"}}), true},
		{6, lag.AppendQuery(nil, &lag.Query{Sums: true, Groups: []string{"g"}}), true},
		{5, lag.AppendQuery(nil, &lag.Query{}), false},
		{11, []byte{0, 200}, false},
		{11, nil, false},
	} {
		f.asked = nil
		req := kmsg.NewPtrListOffsetsRequest()
		if c.tag != nil {
			req.UnknownTags.Set(TagLag, c.tag)
		}
		resp := ask[*kmsg.ListOffsetsResponse](w, req, c.version)
		var got *lag.Answer
		resp.UnknownTags.Each(func(key uint32, value []byte) {
			var err error
			if got, err = lag.ParseAnswer(value); key != TagLag || err != nil {
				t.Fatal(key, err)
			}
		})
		if (got != nil) != c.want || len(f.asked) == 1 != c.want {
			t.Fatalf("%+v: asked %v, got %v", c, f.asked, got)
		}
		if !c.want {
			continue
		}
		if d := cmp.Diff([]lag.Query{{Sums: true, Groups: []string{"g"}}}, f.asked) + cmp.Diff([]lag.Sum{{Group: "g", Lag: 17, Partitions: 2}}, got.Sums); d != "" {
			t.Fatal(d)
		}
	}
}
