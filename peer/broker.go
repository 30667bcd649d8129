package peer

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/record"
)

// ISRMember is a replica of an in-sync set and the epoch of its broker.
type ISRMember struct {
	ID    metadata.BrokerID
	Epoch int64
}

// ISRChange is the in-sync set that a leader wants for one of its partitions.
type ISRChange struct {
	PartitionRef
	LeaderEpoch    record.Epoch
	PartitionEpoch int32
	ISR            []ISRMember
	// Recovering is true while a leader that was elected uncleanly has not finished.
	Recovering bool
}

// ISRAnswer is what became of one change. Without Err it holds the partition's new state.
type ISRAnswer struct {
	PartitionRef
	Err            error
	Leader         metadata.BrokerID
	LeaderEpoch    record.Epoch
	PartitionEpoch int32
	ISR            []metadata.BrokerID
	Recovering     bool
}

// AlterPartition asks the controller to change in-sync sets. Answers stand in no particular order; the error is of the request as a
// whole: ErrNotController, ErrStaleBrokerEpoch, or one of the connection.
func (c *Client) AlterPartition(ctx context.Context, controller metadata.BrokerID, changes []ISRChange) ([]ISRAnswer, error) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.SetVersion(3)
	req.BrokerID, req.BrokerEpoch = c.o.Self, c.o.Epoch()
	for i := range changes {
		ch := &changes[i]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].TopicID != ch.Topic {
			req.Topics = append(req.Topics, kmsg.AlterPartitionRequestTopic{TopicID: ch.Topic})
		}
		t := &req.Topics[len(req.Topics)-1]
		k := kmsg.AlterPartitionRequestTopicPartition{
			Partition: ch.Partition, LeaderEpoch: int32(ch.LeaderEpoch), PartitionEpoch: ch.PartitionEpoch,
		}
		if ch.Recovering {
			k.LeaderRecoveryState = 1
		}
		for _, m := range ch.ISR {
			k.NewEpochISR = append(k.NewEpochISR, kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{BrokerID: m.ID, BrokerEpoch: m.Epoch})
		}
		t.Partitions = append(t.Partitions, k)
	}
	resp := kmsg.NewPtrAlterPartitionResponse()
	if err := c.ask(ctx, controller, req, resp); err != nil {
		return nil, err
	}
	if err := fromCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	var out []ISRAnswer
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out = append(out, ISRAnswer{
				PartitionRef: PartitionRef{Topic: t.TopidID, Partition: p.Partition}, Err: fromCode(p.ErrorCode), Leader: p.LeaderID,
				LeaderEpoch: record.Epoch(p.LeaderEpoch), PartitionEpoch: p.PartitionEpoch, ISR: p.ISR, Recovering: p.LeaderRecoveryState != 0,
			})
		}
	}
	return out, nil
}

// Registration is what a process says of itself when it starts.
type Registration struct {
	ClusterID   string
	Incarnation [16]byte
	Listeners   []metadata.Endpoint
	Rack        string
	Directories []metadata.DirectoryID
	// PreviousEpoch is that of the last clean stop, −1 without one.
	PreviousEpoch int64
	// Features are those that this version knows.
	Features []Feature
}

// Feature is a feature that a broker's version knows, with the lowest and the highest level.
type Feature struct {
	Name     string
	Min, Max int16
}

// Register registers this broker, fenced, and returns its epoch: the index in the metadata log that has the registration.
func (c *Client) Register(ctx context.Context, controller metadata.BrokerID, r *Registration) (epoch int64, err error) {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.SetVersion(4)
	req.BrokerID, req.ClusterID, req.IncarnationID = c.o.Self, r.ClusterID, r.Incarnation
	req.PreviousBrokerEpoch = r.PreviousEpoch
	if r.Rack != "" {
		req.Rack = &r.Rack
	}
	for _, l := range r.Listeners {
		req.Listeners = append(req.Listeners, kmsg.BrokerRegistrationRequestListener{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.Protocol})
	}
	for _, d := range r.Directories {
		req.LogDirs = append(req.LogDirs, d)
	}
	for _, f := range r.Features {
		req.Features = append(req.Features, kmsg.BrokerRegistrationRequestFeature{Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max})
	}
	resp := kmsg.NewPtrBrokerRegistrationResponse()
	if err := c.ask(ctx, controller, req, resp); err != nil {
		return 0, err
	}
	return resp.BrokerEpoch, fromCode(resp.ErrorCode)
}

