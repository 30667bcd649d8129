// Package torture writes to a cluster of real processes, does to them meanwhile what can go wrong, and then says whether the cluster kept
// its promise: acknowledged means kept.
//
// Nouns:
//
//   - A [Cluster] is the processes, as their owner lets them be treated; the owner never touches a process it did not start.
//
//   - An [ID] names a record: its producer, and its number among what that producer wrote to that partition.
//
//   - The [Checker] is told everything that was seen and says what must not be so. It is pure: no clock, no I/O.
//
//   - A [Fault] is a kind of what is done. A plan is what will be done to whom and when, its jobs; it follows from the seed alone.
//
//   - A [Network] stands before the listeners of the nodes, and cuts and slows each direction between two of them by itself.
//
//   - The nemesis carries the plan out. What takes the time that it takes, an operation, does one after another: moving replicas, members
//     that come and go, a disk that is wiped.
//
//   - A [Workload] is what else clients do meanwhile; the caller brings it. [Groups] is one: members read, commit, leave and vanish, and every
//     node is asked for what is committed.
//
//   - The workload is idempotent producers, pulses that measure, and readers. They tell the checker.
//
//   - A [Verdict] is what is told in the end.
//
//     plan(seed) ─► nemesis ──signals, commands, bits──► processes ◄─ Network ◄─Kafka protocol── producers, pulses, readers
//     │                               │ acknowledged, read, latest offsets, watermarks
//     heal ─► every replica in sync ─► read each replica ─► Checker ─► Verdict
//     └─ clean stop ─► dump of every file ──┘
//
// What was broken on purpose is no violation: a batch whose bit was flipped must not be given out and must be found by the check of the files,
// a node whose fsyncs fail must end, one whose disk was wiped must be refused. That it is so is checked as well.
//
// Who owns what. Run owns the goroutines and clients; the Checker has a lock of its own and is shared by all of them.
//
// The value of a record, and what is behind the blank is of any length and matters to nobody:
//
//	┌────┬──────────┬───┬───────────┬───┬──────────┬───┬────────
//	│ t  │ producer │ - │ partition │ - │ sequence │ ' '│ filler
//	└────┴──────────┴───┴───────────┴───┴──────────┴───┴────────
package torture
