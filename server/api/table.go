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
}

// table has a row for every key that is served.
func table() map[int16]row {
	return map[int16]row{
		protocol.KeyProduce:                 {Plan{Overlap: true, Large: true}, (*API).produce},
		protocol.KeyFetch:                   {serve: (*API).fetch},
		protocol.KeyListOffsets:             on((*API).listOffsets),
		protocol.KeyMetadata:                on((*API).metadata),
		protocol.KeyApiVersions:             on((*API).apiVersions),
		protocol.KeyCreateTopics:            on((*API).createTopics),
		protocol.KeyDeleteTopics:            on((*API).deleteTopics),
		protocol.KeyDeleteRecords:           on((*API).deleteRecords),
		protocol.KeyInitProducerID:          on((*API).initProducerID),
		protocol.KeyOffsetForLeaderEpoch:    on((*API).offsetForLeaderEpoch),
		protocol.KeyDescribeConfigs:         on((*API).describeConfigs),
		protocol.KeyAlterConfigs:            on((*API).alterConfigs),
		protocol.KeyDescribeLogDirs:         on((*API).describeLogDirs),
		protocol.KeyCreatePartitions:        on((*API).createPartitions),
		protocol.KeyIncrementalAlterConfigs: on((*API).incrementalAlterConfigs),
		protocol.KeyDescribeCluster:         on((*API).describeCluster),
		protocol.KeyDescribeProducers:       on((*API).describeProducers),
		protocol.KeyListConfigResources:     on((*API).listConfigResources),
		protocol.KeyDescribeTopicPartitions: on((*API).describeTopicPartitions),
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

// newTables takes the versions of the keys that have a handler, and checks that there are some of each.
func newTables() (*protocol.Table, map[int16]row) {
	rows := table()
	served := slices.DeleteFunc(protocol.Served(), func(api protocol.API) bool {
		_, ok := rows[api.Key]
		return !ok
	})
	if len(rows) != len(served) {
		panic("api: a handler without versions")
	}
	return protocol.NewTable(served), rows
}
