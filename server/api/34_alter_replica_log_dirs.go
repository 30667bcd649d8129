package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
)

// alterReplicaLogDirs moves replicas between this broker's data directories. A replica that is where it is wanted is there already; there is
// no moving of one that is elsewhere: code 9.
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
					p.ErrorCode = a.placed(img, t.Topic, n, d.Dir)
				}
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
	}
	c.reply(resp)
}

// placed is 0 when a replica lies in a directory.
func (a *API) placed(img *metadata.Image, topic string, partition int32, dir string) int16 {
	t, ok := img.TopicByName(topic)
	if !ok || partition < 0 || int(partition) >= len(t.Partitions) {
		return codeUnknownTopicOrPartition
	}
	p, err := a.o.Replicas.Partition(t.ID, partition)
	if err != nil {
		return codeReplicaNotAvailable
	}
	e, ok := p.Ends()
	switch {
	case !ok:
		return codeKafkaStorageError
	case e.DataDir != dir:
		return codeReplicaNotAvailable
	}
	return codeNone
}
