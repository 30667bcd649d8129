package api

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/replication/isr"
)

// words joins values with blanks.
func words(l ...any) string { return strings.TrimSpace(fmt.Sprintln(l...)) }

func TestApiVersions(t *testing.T) {
	each(t, 18, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrApiVersionsRequest()
		r.ClientSoftwareName, r.ClientSoftwareVersion, r.NodeID = "my-client", "1.2", -1
		resp := ask[*kmsg.ApiVersionsResponse](w, r, v)
		equal(t, "code", resp.ErrorCode, 0)
		internal := 0
		for _, k := range w.api.protocol.APIs() {
			if k.Internal {
				internal++
			}
		}
		equal(t, "keys", len(resp.ApiKeys), len(w.api.rows)-internal)
		w.internal = true
		equal(t, "keys for brokers", len(ask[*kmsg.ApiVersionsResponse](w, r, v).ApiKeys), len(w.api.rows))
		w.internal = false
		first := resp.ApiKeys[0]
		equal(t, "produce", fmt.Sprint(first.ApiKey, first.MinVersion, first.MaxVersion), "0 0 13")
		for i := 1; i < len(resp.ApiKeys); i++ {
			if k := resp.ApiKeys[i]; k.ApiKey <= resp.ApiKeys[i-1].ApiKey || k.ApiKey >= 4 && k.ApiKey < 8 {
				t.Errorf("key %d", k.ApiKey)
			}
		}
		if v >= 3 && resp.FinalizedFeaturesEpoch < 0 {
			t.Error("features without an epoch")
		}
		for _, bad := range []string{"", "a b", "-a", "a.", "ä"} {
			r.ClientSoftwareName = bad
			equal(t, "name "+bad, ask[*kmsg.ApiVersionsResponse](w, r, v).ErrorCode, map[bool]int16{true: 42, false: 0}[v >= 3])
		}
		if v < 5 {
			return
		}
		r.ClientSoftwareName = "x"
		for _, c := range []struct {
			cluster *string
			node    int32
			code    int16
		}{{text("AAAAAAAAAAAAAAAAAAAAAA"), 1, 0}, {text("AAAAAAAAAAAAAAAAAAAAAA"), 2, 129}, {text("other"), 1, 129}, {text("x"), -1, 42}, {nil, 1, 42}} {
			r.ClusterID, r.NodeID = c.cluster, c.node
			equal(t, "cluster and node", ask[*kmsg.ApiVersionsResponse](w, r, v).ErrorCode, c.code)
		}
	})
}

// A client from the future is told the range of this one key, in the layout of version 0.
func TestApiVersionsUnknownVersion(t *testing.T) {
	w := newWorld(t)
	for _, v := range []int16{6, 99, 0x7fff} {
		_, s := w.raw([]byte{0, 18, byte(v >> 8), byte(v), 0, 0, 0, 42, 0, 1, 'x', 0xff, 0xff, 0xff})
		a := s.wait(t)
		equal(t, "answer", fmt.Sprintf("%x", a.Head[8:]), "0023"+"00000001"+"0012"+"0000"+"0005")
	}
}

func names(l ...string) []kmsg.MetadataRequestTopic {
	var r []kmsg.MetadataRequestTopic
	for _, n := range l {
		r = append(r, kmsg.MetadataRequestTopic{Topic: &n})
	}
	return r
}

