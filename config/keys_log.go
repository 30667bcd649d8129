package config

import "errors"

// NoCompaction is the reason why settings of compaction have no effect. DescribeConfigs tells it with cleanup.policy.
const NoCompaction = "log compaction does not run yet: compacted topics keep every record"

// logKeys are the broker settings of the log: directories, segments, retention, flushing, and the defaults of topic settings.
func logKeys() []Key {
	const long = "9223372036854775807"
	return []Key{
		{Name: "log.dir", Type: List, Default: "/tmp/kafka-logs", Doc: "Older name of log.dirs. A value counts where log.dirs is not set; the default never does."},
		{Name: "log.dirs", Type: List, Default: "./keeplog-data", Kafka: "null", Doc: "Data directories, separated by commas. The first also holds the metadata unless metadata.log.dir is set."},
		{Name: "metadata.log.dir", Type: String, Null: true, Doc: "Directory of the Raft-replicated metadata log. Not set: the first of log.dirs."},
		{Name: "num.recovery.threads.per.data.dir", Type: Int, Default: "2", Valid: atLeast(1), Live: true, Doc: "Logs of one data directory that are opened and recovered at a time."},

		{Name: "log.segment.bytes", Type: Int, Default: "1073741824", Valid: atLeast(1 << 20), Live: true, Doc: "Size at which a segment is closed and the next begins."},
		{Name: "log.roll.ms", Type: Long, Null: true, Valid: atLeast(1), Live: true, Doc: "Age at which a segment is closed though it is not full. Not set: log.roll.hours."},
		{Name: "log.roll.hours", Type: Int, Default: "168", Valid: atLeast(1), Doc: "Age at which a segment is closed; log.roll.ms wins."},
		{Name: "log.roll.jitter.ms", Type: Long, Null: true, Valid: atLeast(0), Live: true, Doc: "Largest random time taken off the roll time. Not set: log.roll.jitter.hours."},
		{Name: "log.roll.jitter.hours", Type: Int, Default: "0", Valid: atLeast(0), Doc: "Largest random time taken off the roll time; log.roll.jitter.ms wins."},
		{Name: "log.index.interval.bytes", Type: Int, Default: "4096", Valid: atLeast(0), Live: true, Doc: "Bytes of log between two entries of the offset index."},
		{Name: "log.index.size.max.bytes", Type: Int, Default: "10485760", Valid: atLeast(4), Live: true, Doc: "Largest size of a segment's index; a full index closes the segment."},
		{Name: "log.preallocate", Type: Boolean, Default: "false", Live: true, Status: NoEffect, Reason: "log files are always allocated ahead, in steps, without growing their size", Doc: "Whether a new segment's file is allocated in full."},

		{Name: "log.retention.bytes", Type: Long, Default: "-1", Live: true, Doc: "Size of a partition above which the oldest segments go; negative is no limit."},
		{Name: "log.retention.ms", Type: Long, Null: true, Live: true, Valid: checked("negative for no limit, or at least 1", notZero), Doc: "Age above which a segment goes; -1 is no limit. Not set: log.retention.minutes, then log.retention.hours."},
		{Name: "log.retention.minutes", Type: Int, Null: true, Valid: checked("negative for no limit, or at least 1", notZero), Doc: "Age above which a segment goes; log.retention.ms wins."},
		{Name: "log.retention.hours", Type: Int, Default: "168", Valid: checked("negative for no limit, or at least 1", notZero), Doc: "Age above which a segment goes; log.retention.ms and log.retention.minutes win."},
		{Name: "log.retention.check.interval.ms", Type: Long, Default: "300000", Valid: atLeast(1), Doc: "Time between two looks for segments that are old or too much."},
		{Name: "log.initial.task.delay.ms", Type: Long, Default: "30000", Valid: atLeast(0), Undescribed: true, Doc: "Time after the start before the first look for segments that are old or too much, in partitions that are there by then; one that is made later is looked at after log.retention.check.interval.ms."},
		{Name: "log.cleanup.policy", Type: List, Default: "delete", Live: true, Valid: oneOf("compact", "delete"), Doc: "Default of the topics' cleanup.policy."},
		{Name: "log.segment.delete.delay.ms", Type: Long, Default: "60000", Valid: atLeast(0), Live: true, Doc: "Time between taking a segment out of the log and removing its files."},

		{Name: "log.flush.interval.messages", Type: Long, Default: "1", Kafka: long, Valid: atLeast(1), Live: true, Doc: "Records between two fsyncs. 1: acknowledged means on disk, one fsync shared by all that wait. Kafka's default never asks for an fsync before it acknowledges."},
		{Name: "log.flush.interval.ms", Type: Long, Null: true, Live: true, Doc: "Longest time a written record waits for an fsync, where log.flush.interval.messages is above 1. Not set: log.flush.scheduler.interval.ms."},
		{Name: "log.flush.scheduler.interval.ms", Type: Long, Default: long, Doc: "Time between two looks for logs that need an fsync."},
		{Name: "log.flush.offset.checkpoint.interval.ms", Type: Int, Default: "60000", Valid: atLeast(0), Doc: "Time between two writes of recovery-point-offset-checkpoint, which Kafka's tools read."},
		{Name: "log.flush.start.offset.checkpoint.interval.ms", Type: Int, Default: "60000", Valid: atLeast(0), Status: NoEffect, Reason: "a log start is durable before a deletion is answered; the checkpoint is written with the recovery points", Doc: "Time between two writes of log-start-offset-checkpoint."},
		{Name: "replica.high.watermark.checkpoint.interval.ms", Type: Long, Default: "5000", Doc: "Time between two writes of replication-offset-checkpoint."},

		{Name: "message.max.bytes", Type: Int, Default: "1048588", Valid: atLeast(0), Live: true, Doc: "Largest record batch a topic takes, as it arrives (compressed)."},
		{Name: "max.decompressed.message.bytes", Type: Int, Default: MaxDecompressedDefault, Valid: between(1, 2147483639), Live: true, Doc: "Largest size of one batch after decompression. keeplog.decompressed.max.bytes also holds."},
		{Name: "compression.type", Type: String, Default: "producer", Live: true, Valid: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), Doc: "Codec that batches are stored in. producer keeps the batch as it was sent."},
		{Name: "compression.gzip.level", Type: Int, Default: "-1", Live: true, Valid: rangeOr(1, 9, -1), Doc: "Level at which the broker recompresses with gzip; -1 is the library's default."},
		{Name: "compression.lz4.level", Type: Int, Default: "9", Live: true, Valid: between(1, 17), Doc: "Level at which the broker recompresses with lz4."},
		{Name: "compression.zstd.level", Type: Int, Default: "3", Live: true, Valid: between(-131072, 22), Doc: "Level at which the broker recompresses with zstd."},
		{Name: "log.message.timestamp.type", Type: String, Default: "CreateTime", Live: true, Valid: oneOf("CreateTime", "LogAppendTime"), Doc: "Whose time a record carries: the producer's, or the broker's at append."},
		{Name: "log.message.timestamp.before.max.ms", Type: Long, Default: long, Live: true, Valid: atLeast(0), Doc: "How far a record's timestamp may lie before the broker's clock, with CreateTime."},
		{Name: "log.message.timestamp.after.max.ms", Type: Long, Default: "3600000", Live: true, Valid: atLeast(0), Doc: "How far a record's timestamp may lie after the broker's clock, with CreateTime."},

		{Name: "log.cleaner.delete.retention.ms", Type: Long, Default: "86400000", Live: true, Valid: atLeast(0), Status: NoEffect, Reason: NoCompaction, Doc: "Time a tombstone is kept by compaction."},
		{Name: "log.cleaner.min.compaction.lag.ms", Type: Long, Default: "0", Live: true, Valid: atLeast(0), Status: NoEffect, Reason: NoCompaction, Doc: "Time a record is safe from compaction."},
		{Name: "log.cleaner.max.compaction.lag.ms", Type: Long, Default: long, Live: true, Valid: atLeast(1), Status: NoEffect, Reason: NoCompaction, Doc: "Longest time a record may wait for compaction."},
		{Name: "log.cleaner.min.cleanable.ratio", Type: Double, Default: "0.5", Live: true, Valid: between(0, 1), Status: NoEffect, Reason: NoCompaction, Doc: "Share of a log that must be uncompacted before compaction takes it on."},

		{Name: "producer.id.expiration.ms", Type: Int, Default: "86400000", Live: true, Valid: atLeast(1), Doc: "Idle time after which a partition forgets a producer id and its window of batches."},
		{Name: "producer.id.expiration.check.interval.ms", Type: Int, Default: "600000", Valid: atLeast(1), Undescribed: true, Status: NoEffect, Reason: "expired producer ids are looked for with the other periodic work", Doc: "Time between two looks for producer ids to forget."},
	}
}

// notZero is Kafka's rule for the broker's retention time.
func notZero(v string) error {
	if v == "0" {
		return errors.New("0 would delete everything at once")
	}
	return nil
}
