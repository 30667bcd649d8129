package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	noShare   = "share groups are not served"
	noStreams = "streams groups are not served"
)

// groupKeys are the settings of one group.
func groupKeys() []Key {
	t := []Key{
		{Name: "consumer.assignment.interval.ms", Type: Int, Default: "1000", Synonym: "group.consumer.assignment.interval.ms", Valid: atLeast(0), Doc: "Least time between two target assignments."},
		{Name: "consumer.heartbeat.interval.ms", Type: Int, Default: "5000", Synonym: "group.consumer.heartbeat.interval.ms", Valid: atLeast(1), Doc: "Heartbeat interval given to members."},
		{Name: "consumer.session.timeout.ms", Type: Int, Default: "45000", Synonym: "group.consumer.session.timeout.ms", Valid: atLeast(1), Doc: "Silence after which a member is out."},
		{Name: "errors.deadletterqueue.copy.record.enable", Type: Boolean, Default: "false", Reason: noShare, Doc: "Whether a dead letter carries the record itself."},
		{Name: "errors.deadletterqueue.topic.name", Type: String, Reason: noShare, Doc: "Topic for records that could not be delivered."},
		{Name: "share.assignment.interval.ms", Type: Int, Default: "1000", Synonym: "group.share.assignment.interval.ms", Valid: atLeast(0), Reason: noShare, Doc: "Least time between two target assignments."},
		{Name: "share.auto.offset.reset", Type: String, Default: "latest", Valid: checked("latest, earliest or by_duration:PnDTnHnMnS", checkOffsetReset), Reason: noShare, Doc: "Where a share group starts to read."},
		{Name: "share.delivery.count.limit", Type: Int, Default: "5", Synonym: "group.share.delivery.count.limit", Valid: atLeast(1), Reason: noShare, Doc: "Deliveries of a record before it is given up."},
		{Name: "share.heartbeat.interval.ms", Type: Int, Default: "5000", Synonym: "group.share.heartbeat.interval.ms", Valid: atLeast(1), Reason: noShare, Doc: "Heartbeat interval given to members."},
		{Name: "share.isolation.level", Type: String, Default: "read_uncommitted", Valid: oneOf("read_committed", "read_uncommitted"), Reason: noShare, Doc: "Whether a share group reads records of open transactions."},
		{Name: "share.partition.max.record.locks", Type: Int, Default: "2000", Synonym: "group.share.partition.max.record.locks", Valid: atLeast(1), Reason: noShare, Doc: "Records of a partition under delivery at once."},
		{Name: "share.record.lock.duration.ms", Type: Int, Default: "30000", Synonym: "group.share.record.lock.duration.ms", Valid: atLeast(1), Reason: noShare, Doc: "Time a consumer has for a record."},
		{Name: "share.renew.acknowledge.enable", Type: Boolean, Default: "true", Reason: noShare, Doc: "Whether a consumer may prolong its hold on a record."},
		{Name: "share.session.timeout.ms", Type: Int, Default: "45000", Synonym: "group.share.session.timeout.ms", Valid: atLeast(1), Reason: noShare, Doc: "Silence after which a member is out."},
		{Name: "streams.assignment.interval.ms", Type: Int, Default: "1000", Synonym: "group.streams.assignment.interval.ms", Valid: atLeast(0), Reason: noStreams, Doc: "Least time between two target assignments."},
		{Name: "streams.assignor.name", Type: String, Default: "sticky", Synonym: "group.streams.assignors", Valid: oneOf("sticky"), Reason: noStreams, Doc: "Assignor of the group."},
		{Name: "streams.heartbeat.interval.ms", Type: Int, Default: "5000", Synonym: "group.streams.heartbeat.interval.ms", Valid: atLeast(1), Reason: noStreams, Doc: "Heartbeat interval given to members."},
		{Name: "streams.initial.rebalance.delay.ms", Type: Int, Default: "3000", Synonym: "group.streams.initial.rebalance.delay.ms", Valid: atLeast(0), Reason: noStreams, Doc: "Wait for more members before the first assignment."},
		{Name: "streams.num.standby.replicas", Type: Int, Default: "0", Synonym: "group.streams.num.standby.replicas", Valid: atLeast(0), Reason: noStreams, Doc: "Standby copies of a task's state."},
		{Name: "streams.rack.aware.assignment.tags", Type: List, Synonym: "group.streams.rack.aware.assignment.tags", Reason: noStreams, Doc: "Client tags that spread standby copies."},
		{Name: "streams.session.timeout.ms", Type: Int, Default: "45000", Synonym: "group.streams.session.timeout.ms", Valid: atLeast(1), Reason: noStreams, Doc: "Silence after which a member is out."},
	}
	for i := range t {
		t[i].Scope, t[i].Live = ScopeGroup, true
		if t[i].Reason != "" {
			t[i].Status = NoEffect
		}
	}
	return t
}

// isoDuration is the form of a duration that Java reads: days, hours, minutes, seconds.
var isoDuration = regexp.MustCompile(`^P([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,9})?S)?)?$`)

func checkOffsetReset(v string) error {
	d, ok := strings.CutPrefix(v, "by_duration:")
	if v == "latest" || v == "earliest" || ok && len(d) > 2 && isoDuration.MatchString(d) && !strings.HasSuffix(d, "T") {
		return nil
	}
	return fmt.Errorf("%q is not latest, earliest or by_duration:PnDTnHnMnS", v)
}

// clientMetricsKeys are the settings of one client metrics subscription (KIP-714).
func clientMetricsKeys() []Key {
	t := []Key{
		{Name: "interval.ms", Type: Int, Default: "300000", Valid: between(100, 3600000), Doc: "Time between two pushes of a client."},
		{Name: "match", Type: List, Valid: checked("attribute=pattern, …", checkMatch), Doc: "Clients the subscription is for: attribute=pattern."},
		{Name: "metrics", Type: List, Doc: "Prefixes of the metric names wanted."},
	}
	for i := range t {
		t[i].Scope, t[i].Live, t[i].Status, t[i].Reason = ScopeClientMetrics, true, NoEffect, "client telemetry is not collected"
	}
	return t
}

// checkMatch tests the patterns that pick clients: a known attribute and a regular expression.
func checkMatch(v string) error {
	attributes := []string{"client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port"}
	for _, it := range splitList(v) {
		name, pattern, ok := strings.Cut(it, "=")
		if !ok || !slices.Contains(attributes, strings.TrimSpace(name)) {
			return fmt.Errorf("%q is not attribute=pattern, the attributes are %s", it, strings.Join(attributes, ", "))
		}
		if _, err := regexp.Compile(strings.TrimSpace(pattern)); err != nil {
			return fmt.Errorf("%q: %w", it, err)
		}
	}
	return nil
}
