package peer

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// fetchVersion is that of the fetches of followers: topic ids, ReplicaState, the current leader in errors.
const fetchVersion = 17

// PartitionRef names a partition.
type PartitionRef struct {
	Topic     metadata.TopicID
	Partition int32
}

// FetchPartition is what a follower asks of one partition.
type FetchPartition struct {
	PartitionRef
	// LeaderEpoch is the current one as the follower knows it; LastEpoch that of the last batch it has, −1 without any.
	LeaderEpoch, LastEpoch record.Epoch
	// Offset is the follower's written end, Stable its stable end; −1 sends none, and Offset counts as stable.
	Offset, Stable record.Offset
	LogStart       record.Offset
	MaxBytes       int32
	Directory      metadata.DirectoryID
}

// FetchRequest is a follower's fetch. In a session (SessionEpoch above 0) Partitions are those that are new or ask for something else, and
// Forgotten those that leave; partitions of one topic that stand side by side travel together.
type FetchRequest struct {
	SessionID, SessionEpoch int32
	MaxWait                 time.Duration
	MinBytes, MaxBytes      int32
	Partitions              []FetchPartition
	Forgotten               []PartitionRef
}

// FetchedPartition is what the leader says of one partition.
type FetchedPartition struct {
	PartitionRef
	// Err is nil, or a sentinel of this package.
	Err error
	// HighWatermark is −1 with Err, or where the leader does not know it yet.
	HighWatermark, LogStart record.Offset
	// DivergingEpoch is −1 unless the follower's log has left the leader's: there, at DivergingEnd, the leader's log of that epoch ends.
	DivergingEpoch record.Epoch
	DivergingEnd   record.Offset
	// Leader and LeaderEpoch are told with ErrNotLeader and ErrFencedLeaderEpoch, else −1.
	Leader      metadata.BrokerID
	LeaderEpoch record.Epoch
	// Records lie in the buffer of the response.
	Records []byte
}

// FetchResponse is the answer to a fetch. Release it once when its records are not looked at any more.
type FetchResponse struct {
	// SessionID is 0 where the leader keeps no session.
	SessionID  int32
	Partitions []FetchedPartition

	buffer *buffer
}

// Release gives the buffer of the records back. It does nothing on a response that was made by hand.
func (r *FetchResponse) Release() {
	if r.buffer != nil {
		r.buffer.release()
		r.buffer = nil
	}
}

// Fetch asks a leader for records. Several fetches of one caller to one broker are in flight at once, and answered in order. The error is
// ErrFetchSession for the session as a whole, or one of the connection.
func (c *Client) Fetch(ctx context.Context, leader metadata.BrokerID, r *FetchRequest) (*FetchResponse, error) {
	p, err := c.peer(leader)
	if err != nil {
		return nil, err
	}
	buf, body, err := p.fetch.do(ctx, c.fetchRequest(r))
	if err != nil {
		return nil, err
	}
	return decodeFetch(leader, buf, body)
}

// StartFetch is Fetch without waiting. done is called once, in the order of the calls towards one broker, on another goroutine; it must not
// block. A fetch whose context ends by its deadline ends the connection, and with it those behind it.
func (c *Client) StartFetch(ctx context.Context, leader metadata.BrokerID, r *FetchRequest, done func(*FetchResponse, error)) {
	p, err := c.peer(leader)
	if err != nil {
		go done(nil, err)
		return
	}
	p.fetch.submit(ctx, c.fetchRequest(r), func(a answer) {
		if a.err != nil {
			done(nil, a.err)
			return
		}
		done(decodeFetch(leader, a.buf, a.body))
	})
}

func decodeFetch(leader metadata.BrokerID, buf *buffer, body []byte) (*FetchResponse, error) {
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(fetchVersion)
	if err := resp.ReadFrom(body); err != nil {
		buf.release()
		return nil, protocolError(leader, err)
	}
	if err := fromCode(resp.ErrorCode); err != nil {
		buf.release()
		return nil, err
	}
	out := fetched(resp)
	out.buffer = buf
	return out, nil
}

func (c *Client) fetchRequest(r *FetchRequest) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(fetchVersion)
	req.ReplicaState.ID, req.ReplicaState.Epoch = c.o.Self, c.o.Epoch()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(r.MaxWait/time.Millisecond), r.MinBytes, r.MaxBytes
	req.SessionID, req.SessionEpoch = r.SessionID, r.SessionEpoch
	for i := range r.Partitions {
		p := &r.Partitions[i]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != p.Topic {
			req.Topics = append(req.Topics, kmsg.FetchRequestTopic{TopicID: p.Topic})
		}
		t := &req.Topics[len(req.Topics)-1]
		k := kmsg.NewFetchRequestTopicPartition()
		k.Partition, k.CurrentLeaderEpoch, k.FetchOffset = p.Partition, int32(p.LeaderEpoch), int64(p.Offset)
		k.LastFetchedEpoch, k.LogStartOffset, k.PartitionMaxBytes = int32(p.LastEpoch), int64(p.LogStart), p.MaxBytes
		k.ReplicaDirectoryID = p.Directory
		if p.Stable >= 0 {
			k.UnknownTags.Set(TagStableEnd, binary.BigEndian.AppendUint64(nil, uint64(p.Stable)))
		}
		t.Partitions = append(t.Partitions, k)
	}
	for _, f := range r.Forgotten {
		if n := len(req.ForgottenTopics); n == 0 || req.ForgottenTopics[n-1].TopicID != f.Topic {
			req.ForgottenTopics = append(req.ForgottenTopics, kmsg.FetchRequestForgottenTopic{TopicID: f.Topic})
		}
		t := &req.ForgottenTopics[len(req.ForgottenTopics)-1]
		t.Partitions = append(t.Partitions, f.Partition)
	}
	return req
}

func fetched(resp *kmsg.FetchResponse) *FetchResponse {
	out := &FetchResponse{SessionID: resp.SessionID}
	n := 0
	for i := range resp.Topics {
		n += len(resp.Topics[i].Partitions)
	}
	out.Partitions = make([]FetchedPartition, 0, n)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out.Partitions = append(out.Partitions, FetchedPartition{
				PartitionRef:  PartitionRef{Topic: t.TopicID, Partition: p.Partition},
				Err:           fromCode(p.ErrorCode),
				HighWatermark: record.Offset(p.HighWatermark), LogStart: record.Offset(p.LogStartOffset),
				DivergingEpoch: record.Epoch(p.DivergingEpoch.Epoch), DivergingEnd: record.Offset(p.DivergingEpoch.EndOffset),
				Leader: p.CurrentLeader.LeaderID, LeaderEpoch: record.Epoch(p.CurrentLeader.LeaderEpoch),
				Records: p.RecordBatches,
			})
		}
	}
	return out
}

// StableEnd reads the stable end of a partition of a fetch; ok is false without the tag.
func StableEnd(p *kmsg.FetchRequestTopicPartition) (end record.Offset, ok bool) {
	p.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == TagStableEnd && len(value) == 8 {
			end, ok = record.Offset(binary.BigEndian.Uint64(value)), true
		}
	})
	return end, ok
}
