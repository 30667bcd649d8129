// Package logtest breaks the storage rooms on purpose and checks what they promise: it takes the power away after every
// call, fails every call, and damages every file.
//
// Nouns. A world is a data directory on a crashable file system, and the model of what must be in it. An operation changes
// both. A crash point lies before each call that changes the file system and after each operation; a crash state is what one
// policy of package vfs leaves of the file system at a point. The oracle opens a state with the real code and compares it
// with the model: everything acknowledged is there byte for byte, nothing else is in its place, nothing deleted came back.
//
//	workload ─► call ─► crash point ─► policies ─► crash state ─► open ─► oracle ─► power off ─► open ─► oracle
//	                        └────────► process killed, nothing lost ──┘
//
// The harnesses are tests: crash points (TestCrash), failing calls (TestErrors), rot (TestRot), and with the build tag
// "seeded" a test that requires them to find planted bugs. They run for some seconds, or for KEEPLOG_HARNESS_SECONDS, or up
// to KEEPLOG_HARNESS_COUNT states; KEEPLOG_SEED repeats a run, KEEPLOG_WORKLOAD
// keeps to the workloads whose name contains it. Each says what it reached.
package logtest
