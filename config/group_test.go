package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func loadBroker(t *testing.T, set ...string) *Broker {
	t.Helper()
	b, _, err := Load(Input{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What a group sets counts, within what the broker allows by now.
func TestGroupSettings(t *testing.T) {
	for name, c := range map[string]struct {
		broker []string
		own    map[string]string
		want   Group
	}{
		"defaults":  {nil, nil, Group{45 * time.Second, 5 * time.Second, time.Second}},
		"broker's":  {[]string{"group.consumer.heartbeat.interval.ms=500", "group.consumer.min.heartbeat.interval.ms=100"}, nil, Group{45 * time.Second, 500 * time.Millisecond, time.Second}},
		"own":       {nil, map[string]string{"consumer.session.timeout.ms": "50000", "consumer.assignment.interval.ms": "0"}, Group{50 * time.Second, 5 * time.Second, 0}},
		"too low":   {nil, map[string]string{"consumer.heartbeat.interval.ms": "10"}, Group{45 * time.Second, 5 * time.Second, time.Second}},
		"too high":  {nil, map[string]string{"consumer.session.timeout.ms": "2000000000"}, Group{60 * time.Second, 5 * time.Second, time.Second}},
		"no number": {nil, map[string]string{"consumer.session.timeout.ms": "soon"}, Group{45 * time.Second, 5 * time.Second, time.Second}},
	} {
		got := Layers{Static: loadBroker(t, c.broker...)}.Group(c.own)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestValidateGroupSet(t *testing.T) {
	l := Layers{Static: loadBroker(t, "group.consumer.min.heartbeat.interval.ms=100")}
	for _, c := range []struct{ set, says string }{
		{"consumer.session.timeout.ms=45000", ""},
		{"consumer.session.timeout.ms=44999", "greater than or equal to 45000"},
		{"consumer.session.timeout.ms=60001", "less than or equal to 60000"},
		{"consumer.heartbeat.interval.ms=100", ""},
		{"consumer.heartbeat.interval.ms=99", "greater than or equal to 100"},
		{"consumer.heartbeat.interval.ms=0", "at least 1"},
		{"consumer.assignment.interval.ms=15001", "less than or equal to 15000"},
		{"share.record.lock.duration.ms=14999", "greater than or equal to 15000"},
		{"share.delivery.count.limit=11", "less than or equal to 10"},
		{"streams.num.standby.replicas=3", "less than or equal to 2"},
		{"streams.initial.rebalance.delay.ms=100000", ""},
		{"share.auto.offset.reset=never", "is not latest"},
	} {
		k, v, _ := strings.Cut(c.set, "=")
		err := l.ValidateGroupSet(map[string]string{k: v})
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.set, err)
		case c.says != "" && (!errors.Is(err, ErrValue) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v", c.set, err)
		}
	}
	l.Static = loadBroker(t, "group.consumer.max.heartbeat.interval.ms=50000")
	if err := l.ValidateGroupSet(map[string]string{"consumer.heartbeat.interval.ms": "45000"}); err == nil || !strings.Contains(err.Error(), "must be greater than") {
		t.Errorf("a session as long as the interval: %v", err)
	}
}

func TestBrokerSettingsOfGroupsFitOneAnother(t *testing.T) {
	for _, c := range []struct{ set, says string }{
		{"group.consumer.heartbeat.interval.ms=500", "below group.consumer.min.heartbeat.interval.ms"},
		{"group.consumer.session.timeout.ms=70000", "above group.consumer.max.session.timeout.ms"},
		{"group.consumer.min.session.timeout.ms=70000", "above group.consumer.max.session.timeout.ms"},
		{"group.min.session.timeout.ms=1800001", "above group.max.session.timeout.ms"},
		{"group.coordinator.rebalance.protocols=consumer", "classic protocol cannot be turned off"},
		{"group.coordinator.rebalance.protocols=classic,share", "is not one of"},
		{"group.consumer.migration.policy=sometimes", "is not one of"},
		{"group.consumer.assignors=", "no assignor"},
		{"group.consumer.assignors=org.example.Mine", "is not one of uniform, range"},
	} {
		if _, _, err := Load(Input{Set: []string{c.set}}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.set, err)
		}
	}
	for _, set := range []string{
		"group.coordinator.rebalance.protocols=classic", "group.consumer.migration.policy=DISABLED",
		"group.consumer.assignors=org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform", "group.initial.rebalance.delay.ms=0",
	} {
		loadBroker(t, set)
	}
}
