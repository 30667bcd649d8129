package protocol

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Keys of the APIs that are served.
const (
	KeyProduce                 int16 = 0
	KeyFetch                   int16 = 1
	KeyListOffsets             int16 = 2
	KeyMetadata                int16 = 3
	KeyOffsetCommit            int16 = 8
	KeyOffsetFetch             int16 = 9
	KeyFindCoordinator         int16 = 10
	KeyJoinGroup               int16 = 11
	KeyHeartbeat               int16 = 12
	KeyLeaveGroup              int16 = 13
	KeySyncGroup               int16 = 14
	KeyDescribeGroups          int16 = 15
	KeyListGroups              int16 = 16
	KeyApiVersions             int16 = 18
	KeyCreateTopics            int16 = 19
	KeyDeleteTopics            int16 = 20
	KeyDeleteRecords           int16 = 21
	KeyInitProducerID          int16 = 22
	KeyOffsetForLeaderEpoch    int16 = 23
	KeyDescribeConfigs         int16 = 32
	KeyAlterConfigs            int16 = 33
	KeyAlterReplicaLogDirs     int16 = 34
	KeyDescribeLogDirs         int16 = 35
	KeyCreatePartitions        int16 = 37
	KeyDeleteGroups            int16 = 42
	KeyElectLeaders            int16 = 43
	KeyIncrementalAlterConfigs int16 = 44
	KeyAlterReassignments      int16 = 45
	KeyListReassignments       int16 = 46
	KeyOffsetDelete            int16 = 47
	KeyDescribeQuorum          int16 = 55
	KeyAlterPartition          int16 = 56
	KeyUpdateFeatures          int16 = 57
	KeyEnvelope                int16 = 58
	KeyDescribeCluster         int16 = 60
	KeyDescribeProducers       int16 = 61
	KeyBrokerRegistration      int16 = 62
	KeyBrokerHeartbeat         int16 = 63
	KeyUnregisterBroker        int16 = 64
	KeyAllocateProducerIDs     int16 = 67
	KeyConsumerGroupHeartbeat  int16 = 68
	KeyConsumerGroupDescribe   int16 = 69
	KeyListConfigResources     int16 = 74
	KeyDescribeTopicPartitions int16 = 75
	KeyAddRaftVoter            int16 = 80
	KeyRemoveRaftVoter         int16 = 81
)

// API is one kind of request: which versions of it are served, and what its body looks like.
type API struct {
	Key           int16
	Name          string
	Min, Max      int16 // versions that are served
	Flexible      int16 // first flexible version
	AdvertisedMin int16 // lowest version that ApiVersions tells; below Min where clients need to see an old one
	Internal      bool  // served on the internal listener only
	body          []field
	plans         [][]field // of each version from Min on: what it has of the body, made by NewTable
}

// IsFlexible says whether that version has compact lengths and tags.
func (a *API) IsFlexible(version int16) bool { return version >= a.Flexible }

// Table holds the APIs that are served. It is made once and only read afterwards.
type Table struct {
	apis  []API
	index map[int16]int
}

// NewTable returns a table of the given APIs; see [Served]. It panics if a key comes twice.
func NewTable(apis []API) *Table {
	t := &Table{apis: slices.Clone(apis), index: make(map[int16]int, len(apis))}
	slices.SortFunc(t.apis, func(a, b API) int { return int(a.Key) - int(b.Key) })
	for i, a := range t.apis {
		if _, twice := t.index[a.Key]; twice {
			panic(fmt.Sprintf("protocol: api key %d twice", a.Key))
		}
		t.index[a.Key] = i
		plans := make([][]field, 0, a.Max-a.Min+1)
		for v := a.Min; v <= a.Max; v++ {
			plans = append(plans, compile(a.body, v, a.IsFlexible(v)))
		}
		t.apis[i].plans = plans
	}
	return t
}

// Lookup finds an API by its key.
func (t *Table) Lookup(key int16) (*API, bool) {
	i, ok := t.index[key]
	if !ok {
		return nil, false
	}
	return &t.apis[i], true
}

// APIs are all APIs, by ascending key. The slice is the table's own.
func (t *Table) APIs() []API { return t.apis }

