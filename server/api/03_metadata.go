package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

const (
	// noOperations stands for "not asked for".
	noOperations int32 = -1 << 31
	// topicOperations and clusterOperations are the operations that somebody who may do everything may do: bits by Kafka's numbers.
	topicOperations   int32 = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOperations int32 = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
	// autoCreateWait bounds the wait for a topic that a client's look made.
	autoCreateWait = 10 * time.Second
	// servedWait bounds the wait for the partitions of a new topic after that: a client can ask again.
	servedWait = time.Second
)

// metadata describes brokers and topics as clients of the call's listener see them. A name that is missing is created where the client and
// the configuration allow it, and answered when it is served.
func (a *API) metadata(c *Call, req *kmsg.MetadataRequest) {
	if c.Version < 12 {
		for i := range req.Topics {
			if t := &req.Topics[i]; t.Topic == nil || t.TopicID != [16]byte{} {
				metadataRefused(c, req)
				return
			}
		}
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.AuthorizedOperations = noOperations
	if req.IncludeClusterAuthorizedOperations && c.Version >= 8 && c.Version <= 10 {
		resp.AuthorizedOperations = clusterOperations
	}
	img := a.o.Images.Image()
	switch {
	case req.Topics == nil:
		for t := range img.Topics() {
			resp.Topics = append(resp.Topics, a.metadataTopic(c, img, t))
		}
	case slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.TopicID != [16]byte{} }):
		a.metadataByID(c, img, req, resp)
	default:
		img = a.metadataByName(c, img, req, resp)
	}
	if req.IncludeTopicAuthorizedOperations && c.Version >= 8 {
		for i := range resp.Topics {
			if resp.Topics[i].ErrorCode == codeNone {
				resp.Topics[i].AuthorizedOperations = topicOperations
			}
		}
	}
	for _, n := range a.nodes(c, img) {
		resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: n.id, Host: n.host, Port: n.port, Rack: n.rack})
	}
	if id := img.ClusterID(); id != "" {
		resp.ClusterID = &id
	}
	resp.ControllerID = a.adminNode(img)
	c.reply(resp)
}

// metadataRefused answers a request that uses ids in a version that has none: every topic carries the code.
func metadataRefused(c *Call, req *kmsg.MetadataRequest) {
	resp := kmsg.NewPtrMetadataResponse()
	resp.AuthorizedOperations, resp.ControllerID = noOperations, -1
	for i := range req.Topics {
		t := topicRefused(req.Topics[i].Topic, codeInvalidRequest)
		t.TopicID = req.Topics[i].TopicID
		resp.Topics = append(resp.Topics, t)
	}
	c.reply(resp)
}

func topicRefused(name *string, code int16) kmsg.MetadataResponseTopic {
	return kmsg.MetadataResponseTopic{ErrorCode: code, Topic: name, AuthorizedOperations: noOperations}
}

// adminNode is the broker that clients send administration to: any live one will do, so this one.
func (a *API) adminNode(img *metadata.Image) int32 {
	if img.Alive(a.o.NodeID) {
		return a.o.NodeID
	}
	for _, b := range img.Brokers() {
		if !b.Fenced {
			return b.ID
		}
	}
	return -1
}

func (a *API) metadataByID(c *Call, img *metadata.Image, req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	seen := map[metadata.TopicID]bool{}
	for i := range req.Topics {
		id := metadata.TopicID(req.Topics[i].TopicID)
		if id == (metadata.TopicID{}) || seen[id] {
			continue
		}
		seen[id] = true
		if t, ok := img.TopicByID(id); ok {
			resp.Topics = append(resp.Topics, a.metadataTopic(c, img, t))
			continue
		}
		t := topicRefused(nil, codeUnknownTopicID)
		t.TopicID = id
		resp.Topics = append(resp.Topics, t)
	}
}