func TestMetadata(t *testing.T) {
	each(t, 3, func(t *testing.T, w *world, v int16) {
		id := w.topic("b", 2)
		w.topic("a", 1)
		r := kmsg.NewPtrMetadataRequest()
		r.Topics = names("b", "b")
		resp := ask[*kmsg.MetadataResponse](w, r, v)
		equal(t, "brokers", len(resp.Brokers), 1)
		equal(t, "broker", words(resp.Brokers[0].NodeID, resp.Brokers[0].Host, resp.Brokers[0].Port), "1 localhost 9092")
		if v >= 1 {
			equal(t, "controller", resp.ControllerID, 1)
			equal(t, "rack", *resp.Brokers[0].Rack, "r1")
		}
		if v >= 2 {
			equal(t, "cluster", *resp.ClusterID, "AAAAAAAAAAAAAAAAAAAAAA")
		}
		equal(t, "topics", len(resp.Topics), 1)
		b := resp.Topics[0]
		equal(t, "partitions", len(b.Partitions), 2)
		equal(t, "leader", b.Partitions[1].Leader, 1)
		equal(t, "operations", b.AuthorizedOperations, noOperations)
		if v >= 10 {
			equal(t, "id", metadata.TopicID(b.TopicID), id)
		}
		r.IncludeTopicAuthorizedOperations, r.IncludeClusterAuthorizedOperations = true, true
		resp = ask[*kmsg.MetadataResponse](w, r, v)
		if v >= 8 {
			equal(t, "topic operations", resp.Topics[0].AuthorizedOperations, 3576)
		}
		if v >= 8 && v <= 10 {
			equal(t, "cluster operations", resp.AuthorizedOperations, 8096)
		}
		r.Topics = nil
		equal(t, "all topics", len(ask[*kmsg.MetadataResponse](w, r, v).Topics), 2)
		r.Topics = []kmsg.MetadataRequestTopic{}
		equal(t, "no topics", len(ask[*kmsg.MetadataResponse](w, r, v).Topics), map[bool]int{true: 2, false: 0}[v == 0])
	})
}

func TestMetadataMissing(t *testing.T) {
	each(t, 3, func(t *testing.T, w *world, v int16) {
		w.live = live(t, "auto.create.topics.enable=false")
		r := kmsg.NewPtrMetadataRequest()
		r.Topics = names("none", "bad name", "..", strings.Repeat("x", 250), "")
		var got []int16
		for _, p := range ask[*kmsg.MetadataResponse](w, r, v).Topics {
			got = append(got, p.ErrorCode)
		}
		equal(t, "codes", fmt.Sprint(got), "[3 17 17 17 17]")
		if v < 10 {
			return
		}
		id := w.topic("t", 1)
		r.Topics = []kmsg.MetadataRequestTopic{{TopicID: id}, {TopicID: [16]byte{9}, Topic: text("x")}}
		resp := ask[*kmsg.MetadataResponse](w, r, v)
		if v < 12 {
			equal(t, "ids", fmt.Sprint(resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode, len(resp.Brokers), resp.ClusterID == nil, resp.ControllerID), "42 42 0 true -1")
			return
		}
		equal(t, "known id", *resp.Topics[0].Topic, "t")
		equal(t, "unknown id", fmt.Sprint(resp.Topics[1].ErrorCode, resp.Topics[1].Topic == nil), "100 true")
	})
}

func TestMetadataAutoCreation(t *testing.T) {
	each(t, 3, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrMetadataRequest()
		r.Topics, r.AllowAutoTopicCreation = names("new", "bad name"), true
		resp := ask[*kmsg.MetadataResponse](w, r, v)
		equal(t, "codes", fmt.Sprint(resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode), "0 17")
		equal(t, "partitions", len(resp.Topics[0].Partitions), 1)
		if v >= 4 {
			r.Topics, r.AllowAutoTopicCreation = names("other"), false
			equal(t, "not allowed", ask[*kmsg.MetadataResponse](w, r, v).Topics[0].ErrorCode, 3)
		}
		w.refuse = controller.ErrNotController
		r.Topics, r.AllowAutoTopicCreation = names("third"), true
		equal(t, "refused", ask[*kmsg.MetadataResponse](w, r, v).Topics[0].ErrorCode, 3)
	})
}

func TestMetadataShowsTheListenerOfTheCall(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1)
	show := func(listener string, v int16) string {
		r := kmsg.NewPtrMetadataRequest()
		r.Topics = names("t")
		r.SetVersion(v)
		frame := formatter.AppendRequest(nil, r, 42)[4:]
		s := &sink{got: make(chan Answer, 1)}
		w.api.Serve(&Call{Key: 3, Version: v, Frame: frame, Conn: &Conn{Listener: listener}, Ctx: t.Context(), To: s})
		resp := parse(t, r, s.wait(t)).(*kmsg.MetadataResponse)
		out := ""
		for _, b := range resp.Brokers {
			out += fmt.Sprint(b.Host, ":", b.Port, " ")
		}
		p := resp.Topics[0].Partitions[0]
		return out + fmt.Sprint(p.ErrorCode, " ", p.Leader)
	}
	equal(t, "first", show("PLAINTEXT", 9), "localhost:9092 0 1")
	equal(t, "second", show("OTHER", 9), "other:9093 0 1")
	equal(t, "neither", show("THIRD", 9), "72 -1")
	equal(t, "neither, old version", show("THIRD", 5), "5 -1")
}

