package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var table = NewTable(append(Served(), Internal()...))

// eachVersion runs f for every API and version that is served.
func eachVersion(t *testing.T, f func(t *testing.T, api *API, version int16)) {
	t.Helper()
	for i := range table.APIs() {
		api := &table.APIs()[i]
		for v := api.Min; v <= api.Max; v++ {
			t.Run(fmt.Sprintf("%s/%d", api.Name, v), func(t *testing.T) { f(t, api, v) })
		}
	}
}

// fill sets every field below v to something that is not zero, arrays to two elements.
func fill(v reflect.Value, seed int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Version" && f.Name != "UnknownTags" {
				fill(v.Field(i), seed+i+1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), seed)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), seed+i)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), seed+i)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("name-%d", seed))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(seed%100) + 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(seed%100) + 1)
	}
}

func filled(api *API, version int16) kmsg.Request {
	req := kmsg.RequestForKey(api.Key)
	fill(reflect.ValueOf(req).Elem(), int(version))
	req.SetVersion(version)
	return req
}

// The table agrees with kmsg about names and flexible versions, and goes no further than it.
func TestTableAgreesWithKmsg(t *testing.T) {
	eachVersion(t, func(t *testing.T, api *API, version int16) {
		req := kmsg.RequestForKey(api.Key)
		req.SetVersion(version)
		if req.IsFlexible() != api.IsFlexible(version) || version > req.MaxVersion() {
			t.Fatalf("flexible %v, max %d", req.IsFlexible(), req.MaxVersion())
		}
		if name := kmsg.NameForKey(api.Key); name != api.Name && !strings.EqualFold(name, api.Name) && name != "AlterPartitionAssignments" {
			t.Fatal(name)
		}
	})
}

