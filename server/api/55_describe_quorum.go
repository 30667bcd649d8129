package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadataLog is what Kafka's tools call the metadata log.
const metadataLog = "__cluster_metadata"

// describeQuorum tells who keeps the metadata log, and how far each member is.
func (a *API) describeQuorum(c *Call, req *kmsg.DescribeQuorumRequest) {
	resp := kmsg.NewPtrDescribeQuorumResponse()
	if len(req.Topics) != 1 || req.Topics[0].Topic != metadataLog || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
		for i := range req.Topics {
			t := kmsg.DescribeQuorumResponseTopic{Topic: req.Topics[i].Topic}
			for _, p := range req.Topics[i].Partitions {
				t.Partitions = append(t.Partitions, kmsg.DescribeQuorumResponseTopicPartition{
					Partition: p.Partition, ErrorCode: codeUnknownTopicOrPartition, ErrorMessage: text("This server does not host this topic-partition."),
				})
			}
			resp.Topics = append(resp.Topics, t)
		}
		c.reply(resp)
		return
	}
	if !a.leading() {
		resp.ErrorCode = codeNotLeader
		c.reply(resp)
		return
	}
	s := a.quorumStatus()
	p := kmsg.DescribeQuorumResponseTopicPartition{LeaderID: s.Leader, LeaderEpoch: int32(s.Term), HighWatermark: s.HighWatermark}
	for i := range s.Members {
		m := &s.Members[i]
		r := kmsg.DescribeQuorumResponseTopicPartitionReplicaState{
			ReplicaID: m.ID, ReplicaDirectoryID: m.Directory, LogEndOffset: m.LogEnd, LastFetchTimestamp: m.Fetched, LastCaughtUpTimestamp: m.CaughtUp,
		}
		if m.Voter {
			p.CurrentVoters = append(p.CurrentVoters, r)
		} else {
			p.Observers = append(p.Observers, r)
		}
		n := kmsg.DescribeQuorumResponseNode{NodeID: m.ID}
		if m.Endpoint.Host != "" {
			n.Listeners = []kmsg.DescribeQuorumResponseNodeListener{{Name: m.Endpoint.Name, Host: m.Endpoint.Host, Port: m.Endpoint.Port}}
		}
		resp.Nodes = append(resp.Nodes, n)
	}
	resp.Topics = []kmsg.DescribeQuorumResponseTopic{{Topic: metadataLog, Partitions: []kmsg.DescribeQuorumResponseTopicPartition{p}}}
	c.reply(resp)
}

// quorumStatus is the quorum, which on a node alone is that node.
func (a *API) quorumStatus() QuorumStatus {
	if a.o.Quorum != nil {
		return a.o.Quorum.QuorumStatus()
	}
	img, now := a.o.Images.Image(), a.o.Now().UnixMilli()
	m := QuorumMember{ID: a.o.NodeID, Voter: true, LogEnd: int64(img.Index()) + 1, Fetched: now, CaughtUp: now}
	for _, v := range img.Voters() {
		if v.ID == a.o.NodeID {
			m.Directory = v.Directory
		}
	}
	return QuorumStatus{Leader: a.o.NodeID, Term: img.Term(), HighWatermark: int64(img.Index()) + 1, Members: []QuorumMember{m}}
}