func TestMetadataOfAFencedLeader(t *testing.T) {
	each(t, 3, func(t *testing.T, w *world, v int16) {
		w.topic("t", 1)
		b, _ := w.image.Broker(1)
		w.apply(metadata.BrokerFenced{ID: 1, Epoch: b.Epoch, Fenced: true})
		r := kmsg.NewPtrMetadataRequest()
		r.Topics = names("t")
		resp := ask[*kmsg.MetadataResponse](w, r, v)
		p := resp.Topics[0].Partitions[0]
		equal(t, "partition", fmt.Sprint(p.ErrorCode, p.Leader, len(resp.Brokers)), "5 -1 0")
		equal(t, "replicas", len(p.Replicas), map[bool]int{true: 0, false: 1}[v == 0])
		if v >= 5 {
			equal(t, "offline", fmt.Sprint(p.OfflineReplicas), "[1]")
		}
	})
}

// live is a configuration with settings.
func live(t testing.TB, set ...string) *config.Broker {
	t.Helper()
	b, _, err := config.Load(config.Input{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestListOffsets(t *testing.T) {
	each(t, 2, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 2)
		w.part(id, 0).add("a", "b")
		w.part(id, 1).err = isr.ErrOffsetNotAvailable
		get := func(topic string, partition int32, ts int64, epoch int32, twice bool) string {
			r := kmsg.NewPtrListOffsetsRequest()
			tp := kmsg.NewListOffsetsRequestTopic()
			tp.Topic = topic
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, ts, epoch
			tp.Partitions = append(tp.Partitions, p)
			if twice {
				tp.Partitions = append(tp.Partitions, p)
			}
			r.Topics = append(r.Topics, tp)
			x := ask[*kmsg.ListOffsetsResponse](w, r, v).Topics[0].Partitions[0]
			return fmt.Sprint(x.Partition, x.ErrorCode, x.Offset, x.Timestamp)
		}
		equal(t, "latest", get("t", 0, -1, -1, false), "0 0 2 -1")
		equal(t, "earliest", get("t", 0, -2, -1, false), "0 0 0 -1")
		for ts, since := range map[int64]int16{-3: 7, -4: 8, -5: 9, -6: 11, -7: 99} {
			got := get("t", 0, ts, -1, false)
			equal(t, fmt.Sprint("special ", ts), strings.HasPrefix(got, "0 35 "), v < since)
		}
		equal(t, "none that young", get("t", 0, 1<<60, -1, false), "0 0 -1 -1")
		equal(t, "no topic", get("none", 0, -1, -1, false), "0 3 -1 -1")
		equal(t, "no partition", get("t", 9, -1, -1, false), "9 3 -1 -1")
		equal(t, "twice", get("t", 0, -1, -1, true), "0 42 -1 -1")
		equal(t, "new epoch", get("t", 0, -1, 7, false), map[bool]string{true: "0 75 -1 -1", false: "0 0 2 -1"}[v >= 4])
		equal(t, "fresh leader", get("t", 1, -1, -1, false), map[bool]string{true: "1 78 -1 -1", false: "1 5 -1 -1"}[v >= 5])
	})
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	each(t, 23, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 1)
		w.part(id, 0).add("a", "b")
		r := kmsg.NewPtrOffsetForLeaderEpochRequest()
		for _, n := range []string{"t", "none"} {
			tp := kmsg.NewOffsetForLeaderEpochRequestTopic()
			tp.Topic = n
			for _, x := range [][3]int32{{0, -1, 0}, {0, -1, 5}, {0, 3, 0}, {9, -1, 0}} {
				p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
				p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = x[0], x[1], x[2]
				tp.Partitions = append(tp.Partitions, p)
			}
			r.Topics = append(r.Topics, tp)
		}
		got := ""
		for _, tp := range ask[*kmsg.OffsetForLeaderEpochResponse](w, r, v).Topics {
			for _, p := range tp.Partitions {
				got += fmt.Sprint(p.ErrorCode, p.LeaderEpoch, p.EndOffset, "; ")
			}
		}
		equal(t, "answers", got, "0 0 2; 0 -1 -1; 75 -1 -1; 3 -1 -1; 3 -1 -1; 3 -1 -1; 3 -1 -1; 3 -1 -1; ")
	})
}

