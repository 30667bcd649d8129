package api

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

// createTopics makes topics. The answer comes when this broker serves those partitions of them that it leads.
func (a *API) createTopics(c *Call, req *kmsg.CreateTopicsRequest) {
	ctx, cancel := withTimeout(c, req.TimeoutMillis)
	defer cancel()
	var made []controller.CreatedTopic
	err := ctx.Err() // no time at all: nothing is made, as in Kafka
	if err == nil {
		made, err = a.o.Controller.CreateTopics(ctx, createRequest(req))
	}
	if err != nil {
		made = made[:0]
		for i := range req.Topics {
			made = append(made, controller.CreatedTopic{Name: req.Topics[i].Topic, Err: err})
		}
	}
	if !req.ValidateOnly {
		for i := range made {
			if made[i].Err == nil {
				a.awaitTopic(ctx, made[i].Name)
			}
		}
	}
	resp := &kmsg.CreateTopicsResponse{}
	for i := range made {
		resp.Topics = append(resp.Topics, a.createdTopic(&made[i]))
	}
	c.reply(resp)
}

func createRequest(req *kmsg.CreateTopicsRequest) controller.CreateTopicsRequest {
	r := controller.CreateTopicsRequest{ValidateOnly: req.ValidateOnly}
	for i := range req.Topics {
		t := &req.Topics[i]
		ct := controller.CreateTopic{Name: t.Topic, Partitions: t.NumPartitions, Replicas: t.ReplicationFactor}
		for _, as := range t.ReplicaAssignment {
			ct.Assignment = append(ct.Assignment, controller.PartitionAssignment{Partition: as.Partition, Brokers: as.Replicas})
		}
		for _, s := range t.Configs {
			ct.Configs = append(ct.Configs, metadata.Setting{Key: s.Name, Value: s.Value})
		}
		r.Topics = append(r.Topics, ct)
	}
	return r
}

func (a *API) createdTopic(m *controller.CreatedTopic) kmsg.CreateTopicsResponseTopic {
	r := kmsg.NewCreateTopicsResponseTopic()
	r.Topic, r.NumPartitions, r.ReplicationFactor, r.Configs = m.Name, -1, -1, []kmsg.CreateTopicsResponseTopicConfig{}
	if m.Err != nil {
		r.ErrorCode, r.ErrorMessage = a.adminError(m.Err)
		return r
	}
	r.TopicID, r.NumPartitions, r.ReplicationFactor = m.ID, m.Partitions, m.Replicas
	l := a.layers(a.o.Images.Image())
	l.Topic, l.Replicas = m.Configs, int(m.Replicas)
	for _, e := range l.DescribeTopic(nil) {
		r.Configs = append(r.Configs, kmsg.CreateTopicsResponseTopicConfig{
			Name: e.Name, Value: e.Value, ReadOnly: e.ReadOnly, Source: int8(e.Source), IsSensitive: e.Sensitive,
		})
	}
	return r
}

// withTimeout is the context of a request that carries its own time limit.
func withTimeout(c *Call, ms int32) (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Ctx, time.Duration(max(ms, 0))*time.Millisecond)
}

// adminError is the code and the text for an error of the controller. Errors that speak for themselves have no text.
func (a *API) adminError(err error) (int16, *string) {
	c := code(err)
	if c == codeUnknownServerError && !errors.Is(err, controller.ErrUnknownOperation) {
		a.log.Error("administration failed", "cause", err)
	}
	if s := errorText(err); s != "" {
		return c, &s
	}
	return c, nil
}

// layers are the places that settings come from, without those of a topic.
func (a *API) layers(img *metadata.Image) config.Layers {
	return config.Layers{
		Static: a.o.Settings.Static(), Brokers: img.Size(),
		Broker: img.Configs(metadata.ResourceBroker, nodeName(a.o.NodeID)), Cluster: img.Configs(metadata.ResourceBroker, ""),
	}
}
