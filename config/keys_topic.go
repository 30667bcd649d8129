package config

import (
	"fmt"
	"regexp"
	"strings"
)

// MaxDecompressedDefault is Kafka's default bound of a decompressed record set: the largest array of a Java process.
const MaxDecompressedDefault = "2147483639"

const (
	noTier = "there is no remote tier: all data is local"
)

// topicKeys are the settings of a topic. Where Synonym is set, the broker key of that name gives the default.
func topicKeys() []Key {
	t := []Key{
		{Name: "cleanup.policy", Type: List, Default: "delete", Synonym: "log.cleanup.policy", Valid: oneOf("compact", "delete"), Reason: NoCompaction, Doc: "What happens to old records: delete drops old segments, compact keeps the last record of each key, both do both; an empty list keeps all for ever."},
		{Name: "compression.gzip.level", Type: Int, Default: "-1", Synonym: "compression.gzip.level", Valid: rangeOr(1, 9, -1), Doc: "Level at which the broker recompresses with gzip; -1 is the library's default."},
		{Name: "compression.lz4.level", Type: Int, Default: "9", Synonym: "compression.lz4.level", Valid: between(1, 17), Doc: "Level at which the broker recompresses with lz4."},
		{Name: "compression.type", Type: String, Default: "producer", Synonym: "compression.type", Valid: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), Doc: "Codec that batches are stored in. producer keeps the batch as it was sent."},
		{Name: "compression.zstd.level", Type: Int, Default: "3", Synonym: "compression.zstd.level", Valid: between(-131072, 22), Doc: "Level at which the broker recompresses with zstd."},
		{Name: "delete.retention.ms", Type: Long, Default: "86400000", Synonym: "log.cleaner.delete.retention.ms", Valid: atLeast(0), Status: NoEffect, Reason: NoCompaction, Doc: "How long compaction keeps a tombstone, so that a reader from the start still sees it."},
		{Name: "errors.deadletterqueue.group.enable", Type: Boolean, Default: "false", Status: NoEffect, Reason: "share groups are not served", Doc: "Whether share groups may use this topic as a dead letter queue."},
		{Name: "file.delete.delay.ms", Type: Long, Default: "60000", Synonym: "log.segment.delete.delay.ms", Valid: atLeast(0), Doc: "Time between taking a segment out of the log and removing its files."},
		{Name: "flush.messages", Type: Long, Default: "1", Kafka: "9223372036854775807", Synonym: "log.flush.interval.messages", Valid: atLeast(1), Doc: "Records between two fsyncs. 1: acknowledged means on disk. Above 1: acknowledged means written, and a power failure can lose the tail."},
		{Name: "flush.ms", Type: Long, Default: "9223372036854775807", Synonym: "log.flush.interval.ms", Valid: atLeast(0), Doc: "Longest time a written record waits for an fsync, where flush.messages is above 1."},
		{Name: "follower.replication.throttled.replicas", Type: List, Valid: throttled(), Doc: "Replicas whose follower side is throttled: partition:broker pairs, or * for all."},
		{Name: "index.interval.bytes", Type: Int, Default: "4096", Synonym: "log.index.interval.bytes", Valid: atLeast(0), Doc: "Bytes of log between two entries of the offset index."},
		{Name: "leader.replication.throttled.replicas", Type: List, Valid: throttled(), Doc: "Replicas whose leader side is throttled: partition:broker pairs, or * for all."},
		{Name: "local.retention.bytes", Type: Long, Default: "-2", Synonym: "log.local.retention.bytes", Valid: atLeast(-2), Status: NoEffect, Reason: noTier, Doc: "Bytes of a partition kept on local disk once they are in the remote tier; -2 follows retention.bytes."},
		{Name: "local.retention.ms", Type: Long, Default: "-2", Synonym: "log.local.retention.ms", Valid: atLeast(-2), Status: NoEffect, Reason: noTier, Doc: "Time a segment stays on local disk once it is in the remote tier; -2 follows retention.ms."},
		{Name: "max.compaction.lag.ms", Type: Long, Default: "9223372036854775807", Synonym: "log.cleaner.max.compaction.lag.ms", Valid: atLeast(1), Status: NoEffect, Reason: NoCompaction, Doc: "Longest time a record may wait for compaction."},
		{Name: "max.decompressed.message.bytes", Type: Int, Default: MaxDecompressedDefault, Synonym: "max.decompressed.message.bytes", Valid: between(1, 2147483639), Doc: "Largest size of one batch after decompression. The server's keeplog.decompressed.max.bytes also holds."},
		{Name: "max.message.bytes", Type: Int, Default: "1048588", Synonym: "message.max.bytes", Valid: atLeast(0), Doc: "Largest record batch the topic takes, as it arrives (compressed)."},
		{Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000", Synonym: "log.message.timestamp.after.max.ms", Valid: atLeast(0), Doc: "How far a record's timestamp may lie after the broker's clock, with CreateTime."},
		{Name: "message.timestamp.before.max.ms", Type: Long, Default: "9223372036854775807", Synonym: "log.message.timestamp.before.max.ms", Valid: atLeast(0), Doc: "How far a record's timestamp may lie before the broker's clock, with CreateTime."},
		{Name: "message.timestamp.type", Type: String, Default: "CreateTime", Synonym: "log.message.timestamp.type", Valid: oneOf("CreateTime", "LogAppendTime"), Doc: "Whose time a record carries: the producer's, or the broker's at append."},
		{Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", Synonym: "log.cleaner.min.cleanable.ratio", Valid: between(0, 1), Status: NoEffect, Reason: NoCompaction, Doc: "Share of a log that must be uncompacted before compaction takes it on."},
		{Name: "min.compaction.lag.ms", Type: Long, Default: "0", Synonym: "log.cleaner.min.compaction.lag.ms", Valid: atLeast(0), Status: NoEffect, Reason: NoCompaction, Doc: "Time a record is safe from compaction."},
		{Name: "min.insync.replicas", Type: Int, Default: "1", Synonym: "min.insync.replicas", Valid: atLeast(1), Reason: "2 where the topic has three or more replicas and nothing sets it", Doc: "Replicas in sync, the leader among them, that acks=all needs."},
		{Name: "preallocate", Type: Boolean, Default: "false", Synonym: "log.preallocate", Status: NoEffect, Reason: "log files are always allocated ahead, in steps, without growing their size", Doc: "Whether a new segment's file is allocated in full."},
		{Name: "remote.copy.lag.bytes", Type: Long, Default: "-1", Synonym: "log.remote.copy.lag.bytes", Valid: atLeast(-1), Status: NoEffect, Reason: noTier, Doc: "Bytes that stay behind the copy to the remote tier."},
		{Name: "remote.copy.lag.ms", Type: Long, Default: "0", Synonym: "log.remote.copy.lag.ms", Valid: atLeast(-1), Status: NoEffect, Reason: noTier, Doc: "Time a segment waits before it is copied to the remote tier."},
		{Name: "remote.log.copy.disable", Type: Boolean, Default: "false", Status: NoEffect, Reason: noTier, Doc: "Whether copying to the remote tier stops."},
		{Name: "remote.log.delete.on.disable", Type: Boolean, Default: "false", Status: NoEffect, Reason: noTier, Doc: "Whether turning the remote tier off deletes what is in it."},
		{Name: "remote.storage.enable", Type: Boolean, Default: "false", Status: Refused, Reason: noTier, Doc: "Whether old segments move to a remote tier."},
		{Name: "retention.bytes", Type: Long, Default: "-1", Synonym: "log.retention.bytes", Doc: "Size of a partition above which the oldest segments go; negative is no limit."},
		{Name: "retention.ms", Type: Long, Default: "604800000", Synonym: "log.retention.ms", Valid: atLeast(-1), Doc: "Age above which a segment goes, by its newest record; -1 is no limit."},
		{Name: "segment.bytes", Type: Int, Default: "1073741824", Synonym: "log.segment.bytes", Valid: atLeast(1 << 20), Doc: "Size at which a segment is closed and the next begins."},
		{Name: "segment.index.bytes", Type: Int, Default: "10485760", Synonym: "log.index.size.max.bytes", Valid: atLeast(4), Doc: "Largest size of a segment's index; a full index closes the segment."},
		{Name: "segment.jitter.ms", Type: Long, Default: "0", Synonym: "log.roll.jitter.ms", Valid: atLeast(0), Doc: "Largest random time taken off segment.ms, so that partitions do not roll together."},
		{Name: "segment.ms", Type: Long, Default: "604800000", Synonym: "log.roll.ms", Valid: atLeast(1), Doc: "Age at which a segment is closed though it is not full."},
		{Name: "unclean.leader.election.enable", Type: Boolean, Default: "false", Synonym: "unclean.leader.election.enable", Doc: "Whether a replica outside the in-sync set may lead when no other is left; that loses acknowledged records."},
	}
	for i := range t {
		t[i].Scope, t[i].Live = ScopeTopic, true
	}
	return t
}

// throttled accepts "*" or a list of partition:broker pairs.
func throttled() Valid {
	pair := regexp.MustCompile(`^[0-9]+:[0-9]+$`)
	valid := checked("* or partition:broker pairs", func(v string) error {
		if v == "" || v == "*" {
			return nil
		}
		for _, it := range strings.Split(v, ",") {
			if it != "" && !pair.MatchString(it) {
				return fmt.Errorf("%q is not partition:broker, and the list is not *", it)
			}
		}
		return nil
	})
	valid.blankItems = true
	return valid
}