func TestInitProducerID(t *testing.T) {
	each(t, 22, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrInitProducerIDRequest()
		r.ProducerID, r.ProducerEpoch = -1, -1
		get := func() string {
			x := ask[*kmsg.InitProducerIDResponse](w, r, v)
			return fmt.Sprint(x.ErrorCode, x.ProducerID, x.ProducerEpoch)
		}
		for i := range 5 { // across two blocks
			equal(t, "new", get(), fmt.Sprintf("0 %d 0", i))
		}
		r.TransactionalID = text("")
		equal(t, "empty", get(), "42 -1 -1")
		r.TransactionalID = text("tx")
		equal(t, "transactional", get(), "53 -1 -1")
		if v >= 3 {
			r.TransactionalID, r.ProducerID = nil, 5
			equal(t, "id without epoch", get(), "42 -1 -1")
			r.ProducerID, r.ProducerEpoch = -1, 3
			equal(t, "epoch without id", get(), "42 -1 -1")
		}
		r.TransactionalID, r.ProducerID, r.ProducerEpoch = nil, -1, -1
		equal(t, "sixth", get(), "0 5 0")
		w.refuse = controller.ErrNotCommitted
		equal(t, "no block", get(), "14 -1 -1")
	})
}

func TestDeleteRecords(t *testing.T) {
	each(t, 21, func(t *testing.T, w *world, v int16) {
		id := w.topic("t", 2)
		w.part(id, 0).add("a", "b", "c")
		r := kmsg.NewPtrDeleteRecordsRequest()
		for _, n := range []string{"t", "none"} {
			tp := kmsg.NewDeleteRecordsRequestTopic()
			tp.Topic = n
			for i, o := range []int64{2, 9} {
				p := kmsg.NewDeleteRecordsRequestTopicPartition()
				p.Partition, p.Offset = int32(i), o
				tp.Partitions = append(tp.Partitions, p)
			}
			r.Topics = append(r.Topics, tp)
		}
		got := ""
		for _, tp := range ask[*kmsg.DeleteRecordsResponse](w, r, v).Topics {
			for _, p := range tp.Partitions {
				got += fmt.Sprint(p.Partition, p.ErrorCode, p.LowWatermark, "; ")
			}
		}
		equal(t, "answers", got, "0 0 2; 1 1 -1; 0 3 -1; 1 3 -1; ")
	})
}

func TestDescribeProducers(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1)
	r := kmsg.NewPtrDescribeProducersRequest()
	r.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0, 7}}, {Topic: "none", Partitions: []int32{0}}}
	resp := ask[*kmsg.DescribeProducersResponse](w, r, 0)
	a, b, c := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1], resp.Topics[1].Partitions[0]
	equal(t, "producer", fmt.Sprint(a.ErrorCode, a.ActiveProducers[0].ProducerID, a.ActiveProducers[0].LastSequence, a.ActiveProducers[0].CurrentTxnStartOffset), "0 7 9 -1")
	equal(t, "no partition", fmt.Sprint(b.ErrorCode, b.ErrorMessage == nil), "3 true")
	equal(t, "no topic", fmt.Sprint(c.ErrorCode, c.ErrorMessage == nil), "3 false")
}

func TestDescribeLogDirs(t *testing.T) {
	each(t, 35, func(t *testing.T, w *world, v int16) {
		w.topic("b", 2)
		w.topic("a", 1)
		show := func(topics []kmsg.DescribeLogDirsRequestTopic) string {
			r := kmsg.NewPtrDescribeLogDirsRequest()
			r.Topics = topics
			resp := ask[*kmsg.DescribeLogDirsResponse](w, r, v)
			equal(t, "offline directory", resp.Dirs[1].ErrorCode, 56)
			if v >= 4 {
				equal(t, "bytes", fmt.Sprint(resp.Dirs[0].TotalBytes, resp.Dirs[0].UsableBytes), "1000 500")
			}
			s := ""
			for _, tp := range resp.Dirs[0].Topics {
				for _, p := range tp.Partitions {
					s += fmt.Sprint(tp.Topic, p.Partition, ":", p.Size, " ")
				}
			}
			return s
		}
		equal(t, "all", show(nil), "a0:10 b0:10 b1:10 ")
		equal(t, "none", show([]kmsg.DescribeLogDirsRequestTopic{}), "")
		equal(t, "some", show([]kmsg.DescribeLogDirsRequestTopic{{Topic: "b", Partitions: []int32{1, 9}}, {Topic: "x", Partitions: []int32{0}}}), "b1:10 ")
	})
}

