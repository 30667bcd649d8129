// Package api gives each Kafka request its meaning here: one numbered file per key.
//
// The nouns:
//
//   - An [API] holds what the handlers work with: the partitions of this broker ([Replicas]), the cluster's metadata ([Images]), the
//     [Controller] for changes, the configuration, the fetch sessions and the parked fetches.
//   - A [Call] is one request; its handler completes it exactly once with an [Answer].
//   - The table (table.go) maps a key to its handler, its versions, and whether its calls overlap.
//   - A sentinel error of another package becomes a Kafka error code in errors.go and nowhere else.
//
// How a call goes:
//
//	connection ─► Plan(key, version) ─► Serve(call): header ─► decode ─► handler ─► Complete(answer)
//	                                                                       │
//	                                   may finish later, elsewhere: a flush, a purgatory, a controller
//
// Handlers run on the connection's goroutine up to the point where order matters; they keep no lock while they call other packages.
// Strings and records of a decoded request lie in the frame: they are good until the call is completed, and what outlives it is copied.
package api
