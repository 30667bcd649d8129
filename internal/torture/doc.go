// Package torture writes to a cluster of real processes, kills, pauses and restarts them meanwhile, and then says whether the
// cluster kept its promise: acknowledged means kept.
//
// Nouns:
//
//   - A [Cluster] is the processes, as their owner lets them be treated; the owner never touches a process it did not start.
//
//   - An [ID] names a record: its producer, and its number among what that producer wrote to that partition.
//
//   - The [Checker] is told everything that was seen and says what must not be so. It is pure: no clock, no I/O.
//
//   - A plan is what will be done to whom and when; it follows from the seed alone.
//
//   - The workload is idempotent producers, pulses that measure, and readers. They tell the checker.
//
//   - A [Verdict] is what is told in the end.
//
//     plan(seed) ─► nemesis ──signals──► processes ◄──Kafka protocol── producers, pulses, readers
//     │                               │ acknowledged, read, latest offsets, watermarks
//     heal ─► every replica in sync ─► read each replica ─► Checker ─► Verdict
//     └─ clean stop ─► dump of every file ──┘
//
// Who owns what. Run owns the goroutines and clients; the Checker has a lock of its own and is shared by all of them.
//
// The value of a record, and what is behind the blank is of any length and matters to nobody:
//
//	┌────┬──────────┬───┬───────────┬───┬──────────┬───┬────────
//	│ t  │ producer │ - │ partition │ - │ sequence │ ' '│ filler
//	└────┴──────────┴───┴───────────┴───┴──────────┴───┴────────
package torture