// A partition that has lost records says so in a tagged field, where the version has those.
func TestDescribeLogDirsTellsWhatIsLost(t *testing.T) {
	each(t, 35, func(t *testing.T, w *world, v int16) {
		id := w.topic("a", 2)
		want := log.Lost{From: 5, To: 90, Count: 12}
		w.part(id, 1).lost = want
		resp := ask[*kmsg.DescribeLogDirsResponse](w, kmsg.NewPtrDescribeLogDirsRequest(), v)
		for _, p := range resp.Dirs[0].Topics[0].Partitions {
			var got log.Lost
			p.UnknownTags.Each(func(key uint32, value []byte) {
				if key == TagLost {
					got, _ = ParseLost(value)
				}
			})
			if has := p.Partition == 1 && v >= 2; has != (got == want) {
				t.Errorf("version %d, partition %d: %+v", v, p.Partition, got)
			}
		}
	})
	for _, bad := range []log.Lost{{}, {From: 5, To: 5, Count: 1}, {From: -1, To: 5, Count: 1}, {From: 0, To: 5, Count: 6}, {From: 0, To: 5, Count: -1}} {
		if got, ok := ParseLost(AppendLost(nil, bad)); ok {
			t.Errorf("%+v is taken", got)
		}
	}
	if _, ok := ParseLost(make([]byte, 23)); ok {
		t.Error("a value that is cut short is taken")
	}
}

func TestDescribeCluster(t *testing.T) {
	each(t, 60, func(t *testing.T, w *world, v int16) {
		w.apply(metadata.BrokerRegistered{ID: 2, Incarnation: [16]byte{2}, Listeners: []metadata.Endpoint{{Name: "PLAINTEXT", Host: "h2", Port: 1}}})
		r := kmsg.NewPtrDescribeClusterRequest()
		resp := ask[*kmsg.DescribeClusterResponse](w, r, v)
		equal(t, "answer", words(resp.ErrorCode, resp.ControllerID, len(resp.Brokers), resp.ClusterID, resp.ClusterAuthorizedOperations), "0 1 1 AAAAAAAAAAAAAAAAAAAAAA -2147483648")
		r.IncludeFencedBrokers, r.IncludeClusterAuthorizedOperations = true, true
		resp = ask[*kmsg.DescribeClusterResponse](w, r, v)
		equal(t, "with fenced ones", len(resp.Brokers), map[bool]int{true: 2, false: 1}[v >= 2])
		equal(t, "operations", resp.ClusterAuthorizedOperations, 8096)
		for typ, want := range map[int8]int16{2: 114, 9: 115} {
			r.EndpointType = typ
			equal(t, "endpoint type", ask[*kmsg.DescribeClusterResponse](w, r, v).ErrorCode, map[bool]int16{true: want, false: 0}[v >= 1])
		}
	})
}

func TestDescribeTopicPartitions(t *testing.T) {
	w := newWorld(t)
	w.topic("b", 3)
	w.topic("a", 2)
	show := func(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, topics ...string) string {
		r := kmsg.NewPtrDescribeTopicPartitionsRequest()
		r.ResponsePartitionLimit, r.Cursor = limit, cursor
		for _, n := range topics {
			r.Topics = append(r.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: n})
		}
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](w, r, 0)
		s := ""
		for _, tp := range resp.Topics {
			s += fmt.Sprintf("%s/%d:", *tp.Topic, tp.ErrorCode)
			for _, p := range tp.Partitions {
				s += fmt.Sprint(p.Partition)
				if p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil {
					t.Error("null instead of an empty list")
				}
			}
			s += " "
		}
		if c := resp.NextCursor; c != nil {
			s += fmt.Sprintf("→%s-%d", c.Topic, c.Partition)
		}
		return s
	}
	at := func(n string, p int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		return &kmsg.DescribeTopicPartitionsRequestCursor{Topic: n, Partition: p}
	}
	equal(t, "sorted", show(100, nil, "none", "b", "a", "a"), "a/0:01 b/0:012 none/3: ")
	equal(t, "all", show(100, nil), "a/0:01 b/0:012 ")
	equal(t, "cut inside", show(3, nil, "a", "b"), "a/0:01 b/0:0 →b-1")
	equal(t, "cut between", show(2, nil, "a", "b"), "a/0:01 →b-0")
	equal(t, "limit 0", show(0, nil, "a"), "a/0:0 →a-1")
	equal(t, "cursor", show(100, at("b", 1), "a", "b"), "b/0:12 ")
	equal(t, "cursor behind the end", show(100, at("b", 9), "a", "b"), "b/0: ")
	equal(t, "bad cursor", show(100, at("b", -1), "a", "b"), "a/42: b/42: ")
	equal(t, "bad name", show(100, nil, "bad name"), "bad name/17: ")
}