// metadataByName returns the image that the answer stands on: a newer one when topics were created.
func (a *API) metadataByName(c *Call, img *metadata.Image, req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) *metadata.Image {
	var names, missing []string
	seen := map[string]bool{}
	refused := map[string]int16{}
	for i := range req.Topics {
		name := ""
		if p := req.Topics[i].Topic; p != nil {
			name = *p
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		names = append(names, name)
		if _, ok := img.TopicByName(name); ok {
			continue
		}
		refused[name] = codeUnknownTopicOrPartition
		if err := controller.CheckTopicName(name); err != nil {
			refused[name] = code(err)
		} else {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 && req.AllowAutoTopicCreation && a.o.Settings.Live().Bool("auto.create.topics.enable") {
		img = a.autoCreate(c, missing, refused)
	}
	for _, name := range names {
		if t, ok := img.TopicByName(name); ok {
			resp.Topics = append(resp.Topics, a.metadataTopic(c, img, t))
		} else {
			resp.Topics = append(resp.Topics, topicRefused(&name, refused[name]))
		}
	}
	return img
}

// autoCreate makes topics with the defaults, waits until they are served, and puts the codes of those that could not be made into refused.
func (a *API) autoCreate(c *Call, names []string, refused map[string]int16) *metadata.Image {
	ctx, cancel := context.WithTimeout(c.Ctx, autoCreateWait)
	defer cancel()
	req := controller.CreateTopicsRequest{}
	for _, n := range names {
		req.Topics = append(req.Topics, controller.CreateTopic{Name: n, Partitions: -1, Replicas: -1})
	}
	made, err := a.createAnywhere(ctx, c, req)
	if err != nil {
		a.log.Warn("topics were not created", "topics", names, "cause", err)
		return a.o.Images.Image()
	}
	for i := range made {
		m := &made[i]
		switch {
		case m.Err == nil || code(m.Err) == codeTopicExists:
			a.awaitTopic(ctx, m.Name)
		case errors.Is(m.Err, controller.ErrInvalidTopic), errors.Is(m.Err, controller.ErrInvalidReplicationFactor):
			refused[m.Name] = code(m.Err)
		default:
			a.log.Warn("topic was not created", "topic", m.Name, "cause", m.Err)
		}
	}
	return a.o.Images.Image()
}

// createAnywhere makes topics, at the controller where that is another node. The answers have names and errors only.
func (a *API) createAnywhere(ctx context.Context, c *Call, req controller.CreateTopicsRequest) ([]controller.CreatedTopic, error) {
	if a.leading() {
		return a.o.Controller.CreateTopics(ctx, req)
	}
	r := kmsg.NewPtrCreateTopicsRequest()
	r.SetVersion(7)
	r.TimeoutMillis = int32(autoCreateWait / time.Millisecond)
	for i := range req.Topics {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = req.Topics[i].Name, req.Topics[i].Partitions, req.Topics[i].Replicas
		r.Topics = append(r.Topics, t)
	}
	resp, err := a.ask(ctx, c, r)
	if errors.Is(err, ErrLeading) {
		return a.o.Controller.CreateTopics(ctx, req)
	}
	if err != nil {
		return nil, err
	}
	var made []controller.CreatedTopic
	for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
		made = append(made, controller.CreatedTopic{Name: t.Topic, Err: remote(t.ErrorCode, t.ErrorMessage)})
	}
	return made, nil
}

// awaitTopic returns when the partitions that this broker should lead are served here, or it takes too long.
func (a *API) awaitTopic(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, servedWait)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !a.served(name) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// served says that the newest image has the topic, and this broker serves the partitions of it that it leads.
func (a *API) served(name string) bool {
	t, ok := a.o.Images.Image().TopicByName(name)
	if !ok {
		return false
	}
	for i, p := range t.Partitions {
		if p.Leader != a.o.NodeID {
			continue
		}
		part, err := a.o.Replicas.Partition(t.ID, int32(i))
		if err != nil || part.Leadership().Leader != a.o.NodeID {
			return false
		}
	}
	return true
}

// metadataTopic describes a topic.
func (a *API) metadataTopic(c *Call, img *metadata.Image, t *metadata.Topic) kmsg.MetadataResponseTopic {
	r := kmsg.MetadataResponseTopic{Topic: &t.Name, TopicID: t.ID, AuthorizedOperations: noOperations}
	r.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		code, leader := a.leaderFor(c, img, p)
		r.Partitions[i] = kmsg.MetadataResponseTopicPartition{
			ErrorCode: code, Partition: int32(i), Leader: leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR,
			OfflineReplicas: offline(img, p.Replicas),
		}
		if c.Version == 0 { // that version shows only what is alive
			m := &r.Partitions[i]
			m.Replicas, m.ISR = alive(img, p.Replicas), alive(img, p.ISR)
			if code == codeNone && len(m.Replicas) < len(p.Replicas) {
				m.ErrorCode = codeReplicaNotAvailable
			}
		}
	}
	return r
}

// leaderFor is the leader that a client of the call's listener can reach, and the code when there is none.
func (a *API) leaderFor(c *Call, img *metadata.Image, p *metadata.Partition) (code int16, leader int32) {
	leader = img.LeaderOf(p)
	if leader == metadata.NoLeader {
		return codeLeaderNotAvailable, -1
	}
	if _, ok := a.node(c, img, leader); !ok {
		if c.Key == 3 && c.Version < 6 {
			return codeLeaderNotAvailable, -1
		}
		return codeListenerNotFound, -1
	}
	return codeNone, leader
}

func alive(img *metadata.Image, ids []int32) []int32 {
	l := make([]int32, 0, len(ids))
	for _, id := range ids {
		if img.Alive(id) {
			l = append(l, id)
		}
	}
	return l
}

func offline(img *metadata.Image, ids []int32) []int32 {
	l := []int32{}
	for _, id := range ids {
		if !img.Alive(id) {
			l = append(l, id)
		}
	}
	return l
}
