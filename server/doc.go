// Package server accepts connections and turns bytes into calls and answers into bytes, in request order.
//
// The nouns:
//
//   - A [Server] owns everything here: listeners, connections, the [Pool] of frame buffers, and one budget for the bytes of all frames in
//     flight. When the budget is used up, connections stop reading; memory does not grow.
//   - A [Listener] has a name, an address to listen on, and limits.
//   - A conn is one client. One goroutine reads it. A second one, which writes, starts when an answer is first completed by somebody else
//     while the reader waits for the next request.
//   - A slot is one request between its frame and its answer. Slots stand in the connection's queue in the order of arrival, and leave it
//     from the front, when their answer is written.
//
// What a request means is none of this package's business: a [Handler] (package server/api) says how large a frame of a kind may be and
// whether it may run beside earlier ones, and completes the call from any goroutine.
//
// A frame, and the answer to it:
//
//	request   ┌──────┬─────┬─────────┬─────────────┬───────────┬──────┬──────┐
//	          │ size │ key │ version │ correlation │ client id │ tags │ body │
//	          │ i32  │ i16 │ i16     │ i32         │ string    │      │      │
//	          └──────┴─────┴─────────┴─────────────┴───────────┴──────┴──────┘
//	answer    ┌──────┬─────────────┬──────┬──────┐   ┌──────┬──────┬──────┐
//	          │ size │ correlation │ tags │ body │   │ span │ body │ span │ …
//	          └──────┴─────────────┴──────┴──────┘   └──────┴──────┴──────┘
//	           head: bytes in memory                  parts: bytes, or ranges of log files
//
// Order and overlap on one connection. Produce calls overlap: the next may start once the ordered part of the one before (validation and
// append) is done, though its flush is not. Any other call starts when all earlier ones are answered, so it sees what they did. Answers
// leave in the order of the requests; several that are ready leave in one writev.
//
// Ownership. The frame's buffer is held by its slot until the answer is written (or dropped), because answers carry strings that lie in
// it. Spans of an answer are released exactly once, also when the connection breaks. A client that does not read stalls only itself: a
// write that makes no progress for Options.WriteTimeout closes the connection.
package server
