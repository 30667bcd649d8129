package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// coordinatorKeys are the broker settings of consumer groups and of committed offsets.
func coordinatorKeys() []Key {
	const maxInt = "2147483647"
	return []Key{
		{Name: "group.coordinator.rebalance.protocols", Type: List, Default: "classic,consumer,streams", Valid: checked("classic, and any of consumer, streams", checkProtocols), Reason: noStreams, Doc: "Group protocols that are on."},
		{Name: "group.initial.rebalance.delay.ms", Type: Int, Default: "3000", Valid: atLeast(0), Doc: "Wait for more members before an empty classic group's first rebalance."},
		{Name: "group.max.session.timeout.ms", Type: Int, Default: "1800000", Valid: atLeast(1), Doc: "Largest session timeout a member of a classic group may ask for."},
		{Name: "group.min.session.timeout.ms", Type: Int, Default: "6000", Valid: atLeast(1), Doc: "Least session timeout a member of a classic group may ask for."},
		{Name: "group.max.size", Type: Int, Default: maxInt, Valid: atLeast(1), Doc: "Members of a classic group at most."},

		{Name: "group.consumer.session.timeout.ms", Type: Int, Default: "45000", Valid: atLeast(1), Doc: "Silence after which a member of a consumer group is out."},
		{Name: "group.consumer.min.session.timeout.ms", Type: Int, Default: "45000", Valid: atLeast(1), Doc: "Least session timeout a consumer group may set."},
		{Name: "group.consumer.max.session.timeout.ms", Type: Int, Default: "60000", Valid: atLeast(1), Doc: "Largest session timeout a consumer group may set."},
		{Name: "group.consumer.heartbeat.interval.ms", Type: Int, Default: "5000", Valid: atLeast(1), Doc: "Heartbeat interval given to members of consumer groups."},
		{Name: "group.consumer.min.heartbeat.interval.ms", Type: Int, Default: "5000", Valid: atLeast(1), Doc: "Least heartbeat interval a consumer group may set."},
		{Name: "group.consumer.max.heartbeat.interval.ms", Type: Int, Default: "15000", Valid: atLeast(1), Doc: "Largest heartbeat interval a consumer group may set."},
		{Name: "group.consumer.assignment.interval.ms", Type: Int, Default: "1000", Live: true, Valid: atLeast(0), Doc: "Least time between two target assignments of a consumer group."},
		{Name: "group.consumer.min.assignment.interval.ms", Type: Int, Default: "0", Valid: atLeast(0), Doc: "Least assignment interval a consumer group may set."},
		{Name: "group.consumer.max.assignment.interval.ms", Type: Int, Default: "15000", Valid: atLeast(0), Doc: "Largest assignment interval a consumer group may set."},
		{Name: "group.consumer.max.size", Type: Int, Default: maxInt, Valid: atLeast(1), Doc: "Members of a consumer group at most."},
		{Name: "group.consumer.assignors", Type: List, Default: "uniform,range", Valid: checked("uniform, range or both", checkAssignors), Doc: "Assignors on offer to consumer groups, the first being the default."},
		{Name: "group.consumer.migration.policy", Type: String, Default: "bidirectional", Valid: checked("one of disabled, upgrade, downgrade, bidirectional", checkMigration), Doc: "Ways a group may change between the classic and the consumer protocol while it has members."},
		{Name: "group.consumer.regex.refresh.interval.ms", Type: Int, Default: "600000", Valid: atLeast(10_000), Undescribed: true, Doc: "Age at which the topics that a regular expression matches are looked up again, where topics did not change."},

		{Name: "offset.metadata.max.bytes", Type: Int, Default: "4096", Valid: atLeast(0), Doc: "Longest metadata text of a committed offset, in characters."},
		{Name: "offsets.commit.timeout.ms", Type: Int, Default: "5000", Valid: atLeast(1), Doc: "Longest wait for an offset commit to be replicated."},
		{Name: "offsets.retention.minutes", Type: Int, Default: "10080", Valid: atLeast(1), Doc: "Time that offsets outlive their group."},
		{Name: "offsets.retention.check.interval.ms", Type: Long, Default: "600000", Valid: atLeast(1), Doc: "Time between two looks for expired offsets."},
	}
}

func checkProtocols(v string) error {
	items := splitList(v)
	for _, it := range items {
		if it != "classic" && it != "consumer" && it != "streams" {
			return fmt.Errorf("%q is not one of classic, consumer, streams", it)
		}
	}
	if !slices.Contains(items, "classic") {
		return errors.New("the classic protocol cannot be turned off")
	}
	return nil
}

// checkAssignors takes the names of the assignors and those of Kafka's classes for them.
func checkAssignors(v string) error {
	items := splitList(v)
	for _, it := range items {
		if AssignorName(it) == "" {
			return fmt.Errorf("%q is not one of uniform, range", it)
		}
	}
	if len(items) == 0 {
		return errors.New("no assignor")
	}
	return nil
}

// AssignorName is the name of a server-side assignor, also where Kafka's class is named; empty where there is none.
func AssignorName(s string) string {
	switch s {
	case "uniform", "org.apache.kafka.coordinator.group.assignor.UniformAssignor":
		return "uniform"
	case "range", "org.apache.kafka.coordinator.group.assignor.RangeAssignor":
		return "range"
	}
	return ""
}

func checkMigration(v string) error {
	policies := []string{"disabled", "upgrade", "downgrade", "bidirectional"}
	if !slices.Contains(policies, strings.ToLower(v)) {
		return fmt.Errorf("%q is not one of %s", v, strings.Join(policies, ", "))
	}
	return nil
}