// Decode reads the body of a request. The request owns its strings; byte fields (the records of Produce) alias the body.
// Fields that the version does not have get the value that Kafka means by their absence. Errors: ErrUnknownKey,
// ErrUnsupportedVersion, ErrMalformed (bytes missing, null where a value must be, a count that cannot be),
// ErrTooCostly.
func (t *Table) Decode(key, version int16, body []byte) (kmsg.Request, error) {
	api, _, err := t.Check(key, version, body)
	if err != nil {
		return nil, err
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %s %d: %v", ErrMalformed, api.Name, version, err)
	}
	fillAbsent(req)
	return req, nil
}

// DecodeProduce is Decode into a request to be reused. Its strings alias the body too: nothing may keep them when the
// frame is given back.
func (t *Table) DecodeProduce(req *kmsg.ProduceRequest, version int16, body []byte) error {
	*req = kmsg.ProduceRequest{Version: version, Topics: req.Topics[:0]}
	return t.decodeInPlace(req, version, body)
}

// DecodeFetch is Decode into a request to be reused. Its strings alias the body too: nothing may keep them when the
// frame is given back.
func (t *Table) DecodeFetch(req *kmsg.FetchRequest, version int16, body []byte) error {
	*req = kmsg.FetchRequest{Version: version, Topics: req.Topics[:0], ForgottenTopics: req.ForgottenTopics[:0]}
	return t.decodeInPlace(req, version, body)
}

func (t *Table) decodeInPlace(req interface {
	kmsg.Request
	UnsafeReadFrom([]byte) error
}, version int16, body []byte,
) error {
	api, _, err := t.Check(req.Key(), version, body)
	if err != nil {
		return err
	}
	if err := req.UnsafeReadFrom(body); err != nil {
		return fmt.Errorf("%w: %s %d: %v", ErrMalformed, api.Name, version, err)
	}
	return nil
}

// Check walks a body without decoding it. It returns its API, and the bytes of memory that decoding and answering it will take. Errors as
// Decode.
func (t *Table) Check(key, version int16, body []byte) (*API, int64, error) {
	api, ok := t.Lookup(key)
	if !ok {
		return nil, 0, fmt.Errorf("%w: %d", ErrUnknownKey, key)
	}
	if version < api.Min || version > api.Max {
		return nil, 0, fmt.Errorf("%w: %s %d", ErrUnsupportedVersion, api.Name, version)
	}
	cost, err := api.check(version, body)
	if err != nil {
		return nil, 0, fmt.Errorf("%s %d: %w", api.Name, version, err)
	}
	return api, cost, nil
}

// fillAbsent sets what kmsg leaves wrong in old versions.
func fillAbsent(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.MetadataRequest:
		if r.Version < 4 {
			r.AllowAutoTopicCreation = true
		}
		if r.Version == 0 && len(r.Topics) == 0 {
			r.Topics = nil // version 0 cannot say null: empty means all
		}
	case *kmsg.OffsetCommitRequest:
		if r.Version > 4 {
			r.RetentionTimeMillis = -1 // by the server's rule
		}
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if r.Version < 6 {
					r.Topics[i].Partitions[j].LeaderEpoch = -1
				}
			}
		}
	case *kmsg.OffsetFetchRequest:
		for i := range r.Groups {
			if r.Version < 9 {
				r.Groups[i].MemberEpoch = -1
			}
		}
	case *kmsg.JoinGroupRequest:
		if r.Version == 0 {
			r.RebalanceTimeoutMillis = r.SessionTimeoutMillis
		}
	case *kmsg.LeaveGroupRequest:
		if r.Version < 3 {
			r.Members = []kmsg.LeaveGroupRequestMember{{MemberID: r.MemberID}}
		}
	}
}

// AppendResponse appends the whole frame of a response. Errors: ErrFrameSize above 2³¹−1 bytes.
func (t *Table) AppendResponse(dst []byte, h Header, resp kmsg.Response) ([]byte, error) {
	start := len(dst)
	dst = t.AppendResponseHeader(dst, h)
	resp.SetVersion(h.Version)
	dst = resp.AppendTo(dst)
	return dst, FinishFrame(dst, start, 0)
}
