package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every position of a request takes each of the values that lengths are attacked with, as 2 bytes, 4 bytes and varint.
func TestEnumeratedMutations(t *testing.T) {
	eachVersion(t, func(t *testing.T, api *API, version int16) {
		body := filled(api, version).AppendTo(nil)
		n, used := 0, allocated(func() {
			for at := range body {
				left := int64(len(body) - at)
				for _, v := range []int64{-2, -1, 0, 1, left, left + 1, 1<<31 - 1, 1<<32 - 1} {
					for _, b := range [][]byte{
						splice(body, at, 2, binary.BigEndian.AppendUint16(nil, uint16(v))),
						splice(body, at, 4, binary.BigEndian.AppendUint32(nil, uint32(v))),
						splice(body, at, 1, binary.AppendUvarint(nil, uint64(uint32(v)))),
						splice(body, at, 1, []byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1}),
					} {
						checkRefusal(t, api, version, b)
					}
				}
			}
		})
		n = len(body) * 8 * 4
		if most := uint64(n) * uint64(amplification*(len(body)+10)+slack); used > most {
			t.Fatalf("%d mutations allocated %d bytes", n, used)
		}
	})
}

func splice(b []byte, at, n int, with []byte) []byte {
	out := append(bytes.Clone(b[:at]), with...)
	return append(out, b[min(at+n, len(b)):]...)
}

func checkRefusal(t testing.TB, api *API, version int16, body []byte) {
	_, err := table.Decode(api.Key, version, body)
	if err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooCostly) {
		t.Fatalf("%x: %v", body, err)
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// encoder writes the shortest body of a shape; one array of it gets as many elements as asked.
type encoder struct {
	version  int16
	flexible bool
	target   *field
	n        int
	out      []byte
}

func (e *encoder) length(k kind, n int) {
	switch {
	case e.flexible:
		e.out = binary.AppendUvarint(e.out, uint64(n+1))
	case k == text:
		e.out = binary.BigEndian.AppendUint16(e.out, uint16(n))
	default:
		e.out = binary.BigEndian.AppendUint32(e.out, uint32(n))
	}
}

// contains says whether the target is f or below it.
func (e *encoder) contains(f *field) bool {
	if f == e.target {
		return true
	}
	for i := range f.items {
		if e.contains(&f.items[i]) {
			return true
		}
	}
	return false
}

func (e *encoder) fields(fields []field) {
	for i := range fields {
		f := &fields[i]
		if f.kind == tag || e.version < f.min || e.version > f.max {
			continue
		}
		switch f.kind {
		case fixed:
			e.out = append(e.out, make([]byte, f.width)...)
		case object:
			e.out = append(e.out, 0)
			e.fields(f.items)
			e.out = append(e.out, 0)
		case array:
			n := 0
			if f == e.target {
				n = e.n
			} else if e.contains(f) {
				n = 1
			}
			e.length(array, n)
			for range n {
				e.fields(f.items)
				if e.flexible && !f.plain {
					e.out = append(e.out, 0)
				}
			}
		default:
			e.length(f.kind, 0)
		}
	}
}

func arrays(fields []field, version int16) (all []*field) {
	for i := range fields {
		f := &fields[i]
		if version < f.min || version > f.max {
			continue
		}
		if f.kind == array {
			all = append(all, f)
		}
		all = append(all, arrays(f.items, version)...)
	}
	return all
}

// A body full of the shortest elements, of each array of each version, takes at most 32 times its size, or is refused where answering would
// take more; so do 10⁵ unknown tags, which are refused.
func TestCatalogue56_HostileCounts(t *testing.T) {
	eachVersion(t, func(t *testing.T, api *API, version int16) {
		targets := append(arrays(api.body, version), nil)
		for i, target := range targets {
			e := encoder{version: version, flexible: api.IsFlexible(version), target: target, n: 50_000}
			e.fields(api.body)
			if e.flexible {
				if target == nil {
					e.out = binary.AppendUvarint(e.out, 100_000)
					for k := range 100_000 {
						e.out = AppendTag(e.out, uint32(k+100), nil)
					}
				} else {
					e.out = append(e.out, 0)
				}
			}
			var err error
			used := allocated(func() { _, err = table.Decode(api.Key, version, e.out) })
			if tooMuch := target != nil && target.serving > 0 && errors.Is(err, ErrTooCostly); target != nil && err != nil && !tooMuch {
				t.Fatalf("array %d: %v", i, err)
			}
			if most := uint64(amplification*len(e.out)+64<<10) * raceFactor; used > most {
				t.Errorf("array %d of %d: %d bytes became %d, %d times", i, len(targets), len(e.out), used, used/uint64(len(e.out)))
			}
			if target == nil && e.flexible && !errors.Is(err, ErrTooCostly) {
				t.Errorf("unknown tags: %v", err)
			}
		}
	})
}

// What clients really ask for in one request passes, with the shortest names; what would take gigabytes to answer does not.
func TestLargeRequests(t *testing.T) {
	for _, n := range []int{10_000, 200_000} {
		many := kmsg.NewPtrMetadataRequest()
		lookup := kmsg.NewPtrListOffsetsRequest()
		part := kmsg.NewListOffsetsRequestTopicPartition()
		configs := kmsg.NewPtrDescribeConfigsRequest()
		for i := range n {
			name := fmt.Sprint(i)
			many.Topics = append(many.Topics, kmsg.MetadataRequestTopic{Topic: &name})
			lookup.Topics = append(lookup.Topics, kmsg.ListOffsetsRequestTopic{Topic: name, Partitions: []kmsg.ListOffsetsRequestTopicPartition{part}})
			configs.Resources = append(configs.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: 2, ResourceName: name})
		}
		for _, req := range []kmsg.Request{many, lookup, configs} {
			api, _ := table.Lookup(req.Key())
			for v := api.Min; v <= api.Max; v++ {
				req.SetVersion(v)
				_, cost, err := table.Check(req.Key(), v, req.AppendTo(nil))
				if n == 10_000 && (err != nil || cost < 1<<20) {
					t.Errorf("%s v%d: %d bytes, %v", api.Name, v, cost, err)
				}
				if n > 10_000 && req == kmsg.Request(many) && v < 10 && !errors.Is(err, ErrTooCostly) {
					t.Errorf("%s v%d with %d elements: %v", api.Name, v, n, err)
				}
			}
		}
	}
}
