package api

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/log"
)

// describeLogDirs lists the data directories with the partitions asked for (null: all) that lie in them.
func (a *API) describeLogDirs(c *Call, req *kmsg.DescribeLogDirsRequest) {
	resp := &kmsg.DescribeLogDirsResponse{}
	wanted := map[string][]int32{}
	for i := range req.Topics {
		wanted[req.Topics[i].Topic] = append(wanted[req.Topics[i].Topic], req.Topics[i].Partitions...)
	}
	topics := map[string]map[string][]kmsg.DescribeLogDirsResponseDirTopicPartition{} // by directory and name
	a.o.Replicas.All(func(id log.Identity, p Partition) bool {
		if req.Topics != nil && !slices.Contains(wanted[id.Topic], id.Partition) {
			return true
		}
		e, ok := p.Ends()
		if !ok {
			return true
		}
		in := func(dir string) map[string][]kmsg.DescribeLogDirsResponseDirTopicPartition {
			if topics[dir] == nil {
				topics[dir] = map[string][]kmsg.DescribeLogDirsResponseDirTopicPartition{}
			}
			return topics[dir]
		}
		if f, ok := p.Future(); ok && f.DataDir != e.DataDir {
			d := in(f.DataDir)
			d[id.Topic] = append(d[id.Topic], kmsg.DescribeLogDirsResponseDirTopicPartition{
				Partition: id.Partition, Size: f.Size, OffsetLag: f.Lag, IsFuture: true,
			})
		}
		d := in(e.DataDir)
		described := kmsg.DescribeLogDirsResponseDirTopicPartition{
			Partition: id.Partition, Size: e.Size, OffsetLag: max(int64(e.HighWatermark-e.LogEnd), 0),
		}
		if lost, some := p.Lost(); some {
			described.UnknownTags.Set(TagLost, AppendLost(nil, lost))
		}
		d[id.Topic] = append(d[id.Topic], described)
		return true
	})
	for _, dir := range a.o.Dirs.LogDirs() {
		resp.Dirs = append(resp.Dirs, describeDir(dir, topics[dir.Path]))
	}
	c.reply(resp)
}

func describeDir(dir LogDir, topics map[string][]kmsg.DescribeLogDirsResponseDirTopicPartition) kmsg.DescribeLogDirsResponseDir {
	d := kmsg.NewDescribeLogDirsResponseDir()
	d.Dir, d.TotalBytes, d.UsableBytes = dir.Path, dir.Total, dir.Usable
	if dir.Err != nil {
		d.ErrorCode, d.TotalBytes, d.UsableBytes = codeKafkaStorageError, -1, -1
		return d
	}
	for name, parts := range topics {
		slices.SortFunc(parts, func(a, b kmsg.DescribeLogDirsResponseDirTopicPartition) int {
			return int(a.Partition) - int(b.Partition)
		})
		d.Topics = append(d.Topics, kmsg.DescribeLogDirsResponseDirTopic{Topic: name, Partitions: parts})
	}
	slices.SortFunc(d.Topics, func(a, b kmsg.DescribeLogDirsResponseDirTopic) int { return strings.Compare(a.Topic, b.Topic) })
	return d
}
