package config

import (
	"testing"
)

func TestDefaultsLoad(t *testing.T) {
	b := Default()
	if got := b.Listeners()[0].String(); got != "PLAINTEXT://127.0.0.1:9092" {
		t.Errorf("listeners = %s", got)
	}
	topic := Layers{Static: b, Replicas: 1, Brokers: 1}.Effective()
	if !topic.Flush.DurableOnAck() || topic.Segment.Bytes != 1<<30 || topic.MinInsyncReplicas != 1 || !topic.Cleanup.Delete {
		t.Errorf("topic defaults = %+v", topic)
	}
}