// Heartbeat is what a broker tells the controller twice a second.
type Heartbeat struct {
	Epoch int64
	// Applied is the index of the newest image that this broker's partitions have.
	Applied uint64
	// WantFence keeps a broker fenced that is not ready yet; WantShutdown asks to be relieved of its leaderships.
	WantFence, WantShutdown bool
	// Lost are the replicas whose store says that data is missing, OutOfOrder others that can be neither led nor followed for now.
	Lost, OutOfOrder []PartitionRef
	// OfflineDirs are the directories that failed.
	OfflineDirs []metadata.DirectoryID
	// Features are those that this version knows: another controller has not seen the registration.
	Features []Feature
}

// HeartbeatAnswer is what the controller says to it.
type HeartbeatAnswer struct{ CaughtUp, Fenced, ShutDown bool }

// Heartbeat reports to the controller. Errors: ErrNotController, ErrStaleBrokerEpoch and ErrBrokerNotRegistered, upon which the broker
// registers again, and those of the connection.
func (c *Client) Heartbeat(ctx context.Context, controller metadata.BrokerID, h *Heartbeat) (HeartbeatAnswer, error) {
	p, err := c.peer(controller)
	if err != nil {
		return HeartbeatAnswer{}, err
	}
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.SetVersion(1)
	req.BrokerID, req.BrokerEpoch, req.CurrentMetadataOffset = c.o.Self, h.Epoch, int64(h.Applied)
	req.WantFence, req.WantShutdown = h.WantFence, h.WantShutdown
	for _, d := range h.OfflineDirs {
		req.OfflineLogDirs = append(req.OfflineLogDirs, d)
	}
	if len(h.Lost)+len(h.OutOfOrder) > 0 {
		req.UnknownTags.Set(TagLost, appendRefs(appendRefs(nil, h.Lost), h.OutOfOrder))
	}
	if len(h.OutOfOrder) > 0 {
		req.UnknownTags.Set(TagOutOfOrder, appendRefs(nil, h.OutOfOrder))
	}
	if len(h.Features) > 0 {
		req.UnknownTags.Set(TagFeatures, appendFeatures(nil, h.Features))
	}
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	if err := askOn(ctx, p.heartbeat, req, resp); err != nil {
		return HeartbeatAnswer{}, err
	}
	return HeartbeatAnswer{CaughtUp: resp.IsCaughtUp, Fenced: resp.IsFenced, ShutDown: resp.ShouldShutdown}, fromCode(resp.ErrorCode)
}

func appendRefs(b []byte, refs []PartitionRef) []byte {
	for _, r := range refs {
		b = append(b, r.Topic[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(r.Partition))
	}
	return b
}

// refBytes is the size of a partition in [TagLost] and [TagOutOfOrder].
const refBytes = 20

// Lost reads the replicas of a heartbeat whose data is lost, and those that are only out of order. The error is ErrProtocol.
func Lost(req *kmsg.BrokerHeartbeatRequest) (lost, outOfOrder []PartitionRef, err error) {
	req.UnknownTags.Each(func(tag uint32, value []byte) {
		switch {
		case tag != TagLost && tag != TagOutOfOrder:
		case len(value)%refBytes != 0:
			err = fmt.Errorf("%w: a list of partitions of %d bytes", ErrProtocol, len(value))
		case tag == TagLost:
			lost = refs(value)
		default:
			outOfOrder = refs(value)
		}
	})
	only := make(map[PartitionRef]bool, len(outOfOrder))
	for _, r := range outOfOrder {
		only[r] = true
	}
	return slices.DeleteFunc(lost, func(r PartitionRef) bool { return only[r] }), outOfOrder, err
}

// refs reads a list of partitions.
func refs(value []byte) (list []PartitionRef) {
	for ; len(value) > 0; value = value[refBytes:] {
		r := PartitionRef{Partition: int32(binary.BigEndian.Uint32(value[16:]))}
		copy(r.Topic[:], value)
		list = append(list, r)
	}
	return list
}

func appendFeatures(b []byte, features []Feature) []byte {
	for _, f := range features {
		b = append(append(b, byte(len(f.Name))), f.Name...)
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, uint16(f.Min)), uint16(f.Max))
	}
	return b
}