func TestTableRanges(t *testing.T) {
	var got []string
	for _, a := range table.APIs() {
		got = append(got, fmt.Sprintf("%d %s %d-%d from %d, advertised from %d", a.Key, a.Name, a.Min, a.Max, a.Flexible, a.AdvertisedMin))
	}
	want := []string{
		"0 Produce 3-13 from 9, advertised from 0", "1 Fetch 4-18 from 12, advertised from 4",
		"2 ListOffsets 1-11 from 6, advertised from 1", "3 Metadata 0-13 from 9, advertised from 0",
		"8 OffsetCommit 2-10 from 8, advertised from 2", "9 OffsetFetch 1-10 from 6, advertised from 1",
		"10 FindCoordinator 0-6 from 3, advertised from 0",
		"11 JoinGroup 0-9 from 6, advertised from 0",
		"12 Heartbeat 0-4 from 4, advertised from 0", "13 LeaveGroup 0-5 from 4, advertised from 0",
		"14 SyncGroup 0-5 from 4, advertised from 0", "15 DescribeGroups 0-6 from 5, advertised from 0",
		"16 ListGroups 0-5 from 3, advertised from 0",
		"18 ApiVersions 0-5 from 3, advertised from 0", "19 CreateTopics 2-7 from 5, advertised from 2",
		"20 DeleteTopics 1-6 from 4, advertised from 1", "21 DeleteRecords 0-2 from 2, advertised from 0",
		"22 InitProducerId 0-5 from 2, advertised from 0", "23 OffsetForLeaderEpoch 2-4 from 4, advertised from 2",
		"32 DescribeConfigs 1-4 from 4, advertised from 1", "33 AlterConfigs 0-2 from 2, advertised from 0",
		"34 AlterReplicaLogDirs 1-2 from 2, advertised from 1",
		"35 DescribeLogDirs 1-5 from 2, advertised from 1", "37 CreatePartitions 0-3 from 2, advertised from 0",
		"42 DeleteGroups 0-3 from 2, advertised from 0",
		"43 ElectLeaders 0-2 from 2, advertised from 0",
		"44 IncrementalAlterConfigs 0-1 from 1, advertised from 0",
		"45 AlterPartitionReassignments 0-1 from 0, advertised from 0", "46 ListPartitionReassignments 0-0 from 0, advertised from 0",
		"47 OffsetDelete 0-0 from 32767, advertised from 0",
		"55 DescribeQuorum 0-2 from 0, advertised from 0", "56 AlterPartition 2-3 from 0, advertised from 2",
		"57 UpdateFeatures 0-2 from 0, advertised from 0", "58 Envelope 0-0 from 0, advertised from 0",
		"60 DescribeCluster 0-2 from 0, advertised from 0",
		"61 DescribeProducers 0-0 from 0, advertised from 0", "62 BrokerRegistration 0-4 from 0, advertised from 0",
		"63 BrokerHeartbeat 0-1 from 0, advertised from 0", "64 UnregisterBroker 0-0 from 0, advertised from 0",
		"67 AllocateProducerIds 0-0 from 0, advertised from 0",
		"68 ConsumerGroupHeartbeat 0-1 from 0, advertised from 0", "69 ConsumerGroupDescribe 0-1 from 0, advertised from 0",
		"74 ListConfigResources 0-1 from 0, advertised from 0",
		"75 DescribeTopicPartitions 0-0 from 0, advertised from 0", "80 AddRaftVoter 0-1 from 0, advertised from 0",
		"81 RemoveRaftVoter 0-0 from 0, advertised from 0",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

// Full, empty and default requests decode to what kmsg wrote; every prefix is refused, and bytes behind the body change nothing,
// as in Kafka.
func TestDecodeEveryVersion(t *testing.T) {
	eachVersion(t, func(t *testing.T, api *API, version int16) {
		empty := kmsg.RequestForKey(api.Key)
		empty.SetVersion(version)
		reflect.ValueOf(empty).MethodByName("Default").Call(nil)
		for name, req := range map[string]kmsg.Request{"filled": filled(api, version), "default": empty} {
			body := req.AppendTo(nil)
			got, err := table.Decode(api.Key, version, body)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if again := got.AppendTo(nil); !bytes.Equal(again, body) {
				t.Fatalf("%s: another body:\n%x\n%x", name, body, again)
			}
			for n := range body {
				if _, err := table.Decode(api.Key, version, body[:n]); !errors.Is(err, ErrMalformed) {
					t.Fatalf("%s: %d of %d bytes: %v", name, n, len(body), err)
				}
			}
			more, err := table.Decode(api.Key, version, append(bytes.Clone(body), 1, 2, 3))
			if err != nil {
				t.Fatalf("%s: three bytes more: %v", name, err)
			}
			if again := more.AppendTo(nil); !bytes.Equal(again, body) {
				t.Fatalf("%s: three bytes more make another request:\n%x\n%x", name, body, again)
			}
		}
	})
}

func TestDecodeInPlaceForgetsTheLastRequest(t *testing.T) {
	full := filled(&API{Key: KeyFetch}, 18).(*kmsg.FetchRequest)
	full.UnknownTags.Set(77, []byte("x"))
	var f kmsg.FetchRequest
	if err := table.DecodeFetch(&f, 18, full.AppendTo(nil)); err != nil || f.UnknownTags.Len() != 1 {
		t.Fatal(err, f.UnknownTags.Len())
	}
	plain := kmsg.NewFetchRequest()
	plain.Version = 4
	if err := table.DecodeFetch(&f, 4, plain.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	want, _ := table.Decode(KeyFetch, 4, plain.AppendTo(nil))
	if d := cmp.Diff(want, kmsg.Request(&f), cmpopts.EquateEmpty(), cmp.AllowUnexported(kmsg.Tags{})); d != "" {
		t.Fatal(d)
	}
	var p kmsg.ProduceRequest
	for _, v := range []int16{13, 3, 9} {
		body := filled(&API{Key: KeyProduce}, v).AppendTo(nil)
		if err := table.DecodeProduce(&p, v, body); err != nil || !bytes.Equal(p.AppendTo(nil), body) {
			t.Fatal(v, err)
		}
	}
}

// Fields that a version does not have mean what Kafka takes them for.
func TestAbsentFields(t *testing.T) {
	for v := int16(0); v <= 13; v++ {
		r := kmsg.MetadataRequest{Version: v, AllowAutoTopicCreation: false}
		got, err := table.Decode(KeyMetadata, v, r.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		m := got.(*kmsg.MetadataRequest)
		if m.AllowAutoTopicCreation != (v < 4) || m.Topics != nil {
			t.Errorf("version %d: auto creation %v, topics nil %v", v, m.AllowAutoTopicCreation, m.Topics == nil)
		}
		r.Topics = []kmsg.MetadataRequestTopic{}
		got, err = table.Decode(KeyMetadata, v, r.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		if all := got.(*kmsg.MetadataRequest).Topics == nil; all != (v == 0) {
			t.Errorf("version %d: no topics means all: %v", v, all)
		}
	}
	f := kmsg.FetchRequest{Version: 4, Topics: []kmsg.FetchRequestTopic{{Partitions: make([]kmsg.FetchRequestTopicPartition, 1)}}}
	got, _ := table.Decode(KeyFetch, 4, f.AppendTo(nil))
	g := got.(*kmsg.FetchRequest)
	p := g.Topics[0].Partitions[0]
	if g.SessionID != 0 || g.SessionEpoch != -1 || p.CurrentLeaderEpoch != -1 || p.LastFetchedEpoch != -1 || p.LogStartOffset != -1 {
		t.Errorf("fetch 4: %+v", g)
	}
	l := kmsg.ListOffsetsRequest{Version: 1, Topics: []kmsg.ListOffsetsRequestTopic{{Partitions: make([]kmsg.ListOffsetsRequestTopicPartition, 1)}}}
	got, _ = table.Decode(KeyListOffsets, 1, l.AppendTo(nil))
	if got.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].CurrentLeaderEpoch != -1 {
		t.Error("list offsets 1")
	}
	got, _ = table.Decode(KeyInitProducerID, 0, (&kmsg.InitProducerIDRequest{}).AppendTo(nil))
	if r := got.(*kmsg.InitProducerIDRequest); r.ProducerID != -1 || r.ProducerEpoch != -1 {
		t.Errorf("init producer id 0: %+v", r)
	}
	got, _ = table.Decode(KeyOffsetForLeaderEpoch, 2, (&kmsg.OffsetForLeaderEpochRequest{Version: 2}).AppendTo(nil))
	if r := got.(*kmsg.OffsetForLeaderEpochRequest); r.ReplicaID != -2 {
		t.Errorf("offset for leader epoch 2: %+v", r)
	}
	got, _ = table.Decode(KeyDescribeCluster, 0, (&kmsg.DescribeClusterRequest{}).AppendTo(nil))
	if r := got.(*kmsg.DescribeClusterRequest); r.EndpointType != 1 {
		t.Errorf("describe cluster 0: %+v", r)
	}
	dc := kmsg.DescribeConfigsRequest{Version: 1, Resources: []kmsg.DescribeConfigsRequestResource{{}, {ConfigNames: []string{}}}}
	got, _ = table.Decode(KeyDescribeConfigs, 1, dc.AppendTo(nil))
	if r := got.(*kmsg.DescribeConfigsRequest); r.Resources[0].ConfigNames != nil || r.Resources[1].ConfigNames == nil {
		t.Errorf("describe configs: %+v", r)
	}
}

func TestNullWhereAValueMustBe(t *testing.T) {
	for name, c := range map[string]struct {
		key, version int16
		body         []byte
	}{
		"topics of produce":         {KeyProduce, 3, []byte{0xff, 0xff, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}},
		"metadata 0":                {KeyMetadata, 0, []byte{0xff, 0xff, 0xff, 0xff}},
		"metadata 1, a name":        {KeyMetadata, 1, []byte{0, 0, 0, 1, 0xff, 0xff}},
		"software name":             {KeyApiVersions, 3, []byte{0, 2, 'a', 0}},
		"describe topic partitions": {KeyDescribeTopicPartitions, 0, []byte{0, 0, 0, 0, 0, 0xff, 0}},
	} {
		if _, err := table.Decode(c.key, c.version, c.body); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A few unknown tags, at the end and inside, are skipped.
func TestUnknownTagsAreKept(t *testing.T) {
	r := kmsg.NewFetchRequest()
	r.Version = 12
	r.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}}}
	r.Topics[0].Partitions[0].UnknownTags.Set(10_000, []byte("private"))
	r.UnknownTags.Set(5, nil)
	got, err := table.Decode(KeyFetch, 12, r.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	if n := got.(*kmsg.FetchRequest).Topics[0].Partitions[0].UnknownTags.Len(); n != 1 {
		t.Fatal(n)
	}
	// a known tag whose size is not that of its field
	body := (&kmsg.FetchRequest{Version: 12}).AppendTo(nil)
	body = append(body[:len(body)-1], 1)
	body = AppendTag(body, 0, []byte{2, 'a', 'b'})
	if _, err := table.Decode(KeyFetch, 12, body); !errors.Is(err, ErrMalformed) {
		t.Fatal(err)
	}
}

func TestHeader(t *testing.T) {
	id := "me"
	for _, c := range []struct {
		req  kmsg.Request
		opts []kmsg.RequestFormatterOpt
		id   []byte
	}{
		{&kmsg.MetadataRequest{Version: 1}, nil, nil},
		{&kmsg.MetadataRequest{Version: 9}, nil, nil},
		{&kmsg.MetadataRequest{Version: 13}, []kmsg.RequestFormatterOpt{kmsg.FormatterClientID(id)}, []byte(id)},
		{&kmsg.ApiVersionsRequest{Version: 3}, []kmsg.RequestFormatterOpt{kmsg.FormatterClientID("")}, []byte{}},
	} {
		frame := kmsg.NewRequestFormatter(c.opts...).AppendRequest(nil, c.req, 77)[4:]
		h, err := table.ParseHeader(frame)
		want := Header{Key: c.req.Key(), Version: c.req.GetVersion(), CorrelationID: 77, ClientID: c.id, Body: c.req.AppendTo(nil)}
		if d := cmp.Diff(want, h); err != nil || d != "" {
			t.Fatal(err, d)
		}
		for n := range len(frame) - len(h.Body) {
			if _, err := table.ParseHeader(frame[:n]); !errors.Is(err, ErrMalformed) {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
	}
	for name, c := range map[string]struct {
		frame []byte
		want  error
	}{
		"unknown key":        {[]byte{0, 99, 0, 0, 0, 0, 0, 1, 0, 0}, ErrUnknownKey},
		"negative key":       {[]byte{255, 255, 0, 0, 0, 0, 0, 1, 0, 0}, ErrUnknownKey},
		"version too high":   {[]byte{0, 18, 0, 99, 0, 0, 0, 1, 0, 0}, ErrUnsupportedVersion},
		"version too low":    {[]byte{0, 0, 0, 2, 0, 0, 0, 1, 0, 0}, ErrUnsupportedVersion},
		"negative version":   {[]byte{0, 18, 255, 255, 0, 0, 0, 1, 0, 0}, ErrUnsupportedVersion},
		"client id of -2":    {[]byte{0, 18, 0, 0, 0, 0, 0, 1, 255, 254}, ErrMalformed},
		"client id too long": {[]byte{0, 18, 0, 0, 0, 0, 0, 1, 0, 2, 'a'}, ErrMalformed},
		"tags without end":   {[]byte{0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 1, 0}, ErrMalformed},
		"tag past the end":   {[]byte{0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 1, 0, 9, 9}, ErrMalformed},
		"4 billion tags":     {[]byte{0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 255, 255, 255, 255, 15}, ErrMalformed},
		"a count of 70 bits": {[]byte{0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, ErrMalformed},
	} {
		h, err := table.ParseHeader(c.frame)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != ErrMalformed && h.CorrelationID != 1 {
			t.Errorf("%s: correlation id %d", name, h.CorrelationID)
		}
	}
}

func TestResponses(t *testing.T) {
	for _, c := range []struct {
		version int16
		resp    kmsg.Response
		head    string
	}{
		{0, &kmsg.MetadataResponse{}, "00000007"},
		{9, &kmsg.MetadataResponse{}, "0000000700"},
		{0, &kmsg.ApiVersionsResponse{}, "00000007"},
		{3, &kmsg.ApiVersionsResponse{}, "00000007"},
	} {
		c.resp.SetVersion(c.version)
		got, err := table.AppendResponse([]byte("before"), Header{Key: c.resp.Key(), Version: c.version, CorrelationID: 7}, c.resp)
		if err != nil {
			t.Fatal(err)
		}
		frame := got[len("before"):]
		if int(binary.BigEndian.Uint32(frame)) != len(frame)-4 {
			t.Fatal("size")
		}
		if head := fmt.Sprintf("%x", frame[4:4+len(c.head)/2]); head != c.head {
			t.Fatal(head)
		}
		if !bytes.Equal(frame[4+len(c.head)/2:], c.resp.AppendTo(nil)) {
			t.Fatal("body")
		}
	}
	if err := FinishFrame(make([]byte, 10), 0, 1<<31); !errors.Is(err, ErrFrameSize) {
		t.Fatal(err)
	}
}

func TestReadFrame(t *testing.T) {
	limits := Limits{Produce: 1000, Other: 100}
	frame := func(size int32, key int16, n int) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(size))
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		return append(b, bytes.Repeat([]byte{7}, n-2)...)
	}
	asked := 0
	alloc := func(n int) ([]byte, error) { asked = n; return make([]byte, n+5), nil }
	for name, c := range map[string]struct {
		in   []byte
		want error
		ask  int
	}{
		"produce":           {frame(1000, 0, 1000), nil, 1000},
		"other":             {frame(100, 3, 100), nil, 100},
		"other too large":   {frame(101, 3, 101), ErrFrameSize, 0},
		"produce too large": {frame(1001, 0, 1001), ErrFrameSize, 0},
		"negative":          {frame(-1, 0, 100), ErrFrameSize, 0},
		"2 GiB":             {frame(1<<31-1, 0, 100), ErrFrameSize, 0},
		"short":             {frame(9, 3, 9), ErrFrameSize, 0},
		"nothing":           {nil, io.EOF, 0},
		"cut in the prefix": {frame(100, 3, 100)[:5], io.ErrUnexpectedEOF, 0},
		"cut after it":      {frame(100, 3, 100)[:8], io.ErrUnexpectedEOF, 100},
		"cut in the body":   {frame(100, 3, 100)[:50], io.ErrUnexpectedEOF, 100},
	} {
		asked = 0
		got, err := ReadFrame(iotest.OneByteReader(bytes.NewReader(c.in)), limits, alloc)
		if !errors.Is(err, c.want) || asked != c.ask {
			t.Errorf("%s: %v, asked for %d", name, err, asked)
		}
		if err == nil && !bytes.Equal(got, c.in[4:]) {
			t.Errorf("%s: another frame", name)
		}
	}
	full := errors.New("no memory")
	if _, err := ReadFrame(bytes.NewReader(frame(100, 3, 100)), limits, func(int) ([]byte, error) { return nil, full }); !errors.Is(err, full) {
		t.Fatal(err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{0, 18, 0, 3, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, err := table.ParseHeader(frame)
		if err != nil {
			return
		}
		if len(h.Body)+len(h.ClientID)+headerBytes > len(frame) {
			t.Fatal("more than there was")
		}
		table.Decode(h.Key, h.Version, h.Body)
	})
}

// What decodes must be written again to something that decodes to the same.
func FuzzBody(f *testing.F) {
	for i := range table.APIs() {
		api := &table.APIs()[i]
		for v := api.Min; v <= api.Max; v++ {
			f.Add(api.Key, v, filled(api, v).AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		var req kmsg.Request
		var err error
		used := allocated(func() { req, err = table.Decode(key, version, body) })
		if used > uint64(amplification*len(body)+64<<10) {
			t.Fatalf("%d bytes became %d", len(body), used)
		}
		if err != nil {
			return
		}
		again, err := table.Decode(key, version, req.AppendTo(nil))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(req.AppendTo(nil), again.AppendTo(nil)) {
			t.Fatal("decoded twice to different things")
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	r := kmsg.NewProduceRequest()
	r.Version = 9
	r.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, 1<<20)}}}}
	body := r.AppendTo(nil)
	b.Run("produce", func(b *testing.B) {
		b.ReportAllocs()
		var p kmsg.ProduceRequest
		for b.Loop() {
			if err := table.DecodeProduce(&p, 9, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	f := kmsg.NewFetchRequest()
	f.Version = 12
	f.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: make([]kmsg.FetchRequestTopicPartition, 1000)}}
	fetch := f.AppendTo(nil)
	b.Run("fetch1000/check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := table.Check(KeyFetch, 12, fetch); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fetch1000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := table.Decode(KeyFetch, 12, fetch); err != nil {
				b.Fatal(err)
			}
		}
	})
}
