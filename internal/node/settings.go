package node

import (
	"strconv"
	"sync/atomic"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/replication/quorum"
)

// settings turns the static configuration and an image into what is in force.
type settings struct {
	static *config.Broker
	self   string
	live   atomic.Pointer[config.Broker]
	groups atomic.Pointer[groupSettings]
	dirs   []*log.Dir // which are told of what is theirs
}

func newSettings(static *config.Broker, q *quorum.Quorum, dirs []*log.Dir) *settings {
	s := &settings{static: static, self: strconv.Itoa(int(static.NodeID())), dirs: dirs}
	s.update(q.Image())
	return s
}

// layers are the places that a topic's settings come from; t may be nil.
func (s *settings) layers(img *metadata.Image, t *metadata.Topic) config.Layers {
	l := config.Layers{
		Broker: img.Configs(metadata.ResourceBroker, s.self), Cluster: img.Configs(metadata.ResourceBroker, ""), Static: s.static,
		Brokers: img.Size(),
	}
	if t != nil {
		l.Topic = img.Configs(metadata.ResourceTopic, t.Name)
		l.Replicas = t.ReplicationFactor()
	}
	return l
}

// topic is a topic's effective configuration.
func (s *settings) topic(img *metadata.Image, t *metadata.Topic) config.Topic {
	return s.layers(img, t).Effective()
}

// update takes the dynamic settings of an image over.
func (s *settings) update(img *metadata.Image) {
	l := s.layers(img, nil)
	live := l.Dynamic()
	s.live.Store(live)
	s.groups.Store(newGroupSettings(img, l, live))
	for _, d := range s.dirs {
		d.SetProducerExpiration(live.Duration("producer.id.expiration.ms"))
		d.SetRecoveryThreads(live.Int("num.recovery.threads.per.data.dir"))
	}
}

// Static is what the process was started with.
func (s *settings) Static() *config.Broker { return s.static }

// Live is Static with the dynamic settings laid over it.
func (s *settings) Live() *config.Broker { return s.live.Load() }