func TestCreateTopics(t *testing.T) {
	each(t, 19, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrCreateTopicsRequest()
		r.TimeoutMillis = 5000
		for _, n := range []string{"new", "bad name"} {
			tp := kmsg.NewCreateTopicsRequestTopic()
			tp.Topic = n
			tp.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: text("1000")}}
			r.Topics = append(r.Topics, tp)
		}
		resp := ask[*kmsg.CreateTopicsResponse](w, r, v)
		a, b := resp.Topics[0], resp.Topics[1]
		equal(t, "codes", fmt.Sprint(a.ErrorCode, b.ErrorCode), "0 17")
		equal(t, "text", b.ErrorMessage != nil && *b.ErrorMessage != "", true)
		if v < 5 {
			return
		}
		equal(t, "numbers", fmt.Sprint(a.NumPartitions, a.ReplicationFactor, b.NumPartitions, b.ReplicationFactor), "1 1 -1 -1")
		equal(t, "configs of a refused one", b.Configs != nil && len(b.Configs) == 0, true)
		found := false
		for _, c := range a.Configs {
			found = found || c.Name == "retention.ms" && *c.Value == "1000" && c.Source == 1
		}
		if !found || len(a.Configs) < 30 {
			t.Errorf("%d configs, retention.ms with its source %v", len(a.Configs), found)
		}
		if v >= 7 && a.TopicID == [16]byte{} {
			t.Error("no id")
		}
		w.refuse = controller.ErrNotController
		equal(t, "refused", ask[*kmsg.CreateTopicsResponse](w, r, v).Topics[1].ErrorCode, 41)
		r.TimeoutMillis = 0
		late := ask[*kmsg.CreateTopicsResponse](w, r, v).Topics[1]
		equal(t, "no time", fmt.Sprint(late.ErrorCode, late.ErrorMessage == nil), "7 true")
	})
}

func TestDeleteTopics(t *testing.T) {
	each(t, 20, func(t *testing.T, w *world, v int16) {
		id := w.topic("a", 1)
		r := kmsg.NewPtrDeleteTopicsRequest()
		r.TimeoutMillis = 5000
		if v < 6 {
			r.TopicNames = []string{"a", "none"}
		} else {
			r.Topics = []kmsg.DeleteTopicsRequestTopic{
				{TopicID: id}, {Topic: text("none")}, {TopicID: [16]byte{7}}, {Topic: text("a"), TopicID: id}, {},
			}
		}
		got := ""
		for _, x := range ask[*kmsg.DeleteTopicsResponse](w, r, v).Topics {
			name := "-"
			if x.Topic != nil {
				name = *x.Topic
			}
			got += fmt.Sprint(name, x.ErrorCode, " ")
		}
		equal(t, "answers", got, map[bool]string{true: "a0 none3 ", false: "a0 none3 -100 a42 -42 "}[v < 6])
		w.live = live(t, "delete.topic.enable=false")
		if v < 6 {
			r.TopicNames = []string{"x"}
		} else {
			r.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: text("x")}}
		}
		equal(t, "disabled", ask[*kmsg.DeleteTopicsResponse](w, r, v).Topics[0].ErrorCode, map[bool]int16{true: 42, false: 73}[v < 3])
	})
}

func TestCreatePartitions(t *testing.T) {
	each(t, 37, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrCreatePartitionsRequest()
		r.TimeoutMillis = 50
		for i, n := range []string{"a", "b"} {
			r.Topics = append(r.Topics, kmsg.CreatePartitionsRequestTopic{Topic: n, Count: int32(2 - i)})
		}
		resp := ask[*kmsg.CreatePartitionsResponse](w, r, v)
		equal(t, "codes", fmt.Sprint(resp.Topics[0].ErrorCode, resp.Topics[1].ErrorCode, *resp.Topics[1].ErrorMessage), "0 37fewer")
	})
}

