// Package invariant holds what must be true, and the bugs that are planted to show that tests find them.
//
// Nouns. A seeded bug is a place in the code where a build with the tag "seeded" can be told to do the wrong thing. Other
// builds do not contain it: [Seeded] is then the constant false, and the compiler drops the branch.
package invariant

// The seeded bugs of the storage rooms.
const (
	AckBeforeFsync        = "ack-before-fsync"          // the stable end moves before the flush
	IndexSizeTrusted      = "index-size-trusted"        // an index has as many entries as its length allows
	DirectoryNotSynced    = "directory-not-synced"      // a new segment's name is not made durable
	EndBeforeFsync        = "recovered-end-before-sync" // recovery publishes what only the page cache has
	WindowNotRefilled     = "window-not-refilled"       // a start remembers one batch of each producer
	MarkAhead             = "mark-ahead-of-disk"        // the mark names what was written, not what was flushed
	TornTailKept          = "torn-tail-valid"           // what follows a tear counts as valid
	LogStartBeforeDurable = "log-start-not-durable"     // DeleteRecords answers before the start is on disk
)
