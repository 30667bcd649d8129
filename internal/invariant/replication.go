package invariant

// The seeded bugs of replication.
const (
	JoinBelowEpochStart = "join-below-epoch-start"   // a replica joins the in-sync set before it has the leader's epoch
	PendingNotCounted   = "pending-not-counted"      // the high watermark does not wait for a replica whose joining is under way
	DivergingCounts     = "diverging-counts"         // a fetch that must be truncated moves the follower's stable end
	WrittenReported     = "written-end-as-stable"    // a follower reports what it has not flushed
	TruncateToWatermark = "truncate-to-watermark"    // a follower cuts to its high watermark, not by epochs
	CutBelowWatermark   = "cut-below-watermark"      // a follower cuts below its high watermark without being told of an unclean election
	StaleAnswerCounts   = "stale-isr-answer"         // the answer to an older change of the in-sync set is taken for the newest's
	EarlyWatermark      = "watermark-before-append"  // a follower takes the leader's high watermark beyond its own end
	WatermarkTwice      = "watermark-read-twice"     // a fetch reads up to another high watermark than it shows
	SizeTwice           = "size-read-twice"          // a read to the end of the log goes to the end of the file, which has grown
	RetentionPast       = "retention-past-watermark" // retention deletes what is not committed
	RestartedRetention  = "retention-before-role"    // retention of a log whose replica has no role yet goes up to the stable end
	WatermarkLeft       = "watermark-left-behind"    // a log that begins anew leaves its high watermark below its start
	StartNotAwaited     = "log-start-moves-late"     // the log start goes on being moved for a leader that is one no more
)
