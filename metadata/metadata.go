// Package metadata is what the cluster has agreed on: records, the immutable image they make, and the delta between two images.
//
// Nouns. A [Record] is one fact that the cluster agreed on. A [Command] is what one entry of the replicated log carries: the
// session of its proposer and groups of records. An [Image] is the state that all records up to one log index make; it never
// changes, a new one shares all that is the same. A [Delta] says what differs between two images. A [Lane] remembers the last
// command of a proposer, so that a repeated one is answered again and not applied again. [Tables] are the groups and their offsets; a [Shard]
// of them has a broker that answers for it.
//
// Who owns what. Everything here is pure: no clock, no file, no goroutine; times and random ids come inside the records, so
// every node computes the same image from the same log. An Image and all that it returns belong to everyone and must not be
// written to. Tables change in place, by the state machine alone.
//
//	payload ──DecodeCommand──► Command ──Apply──► Image n+1, Delta, results; Tables
//	(CRC, version)               │                   │
//	                       session, sequence         └──► chain = SHA-256(chain n ‖ index ‖ term ‖ payload)
//
// The bytes are drawn above the code that writes them: a command in command.go, a snapshot in snapshot.go.
package metadata

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// BrokerID is a broker's node id, 0 or more.
type BrokerID = int32

// NoLeader is the leader of a partition that has none.
const NoLeader BrokerID = -1

// TopicID names a topic for ever: a topic that is deleted and made again has another one.
type TopicID [16]byte

// String is the id as Kafka shows it: 22 characters of URL-safe base64.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero says that the id is not set.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// ParseTopicID reads what String writes.
func ParseTopicID(s string) (TopicID, error) {
	id, err := parseID(s)
	return TopicID(id), err
}

// DirectoryID names a data directory for ever: a wiped disk has another one.
type DirectoryID [16]byte

// String is the id as Kafka shows it: 22 characters of URL-safe base64.
func (id DirectoryID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseDirectoryID reads what String writes.
func ParseDirectoryID(s string) (DirectoryID, error) {
	id, err := parseID(s)
	return DirectoryID(id), err
}

func parseID(s string) (id [16]byte, err error) {
	if len(s) != 22 {
		return id, fmt.Errorf("metadata: id %q has %d characters, not 22", s, len(s))
	}
	n, err := base64.RawURLEncoding.Decode(id[:], []byte(s))
	if err != nil || n != len(id) {
		return [16]byte{}, fmt.Errorf("metadata: id %q is not URL-safe base64", s)
	}
	return id, nil
}

// ResourceKind is a kind of thing that has settings. The numbers are Kafka's.
type ResourceKind int8

// The kinds of resource.
const (
	ResourceTopic         ResourceKind = 2
	ResourceBroker        ResourceKind = 4 // name: the node id in decimal, or "" for all brokers
	ResourceBrokerLogger  ResourceKind = 8
	ResourceClientMetrics ResourceKind = 16
	ResourceGroup         ResourceKind = 32
)

// String names the kind as Kafka's tools do.
func (k ResourceKind) String() string {
	switch k {
	case ResourceTopic:
		return "TOPIC"
	case ResourceBroker:
		return "BROKER"
	case ResourceBrokerLogger:
		return "BROKER_LOGGER"
	case ResourceClientMetrics:
		return "CLIENT_METRICS"
	case ResourceGroup:
		return "GROUP"
	}
	return fmt.Sprintf("UNKNOWN(%d)", int8(k))
}

// Resource is one thing that has settings.
type Resource struct {
	Kind ResourceKind
	Name string
}

// String is "TOPIC orders".
func (r Resource) String() string { return r.Kind.String() + " " + r.Name }

func compareResources(a, b Resource) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

func compareIDs(a, b TopicID) int { return bytes.Compare(a[:], b[:]) }

var (
	// ErrCorrupt says that bytes are not what was written: a CRC, a length or a count does not fit.
	ErrCorrupt = errors.New("metadata: damaged bytes")
	// ErrNewerVersion says that a newer version of this program wrote the bytes. They are not damaged.
	ErrNewerVersion = errors.New("metadata: written by a newer version")
)