func TestDescribeConfigs(t *testing.T) {
	each(t, 32, func(t *testing.T, w *world, v int16) {
		w.topic("t", 1)
		w.apply(metadata.ConfigChanged{Resource: metadata.Resource{Kind: metadata.ResourceTopic, Name: "t"}, Settings: []metadata.Setting{{Key: "retention.ms", Value: text("77")}}})
		show := func(kind int8, name string, keys ...string) string {
			r := kmsg.NewPtrDescribeConfigsRequest()
			r.IncludeSynonyms, r.IncludeDocumentation = true, true
			c := kmsg.NewDescribeConfigsRequestResource()
			c.ResourceType, c.ResourceName, c.ConfigNames = kmsg.ConfigResourceType(kind), name, keys
			r.Resources = append(r.Resources, c)
			x := ask[*kmsg.DescribeConfigsResponse](w, r, v).Resources[0]
			if x.ErrorMessage == nil {
				t.Error("no text at all")
			}
			s := fmt.Sprint(x.ErrorCode)
			for _, c := range x.Configs {
				s += fmt.Sprintf(" %s=%s/%d", c.Name, *c.Value, c.Source)
				if v >= 3 && (c.Documentation == nil || c.ConfigType == 0) {
					t.Errorf("%s has no text or type", c.Name)
				}
			}
			return s
		}
		equal(t, "topic", show(2, "t", "retention.ms", "cleanup.policy"), "0 cleanup.policy=delete/5 retention.ms=77/1")
		equal(t, "unknown key", show(2, "t", "no.such"), "0")
		equal(t, "missing topic", show(2, "none"), "3")
		equal(t, "bad topic", show(2, "bad name"), "17")
		equal(t, "broker", show(4, "1", "num.partitions"), "0 num.partitions=1/5")
		equal(t, "other broker", show(4, "77"), "42")
		equal(t, "broker word", show(4, "x"), "42")
		equal(t, "cluster", show(4, "", "message.max.bytes"), "0")
		equal(t, "loggers", show(8, "1"), "0 log=DEBUG/6 root=INFO/6")
		equal(t, "loggers of another", show(8, "2"), "42")
		equal(t, "group", strings.HasPrefix(show(32, "g", "consumer.session.timeout.ms"), "0 consumer.session.timeout.ms=45000/5"), true)
		equal(t, "client metrics", show(16, "m", "interval.ms"), "0 interval.ms=300000/5")
		equal(t, "unknown type", show(99, "x"), "42")
	})
}

func TestIncrementalAlterConfigs(t *testing.T) {
	each(t, 44, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrIncrementalAlterConfigsRequest()
		for _, x := range []struct {
			kind int8
			name string
			key  string
			op   int8
			val  *string
		}{{2, "t", "retention.ms", 0, text("1")}, {2, "u", "retention.ms", 9, text("1")}, {8, "1", "log", 0, text("WARN")}, {8, "1x", "log", 0, text("WARN")}} {
			c := kmsg.NewIncrementalAlterConfigsRequestResource()
			c.ResourceType, c.ResourceName = kmsg.ConfigResourceType(x.kind), x.name
			c.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: x.key, Op: kmsg.IncrementalAlterConfigOp(x.op), Value: x.val}}
			r.Resources = append(r.Resources, c)
		}
		got := ""
		for _, x := range ask[*kmsg.IncrementalAlterConfigsResponse](w, r, v).Resources {
			got += fmt.Sprint(x.ResourceName, x.ErrorCode, x.ErrorMessage == nil, "; ")
		}
		equal(t, "answers", got, "t0 true; u-1 true; 10 true; 1x42 false; ")
		w.refuse = controller.ErrNotController
		equal(t, "refused", ask[*kmsg.IncrementalAlterConfigsResponse](w, r, v).Resources[0].ErrorCode, 41)
	})
}

func TestAlterConfigs(t *testing.T) {
	each(t, 33, func(t *testing.T, w *world, v int16) {
		r := kmsg.NewPtrAlterConfigsRequest()
		c := kmsg.NewAlterConfigsRequestResource()
		c.ResourceType, c.ResourceName = 2, "t"
		r.Resources = append(r.Resources, c)
		x := ask[*kmsg.AlterConfigsResponse](w, r, v).Resources[0]
		equal(t, "answer", fmt.Sprint(x.ResourceType, x.ResourceName, x.ErrorCode), "TOPICt0")
	})
}

