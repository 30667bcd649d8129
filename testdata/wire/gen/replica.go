package main

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/protocol"
)

// replicaCases asks, in every version, what a fetch gets that says it comes from a broker: from one that does not exist, from the leader
// itself, from a client that debugs.
func (s *session) replicaCases() error {
	var out strings.Builder
	fmt.Fprintf(&out, "# What a Kafka 4.4 of one node, node 1, answers to a Fetch that names a replica: version | replica | current leader epoch | error | leader\n")
	api, _ := s.table.Lookup(protocol.KeyFetch)
	for v := api.Min; v <= api.Max; v++ {
		for _, replica := range []int32{-2, 0, 1, 5} {
			for _, epoch := range []int32{-1, 0} {
				r := kmsg.NewPtrFetchRequest()
				r.Version, r.MaxBytes, r.SessionEpoch, r.ReplicaID = v, 1<<20, -1, replica
				if v >= 15 {
					r.ReplicaState.ID = replica
				}
				p := kmsg.NewFetchRequestTopicPartition()
				p.PartitionMaxBytes, p.CurrentLeaderEpoch = 1<<20, epoch
				r.Topics = []kmsg.FetchRequestTopic{{Topic: "golden", TopicID: s.topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
				resp, err := s.ask(r)
				if err != nil {
					return fmt.Errorf("fetch %d of replica %d: %w", v, replica, err)
				}
				a := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
				fmt.Fprintf(&out, "%d | %d | %d | %d | %d\n", v, replica, epoch, a.ErrorCode, a.CurrentLeader.LeaderID)
			}
		}
	}
	return keep("fetch-replicas.txt", out.String())
}
