// Package protocol cuts the byte stream of a connection into frames and reads what stands before and around a message:
// sizes, headers, versions, tags.
//
//	request   │ i32 size │ i16 key │ i16 version │ i32 correlation id │ i16 n, client id │ [tags] │ body │
//	response  │ i32 size │ i32 correlation id │ [tags] │ body │
//
// Everything is big-endian. [tags] stand where the version of the message is flexible, with one exception: the response
// of ApiVersions never has them in its header. A tag buffer is
//
//	│ uvarint count │ uvarint tag │ uvarint size │ size bytes │ …
//
// Nouns: an [API] is one kind of request with its versions and the shape of its body; a [Table] holds the APIs that are
// served; [Limits] bound the frames; a [Header] is what stands before the body.
//
// The messages are the structs of kmsg. Their decoder trusts counts and takes null
// where there must be a value, so [Table.Decode] first walks the body by its shape, adding up what decoding will
// allocate, and only then lets it decode. A body that would cost more than 32 times its size is refused.
package protocol
