// Package log keeps the log of each partition: it appends batches, makes them durable, gives spans of them to readers,
// and after any stop opens again with everything that was acknowledged.
//
// Nouns. A [Dir] is one data directory; a [Log] is one partition in it. The written end of a log is the offset after its
// last batch in the page cache; the durable end is what fsync returned for; the stable end is the one that acknowledgements
// wait for: the durable end where flush.messages is 1, else the written end. A mark is a log's slot in keeplog-marks: up to
// there the disk has everything, so what is missing or bad below is damage, and what is bad above is a torn tail. A
// [Committer] takes logs with unflushed batches and flushes them in rounds. A [Span] is a range of one segment file that is
// kept open, mapped and unchanged until its reader lets go.
//
// Who owns what. Log.mu makes one writer: it guards the active segment, the producer state and the epochs, and is held
// across page-cache writes, never across an fsync or a callback. The list of segments is an immutable slice behind an
// atomic pointer; the ends are atomic words; readers take no lock that a writer holds while it writes. flushMu of a log
// orders its flushes, truncations and deletions with each other.
//
//	Append ─► mu: duplicate? offsets, epoch ─► roll ─► segment write ─► written end ─► Committer.Dirty
//	                                                                                        │ round
//	          stable end ◄─ publish ◄─ fdatasync(new file) ◄─ fsync(directory) ◄─ fdatasync(old files)
//	                          └─► epoch checkpoint ─► mark (a plain write; fsynced at roll, each 64 MiB, each 10 s)
//
// A data directory:
//
//	meta.properties .lock .kafka_cleanshutdown keeplog-marks
//	recovery-point-offset-checkpoint log-start-offset-checkpoint replication-offset-checkpoint cleaner-offset-checkpoint
//	<topic>-<partition>/                  partition.metadata leader-epoch-checkpoint next.spare
//	    00000000000000000000.log .index .timeindex .txnindex     one set for each segment
//	    00000000000000004711.snapshot .window                    producer state up to that offset
//	    00000000000000004711.<position>.torn                     what a crash left behind the end of the log
//	<topic>-<partition>.<32 hex>-delete/  on its way out
//	<topic>-<partition>.<32 hex>-stray/   in no image; never deleted by the server
//	<topic>-<partition>.<32 hex>-future/  a copy of a partition that moves here from another data directory (Move)
package log
