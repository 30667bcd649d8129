// Package dump reads the files of a data directory without running it, says what is in them, and tells damage from what only looks like it.
//
// Nouns. A [Dump] walks paths: a file, a partition's directory, a data directory. What it meets it hands on as an [Item], in file order, to a
// [Sink] that prints it: [Text], [JSON], [JSONL] or [YAML]. A [Problem] is an item too: damage, a format that is not supported, or a
// note about something that looks odd and is normal. The stable mark of a partition is the offset below which everything must be on the disk;
// a batch that does not check is damage below it and the torn tail of a killed server above it.
//
//	paths ─► walk: data directory ─► partition ─► segment
//	            │ marks, checkpoints    │ epochs      │ one pass over the batches: CRC, offsets, epochs, sequences, records
//	            ▼                       ▼             ├─► offset index, time index, aborted transactions: compared on the way
//	         stable mark ───────────────┴─────────────┴─► snapshots, windows
//	                                                     ▼
//	                                                   Sink
//
// Files are opened read-only and no lock is taken, so a running server can be looked at: files grow, are renamed and go away meanwhile. Memory
// does not grow with the files: a window of a file is read at a time, and a length is believed only after it was compared with the bytes there.
// The formats themselves are drawn in docs/format and in the packages that write them. [Repair] is the only part that writes.
package dump
