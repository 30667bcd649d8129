package invariant

// The seeded bugs of moves between data directories.
const (
	MoveNotDurable     = "move-decided-not-durable"  // the old directory goes before the mark that decides is durable
	OutcomeNotOutdone  = "move-outcome-not-outdone"  // after a mark that failed, and may be on the disk, the old one goes on as it was
	LineageIgnored     = "lineage-ignored"           // logs that began apart are compared by how often they moved
	OneLineageForTwo   = "one-lineage-for-two"       // a log that goes on without its other half stays of one lineage with it
	CutNotFollowed     = "copy-not-cut"              // the copy keeps what was truncated
	ProducersNotHanded = "producers-not-handed-over" // the log that takes over does not know the last batches of producers
	LogNotHeld         = "log-not-held"              // a log goes on between its last flush and its end
)
