package api

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/log"
	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/replication/isr"
)

// alterReplicaLogDirs moves replicas between this broker's data directories. The answer comes when the copying has begun. For a replica that
// is not here the wish is kept until it comes.
func (a *API) alterReplicaLogDirs(c *Call, req *kmsg.AlterReplicaLogDirsRequest) {
	resp := kmsg.NewPtrAlterReplicaLogDirsResponse()
	img, dirs := a.o.Images.Image(), a.o.Dirs.LogDirs()
	for i := range req.Dirs {
		d := &req.Dirs[i]
		at := slices.IndexFunc(dirs, func(l LogDir) bool { return l.Path == d.Dir })
		for j := range d.Topics {
			t := kmsg.AlterReplicaLogDirsResponseTopic{Topic: d.Topics[j].Topic}
			for _, n := range d.Topics[j].Partitions {
				p := kmsg.AlterReplicaLogDirsResponseTopicPartition{Partition: n}
				switch {
				case at < 0:
					p.ErrorCode = codeLogDirNotFound
				case dirs[at].Err != nil:
					p.ErrorCode = codeKafkaStorageError
				default:
					p.ErrorCode = a.place(img, t.Topic, n, d.Dir)
				}
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
	}
	c.reply(resp)
}

// place has one replica moved, or begin later, in a directory.
func (a *API) place(img *metadata.Image, topic string, partition int32, dir string) int16 {
	if log.CheckName(topic) != nil || partition < 0 {
		return codeUnknownTopicOrPartition
	}
	var id metadata.TopicID
	t, ok := img.TopicByName(topic)
	if ok {
		id = t.ID
	}
	known := ok && int(partition) < len(t.Partitions)
	err := a.o.Replicas.Place(topic, id, partition, dir)
	switch {
	case err == nil:
		return codeNone
	case errors.Is(err, isr.ErrUnknownPartition) && !known:
		return codeUnknownTopicOrPartition
	case errors.Is(err, isr.ErrUnknownPartition):
		return codeReplicaNotAvailable
	case errors.Is(err, log.ErrName):
		return codeInvalidTopic
	case errors.Is(err, isr.ErrUnknownDirectory):
		return codeLogDirNotFound
	}
	a.o.Logger.Warn("a replica cannot be moved", "event", "replica.move.refused", "topic", topic, "partition", partition, "to", dir, "error", err)
	return codeKafkaStorageError
}