// Features reads the features of a heartbeat; none is the answer of a version that does not say. The error is ErrProtocol.
func Features(req *kmsg.BrokerHeartbeatRequest) (features []Feature, err error) {
	req.UnknownTags.Each(func(tag uint32, value []byte) {
		for tag == TagFeatures && len(value) > 0 {
			end := 1 + int(value[0])
			if len(value) < end+4 {
				err = fmt.Errorf("%w: features that end in the midst of one", ErrProtocol)
				return
			}
			features = append(features, Feature{
				Name: string(value[1:end]), Min: int16(binary.BigEndian.Uint16(value[end:])), Max: int16(binary.BigEndian.Uint16(value[end+2:])),
			})
			value = value[end+4:]
		}
	})
	return features, err
}

// AllocateProducerIDs gets a block of producer ids from the controller: first, first+1, … count of them.
func (c *Client) AllocateProducerIDs(ctx context.Context, controller metadata.BrokerID, epoch int64) (first int64, count int32, err error) {
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = c.o.Self, epoch
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	if err := c.ask(ctx, controller, req, resp); err != nil {
		return 0, 0, err
	}
	return resp.ProducerIDStart, resp.ProducerIDLen, fromCode(resp.ErrorCode)
}

// Envelope is a client's request on its way to the controller.
type Envelope struct {
	// Request is the frame without its size: header and body. Principal is who asks, as Kafka writes it; ClientHost its address, 4 or 16
	// bytes.
	Request, Principal, ClientHost []byte
}

// Forward carries a client's request to the controller. The answer is a frame without its size, header and body, for the client as it is;
// it is the caller's. Errors: ErrNotController, and those of the connection.
func (c *Client) Forward(ctx context.Context, controller metadata.BrokerID, e *Envelope) ([]byte, error) {
	p, err := c.peer(controller)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrEnvelopeRequest()
	req.RequestData, req.RequestPrincipal, req.ClientHostAddress = e.Request, e.Principal, e.ClientHost
	req.UnknownTags.Set(TagReceiver, binary.BigEndian.AppendUint32(nil, uint32(c.o.Self)))
	resp := kmsg.NewPtrEnvelopeResponse()
	if err := askOn(ctx, p.idle(), req, resp); err != nil {
		return nil, err
	}
	if err := fromCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.ResponseData) < 4 {
		return nil, fmt.Errorf("%w: node %d: an envelope with %d bytes in it", ErrProtocol, controller, len(resp.ResponseData))
	}
	return resp.ResponseData, nil
}

// Receiver is the broker that the client of an envelope asked; ok is false when it does not say.
func Receiver(req *kmsg.EnvelopeRequest) (id metadata.BrokerID, ok bool) {
	req.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == TagReceiver && len(value) == 4 {
			id, ok = int32(binary.BigEndian.Uint32(value)), true
		}
	})
	return id, ok
}

// ask asks on the control lane.
func (c *Client) ask(ctx context.Context, id metadata.BrokerID, req kmsg.Request, resp kmsg.Response) error {
	p, err := c.peer(id)
	if err != nil {
		return err
	}
	return askOn(ctx, p.control, req, resp)
}

// askOn asks on a lane; the response keeps no bytes of the buffer.
func askOn(ctx context.Context, l *lane, req kmsg.Request, resp kmsg.Response) error {
	buf, body, err := l.do(ctx, req)
	if err != nil {
		return err
	}
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(append([]byte(nil), body...)); err != nil {
		err = protocolError(l.to, err)
		buf.release()
		return err
	}
	buf.release()
	return nil
}

func protocolError(id metadata.BrokerID, err error) error {
	return fmt.Errorf("%w: node %d: %w", ErrProtocol, id, err)
}