func TestListConfigResources(t *testing.T) {
	each(t, 74, func(t *testing.T, w *world, v int16) {
		w.topic("t", 1)
		w.apply(metadata.ConfigChanged{Resource: metadata.Resource{Kind: metadata.ResourceClientMetrics, Name: "m"}, Settings: []metadata.Setting{{Key: "interval.ms", Value: text("1000")}}})
		show := func(types ...int8) string {
			r := kmsg.NewPtrListConfigResourcesRequest()
			r.ResourceTypes = types
			resp := ask[*kmsg.ListConfigResourcesResponse](w, r, v)
			s := fmt.Sprint(resp.ErrorCode)
			for _, x := range resp.ConfigResources {
				s += " " + x.Name
				if v >= 1 {
					s += fmt.Sprint("/", x.Type)
				}
			}
			return s
		}
		if v == 0 {
			equal(t, "subscriptions", show(), "0 m")
			return
		}
		equal(t, "all", show(), "0 t/2 1/4 1/8 m/16")
		equal(t, "brokers", show(4), "0 1/4")
		equal(t, "unknown", show(99), "35")
	})
}

// Every request that is cut short, at every length and version, ends the connection or is answered; nothing panics and nobody waits.
func TestMalformedRequests(t *testing.T) {
	w := newWorld(t)
	w.internal = true
	id := w.topic("t", 2)
	tables, _ := newTables()
	for _, api := range tables.APIs() {
		for v := api.Min; v <= api.Max; v++ {
			req := filled(api.Key, v, id)
			whole := formatter.AppendRequest(nil, req, 42)[4:]
			for n := MinFrame; n < len(whole); n++ {
				_, s := w.raw(whole[:n])
				if a := s.wait(t); a.Close == nil && api.Key != 18 {
					t.Errorf("%s v%d cut to %d of %d bytes was answered", api.Name, v, n, len(whole))
				}
			}
			for i := 8; i < len(whole); i++ { // every byte changed
				for _, x := range []byte{0x00, 0x7f, 0xff} {
					b := append([]byte(nil), whole...)
					b[i] = x
					_, s := w.raw(b)
					a := s.wait(t)
					a.Release()
				}
			}
		}
	}
}

// filled is a request with something in its lists.
func filled(key, v int16, id metadata.TopicID) kmsg.Request {
	req := kmsg.RequestForKey(key)
	req.SetVersion(v)
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		*r = *to("t", id, -1, 0, 1)
	case *kmsg.FetchRequest:
		*r = *fetchOf(want{topic: "t", id: id}, want{topic: "t", id: id, partition: 1})
	case *kmsg.MetadataRequest:
		r.Topics = names("t", "u")
		if v >= 12 {
			r.Topics = append(r.Topics, kmsg.MetadataRequestTopic{TopicID: id})
		}
	case *kmsg.ListOffsetsRequest:
		p := kmsg.NewListOffsetsRequestTopicPartition()
		r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	case *kmsg.CreateTopicsRequest:
		tp := kmsg.NewCreateTopicsRequestTopic()
		tp.Topic = "t"
		tp.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1}}}
		tp.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: text("1")}}
		r.Topics, r.ValidateOnly = append(r.Topics, tp), true
	case *kmsg.FindCoordinatorRequest:
		r.CoordinatorKey, r.CoordinatorKeys = "t", []string{"t", "u"}
	case *kmsg.DescribeConfigsRequest:
		r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: "t", ConfigNames: []string{"retention.ms"}}}
	default:
		filledCluster(req, id)
	}
	req.SetVersion(v)
	return req
}

func FuzzServe(f *testing.F) {
	w := newWorld(f)
	w.internal = true
	id := w.topic("t", 2)
	tables, _ := newTables()
	for _, api := range tables.APIs() {
		f.Add(formatter.AppendRequest(nil, filled(api.Key, api.Max, id), 42)[4:])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < MinFrame {
			return
		}
		if _, ok := w.api.Plan(&Conn{}, int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))); !ok {
			return
		}
		w.api.Drain() // nothing waits
		_, s := w.raw(frame)
		a := s.wait(t)
		a.Release()
	})
}
