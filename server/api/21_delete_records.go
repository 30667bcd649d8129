package api

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/record"
)

// deleteRecords moves log starts forward. The answer comes when every live replica has done so, or the time is up.
func (a *API) deleteRecords(c *Call, req *kmsg.DeleteRecordsRequest) {
	img := a.o.Images.Image()
	resp := &kmsg.DeleteRecordsResponse{}
	timeout := time.Duration(max(req.TimeoutMillis, 0)) * time.Millisecond
	var open atomic.Int32
	open.Store(1)
	finish := func() {
		if open.Add(-1) == 0 {
			c.reply(resp)
		}
	}
	for i := range req.Topics { // all places first: results come from other goroutines
		t := &req.Topics[i]
		out := kmsg.DeleteRecordsResponseTopic{Topic: t.Topic, Partitions: make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))}
		resp.Topics = append(resp.Topics, out)
		open.Add(int32(len(t.Partitions)))
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p, r := &t.Partitions[j], &resp.Topics[i].Partitions[j]
			r.Partition, r.LowWatermark = p.Partition, -1
			part, err := a.partition(img, t.Topic, p.Partition)
			if err != nil {
				r.ErrorCode = code(err)
				finish()
				continue
			}
			part.DeleteRecords(record.Offset(p.Offset), timeout, func(low record.Offset, err error) {
				if err != nil {
					r.ErrorCode = code(err)
				} else {
					r.LowWatermark = int64(low)
				}
				finish()
			})
		}
	}
	finish()
}
