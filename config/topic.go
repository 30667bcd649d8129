package config

import (
	"strconv"
	"time"
)

// Topic is the effective configuration of one topic. It is a value: copies are independent but for the lists, which are read-only.
type Topic struct {
	Cleanup     Cleanup
	Compression Compression
	Flush       Flush
	Retention   Retention
	Segment     Segment
	Timestamp   Timestamp
	Compaction  Compaction
	// MaxMessageBytes bounds one record batch as it arrives.
	MaxMessageBytes int
	// MaxDecompressedBytes bounds one batch after decompression: the smaller of the topic's and the server's limit.
	MaxDecompressedBytes int
	// MinInsyncReplicas is how many replicas must be in sync for acks=all; of a single partition see MinInsync.
	MinInsyncReplicas int
	// MinInsyncSet says that somebody has set it: it does not follow the number of replicas.
	MinInsyncSet bool
	// UncleanLeaderElection lets a replica outside the in-sync set lead.
	UncleanLeaderElection bool
	// FileDeleteDelay lies between taking a segment out of the log and unlinking its files.
	FileDeleteDelay time.Duration
	// LeaderThrottled and FollowerThrottled are partition:broker pairs, or one "*".
	LeaderThrottled, FollowerThrottled []string
}

// MinInsync is how many replicas of a partition that has that many must be in sync for acks=all: the setting, or the default
// for that number; never more than there are.
func (t Topic) MinInsync(replicas int) int {
	n := t.MinInsyncReplicas
	if !t.MinInsyncSet {
		n = defaultMinInsync(replicas)
	}
	return max(1, min(n, replicas))
}

// Cleanup is cleanup.policy; neither keeps all records for ever.
type Cleanup struct{ Delete, Compact bool }

// Compression is the codec that batches are stored in.
type Compression struct {
	// Type is uncompressed, gzip, snappy, lz4, zstd, or producer (as sent).
	Type string
	// Levels at which the broker recompresses; GzipLevel -1 is the library's default.
	GzipLevel, LZ4Level, ZstdLevel int
}

// Flush says when appended records are made durable.
type Flush struct {
	// Messages is the count of records between two fsyncs, at least 1.
	Messages int64
	// Interval is the longest a record waits for an fsync, Forever for no limit.
	Interval time.Duration
}

// DurableOnAck is true when an acknowledged record is on disk.
func (f Flush) DurableOnAck() bool { return f.Messages == 1 }

// Retention bounds a partition.
type Retention struct {
	// Bytes is the size limit, negative for none.
	Bytes int64
	// Age is the age limit, Forever for none.
	Age time.Duration
}

// Segment says when a segment ends and how dense its index is.
type Segment struct {
	// Bytes is the size limit, at least 1 MiB.
	Bytes int
	// Age is the age limit, and Jitter the largest random time taken off it.
	Age, Jitter time.Duration
	// IndexBytes is the largest size of an index file; IndexInterval the bytes of log between two entries.
	IndexBytes, IndexInterval int
	Preallocate               bool
}

// Timestamp bounds the times of records.
type Timestamp struct {
	// LogAppend is true for LogAppendTime.
	LogAppend bool
	// BeforeMax and AfterMax bound the distance from the broker's clock with CreateTime, Forever for no limit.
	BeforeMax, AfterMax time.Duration
}

// Compaction steers the cleaner.
type Compaction struct {
	MinLag, MaxLag  time.Duration
	MinDirtyRatio   float64
	DeleteRetention time.Duration
}

// Layers are the places that a topic's or a broker's values come from, the topic's own first. Maps may be nil. Values in them must have
// passed Check; one that has not (a later version wrote it) counts as not set.
type Layers struct {
	// Topic are the topic's own settings.
	Topic map[string]string
	// Broker are the dynamic settings of this broker, Cluster those of all brokers.
	Broker, Cluster map[string]string
	// Static is what the process was started with; never nil.
	Static *Broker
	// Replicas is the replication factor of the topic, 0 where no topic is meant. It decides the default of min.insync.replicas.
	Replicas int
	// Brokers counts the brokers of the cluster. It decides the default of default.replication.factor.
	Brokers int
}

// Effective reduces the layers to the settings that the topic runs with.
func (l Layers) Effective() Topic {
	r := reader{l}
	t := Topic{
		Compression: Compression{
			Type: r.text("compression.type"), GzipLevel: r.int("compression.gzip.level"),
			LZ4Level: r.int("compression.lz4.level"), ZstdLevel: r.int("compression.zstd.level"),
		},
		Flush:     Flush{Messages: r.long("flush.messages"), Interval: r.millis("flush.ms")},
		Retention: Retention{Bytes: r.long("retention.bytes"), Age: r.millis("retention.ms")},
		Segment: Segment{
			Bytes: r.int("segment.bytes"), Age: r.millis("segment.ms"), Jitter: r.millis("segment.jitter.ms"),
			IndexBytes: r.int("segment.index.bytes"), IndexInterval: r.int("index.interval.bytes"),
			Preallocate: r.bool("preallocate"),
		},
		Timestamp: Timestamp{
			LogAppend: r.text("message.timestamp.type") == "LogAppendTime",
			BeforeMax: r.millis("message.timestamp.before.max.ms"), AfterMax: r.millis("message.timestamp.after.max.ms"),
		},
		Compaction: Compaction{
			MinLag: r.millis("min.compaction.lag.ms"), MaxLag: r.millis("max.compaction.lag.ms"),
			MinDirtyRatio: r.float("min.cleanable.dirty.ratio"), DeleteRetention: r.millis("delete.retention.ms"),
		},
		MaxMessageBytes:       r.int("max.message.bytes"),
		MaxDecompressedBytes:  min(r.int("max.decompressed.message.bytes"), l.Static.Int("keeplog.decompressed.max.bytes")),
		MinInsyncReplicas:     r.int("min.insync.replicas"),
		MinInsyncSet:          l.given(Lookup(ScopeTopic, "min.insync.replicas")),
		UncleanLeaderElection: r.bool("unclean.leader.election.enable"),
		FileDeleteDelay:       r.millis("file.delete.delay.ms"),
		LeaderThrottled:       splitList(r.text("leader.replication.throttled.replicas")),
		FollowerThrottled:     splitList(r.text("follower.replication.throttled.replicas")),
	}
	for _, p := range splitList(r.text("cleanup.policy")) {
		t.Cleanup.Delete = t.Cleanup.Delete || p == "delete"
		t.Cleanup.Compact = t.Cleanup.Compact || p == "compact"
	}
	return t
}

// reader reads effective values of topic keys, which always have one.
type reader struct{ l Layers }

func (r reader) text(key string) string { return r.l.topicValue(Lookup(ScopeTopic, key)) }

func (r reader) long(key string) int64 {
	n, _ := strconv.ParseInt(r.text(key), 10, 64)
	return n
}

func (r reader) int(key string) int { return int(r.long(key)) }

func (r reader) bool(key string) bool { return r.text(key) == "true" }

func (r reader) float(key string) float64 {
	f, _ := strconv.ParseFloat(r.text(key), 64)
	return f
}

func (r reader) millis(key string) time.Duration { return millis(r.long(key)) }
