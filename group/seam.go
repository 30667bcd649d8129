package group

import (
	"fmt"
	"iter"
	"time"

	"github.com/keeplog/keeplog/metadata"
)

// TopicID names a topic for ever.
type TopicID = metadata.TopicID

// Entry is one key of what is stored of a group. A nil Value takes it away.
type Entry = metadata.GroupEntry

// Topics is what a core sees of the image.
type Topics interface {
	// Topic finds a topic by name, TopicName one by id. Partitions is its number of partitions.
	Topic(name string) (id TopicID, partitions int, ok bool)
	TopicName(id TopicID) (name string, partitions int, ok bool)
	// Names goes through all topics by name.
	Names() iter.Seq[string]
	// Racks are the racks of the brokers that hold a partition; empty strings are left out.
	Racks(id TopicID, partition int32) []string
	// Index moves whenever anything of the above may have changed.
	Index() uint64
}

// Settings are the broker's group settings, those of the group itself put over them.
type Settings struct {
	MinSessionTimeout, MaxSessionTimeout time.Duration
	InitialRebalanceDelay                time.Duration
	MaxSize                              int
	OffsetMetadataMax                    int
	OffsetRetention                      time.Duration
	Consumer                             ConsumerSettings
}

// ConsumerSettings are those of the consumer protocol.
type ConsumerSettings struct {
	// Enabled: group.coordinator.rebalance.protocols has consumer and group.version is at least 1.
	Enabled                                               bool
	SessionTimeout, HeartbeatInterval, AssignmentInterval time.Duration
	MaxSize                                               int
	// Assignors by preference, the first is the default.
	Assignors []string
	// Migration is disabled, upgrade, downgrade or bidirectional.
	Migration            string
	RegexRefreshInterval time.Duration
}

func corruptEntry(group, key string) error {
	return fmt.Errorf("group %q, entry %q: %w", group, key, ErrCorruptEntry)
}

func newerEntry(group, key string) error {
	return fmt.Errorf("group %q, entry %q: %w", group, key, ErrNewerEntry)
}
