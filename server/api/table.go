package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/protocol"
)

// MinFrame is the size of the smallest frame in bytes: a header without client id.
const MinFrame = 10

// Plan says how the calls of a key and version are treated.
type Plan struct {
	// Overlap: the next call of the connection may start while this one waits.
	Overlap bool
	// Large: the frame may be as large as any; otherwise the smaller limit holds.
	Large bool
}

// row is how one key is handled; its versions are in package protocol.
type row struct {
	plan  Plan
	serve func(*API, *Call, []byte)
	// forward says that the controller serves it: where another node is that, the request goes there as it came. With own the handler sees to
	// that, as part of it may be this broker's own business.
	forward, own bool
}

// table has a row for every key that is served.
func table() map[int16]row {
	return map[int16]row{
		protocol.KeyProduce:                 {plan: Plan{Overlap: true, Large: true}, serve: (*API).produce},
		protocol.KeyFetch:                   {serve: (*API).fetch},
		protocol.KeyListOffsets:             on((*API).listOffsets),
		protocol.KeyMetadata:                on((*API).metadata),
		protocol.KeyFindCoordinator:         on((*API).findCoordinator),
		protocol.KeyApiVersions:             on((*API).apiVersions),
		protocol.KeyCreateTopics:            toController(on((*API).createTopics)),
		protocol.KeyDeleteTopics:            toController(on((*API).deleteTopics)),
		protocol.KeyDeleteRecords:           on((*API).deleteRecords),
		protocol.KeyInitProducerID:          on((*API).initProducerID),
		protocol.KeyOffsetForLeaderEpoch:    on((*API).offsetForLeaderEpoch),
		protocol.KeyDescribeConfigs:         on((*API).describeConfigs),
		protocol.KeyAlterConfigs:            toController(on((*API).alterConfigs)),
		protocol.KeyDescribeLogDirs:         on((*API).describeLogDirs),
		protocol.KeyCreatePartitions:        toController(on((*API).createPartitions)),
		protocol.KeyIncrementalAlterConfigs: {serve: on((*API).incrementalAlterConfigs).serve, forward: true, own: true},
		protocol.KeyDescribeCluster:         on((*API).describeCluster),
		protocol.KeyDescribeProducers:       on((*API).describeProducers),
		protocol.KeyListConfigResources:     on((*API).listConfigResources),
		protocol.KeyDescribeTopicPartitions: on((*API).describeTopicPartitions),

		protocol.KeyOffsetCommit:           on((*API).offsetCommit),
		protocol.KeyOffsetFetch:            on((*API).offsetFetch),
		protocol.KeyJoinGroup:              on((*API).joinGroup),
		protocol.KeyHeartbeat:              on((*API).heartbeat),
		protocol.KeyLeaveGroup:             on((*API).leaveGroup),
		protocol.KeySyncGroup:              on((*API).syncGroup),
		protocol.KeyDescribeGroups:         on((*API).describeGroups),
		protocol.KeyListGroups:             on((*API).listGroups),
		protocol.KeyDeleteGroups:           on((*API).deleteGroups),
		protocol.KeyOffsetDelete:           on((*API).offsetDelete),
		protocol.KeyConsumerGroupHeartbeat: on((*API).consumerGroupHeartbeat),
		protocol.KeyConsumerGroupDescribe:  on((*API).consumerGroupDescribe),

		protocol.KeyAlterReplicaLogDirs: on((*API).alterReplicaLogDirs),
		protocol.KeyElectLeaders:        toController(on((*API).electLeaders)),
		protocol.KeyAlterReassignments:  toController(on((*API).alterReassignments)),
		protocol.KeyListReassignments:   toController(on((*API).listReassignments)),
		protocol.KeyDescribeQuorum:      toController(on((*API).describeQuorum)),
		protocol.KeyUpdateFeatures:      toController(on((*API).updateFeatures)),
		protocol.KeyUnregisterBroker:    toController(on((*API).unregisterBroker)),
		protocol.KeyAddRaftVoter:        toController(on((*API).addRaftVoter)),
		protocol.KeyRemoveRaftVoter:     toController(on((*API).removeRaftVoter)),

		protocol.KeyAlterPartition:      on((*API).alterPartition),
		protocol.KeyEnvelope:            {plan: Plan{Large: true}, serve: on((*API).envelope).serve},
		protocol.KeyBrokerRegistration:  on((*API).brokerRegistration),
		protocol.KeyBrokerHeartbeat:     on((*API).brokerHeartbeat),
		protocol.KeyAllocateProducerIDs: on((*API).allocateProducerIDs),
	}
}

// on makes the row of a handler that takes the decoded request. The strings of the request are copies. A body that cannot be read ends
// the connection.
func on[R kmsg.Request](f func(*API, *Call, R)) row {
	return row{serve: func(a *API, c *Call, body []byte) {
		req, err := a.protocol.Decode(c.Key, c.Version, body)
		if err != nil {
			c.close(err)
			return
		}
		f(a, c, req.(R))
	}}
}

// toController makes a row one that the controller serves.
func toController(r row) row {
	r.forward = true
	return r
}

// newTables takes the versions of the keys that have a handler, and checks that there are some of each.
func newTables() (*protocol.Table, map[int16]row) {
	rows := table()
	served := slices.DeleteFunc(append(protocol.Served(), protocol.Internal()...), func(api protocol.API) bool {
		_, ok := rows[api.Key]
		return !ok
	})
	if len(rows) != len(served) {
		panic("api: a handler without versions")
	}
	return protocol.NewTable(served), rows
}
