package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Group is the effective configuration of one group of the consumer protocol (KIP-848).
type Group struct {
	SessionTimeout, HeartbeatInterval, AssignmentInterval time.Duration
}

// Group reduces a group's own settings, which may be nil, and the broker's to what is in force. What the broker's bounds no longer allow
// counts as the nearest value that they do.
func (l Layers) Group(set map[string]string) Group {
	read := func(name string) time.Duration {
		k := Lookup(ScopeGroup, name)
		v, ok := own(set, k)
		if !ok {
			v, _ = l.brokerValue(Lookup(ScopeBroker, k.Synonym))
		}
		n, _ := strconv.ParseInt(v, 10, 64)
		low, high := l.groupBounds(name)
		return millis(min(max(n, low), high))
	}
	return Group{
		SessionTimeout: read("consumer.session.timeout.ms"), HeartbeatInterval: read("consumer.heartbeat.interval.ms"),
		AssignmentInterval: read("consumer.assignment.interval.ms"),
	}
}

// groupBounds are what the broker's settings allow a number of a group to be; both ends count.
func (l Layers) groupBounds(name string) (low, high int64) {
	kind, what, _ := strings.Cut(name, ".")
	read := func(end string, none int64) int64 {
		k := Lookup(ScopeBroker, "group."+kind+"."+end+"."+strings.TrimPrefix(what, "num."))
		if k == nil {
			return none
		}
		v, _ := l.brokerValue(k)
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return read("min", 0), read("max", 1<<31-1)
}

// ValidateGroupSet checks all settings of one group together: each on its own, against the bounds that the broker sets, and what concerns
// several.
func (l Layers) ValidateGroupSet(set map[string]string) error {
	for _, name := range sortedNames(set) {
		v, err := ValidateGroup(name, set[name])
		if err != nil {
			return err
		}
		if Lookup(ScopeGroup, name).Type != Int {
			continue
		}
		n, _ := strconv.ParseInt(v, 10, 64)
		switch low, high := l.groupBounds(name); {
		case n < low:
			return fmt.Errorf("%w: %s must be greater than or equal to %d, which the broker's settings ask for", ErrValue, name, low)
		case n > high:
			return fmt.Errorf("%w: %s must be less than or equal to %d, which the broker's settings ask for", ErrValue, name, high)
		}
	}
	for _, kind := range []string{"consumer", "share", "streams"} {
		session, beat := l.groupNumber(set, kind+".session.timeout.ms"), l.groupNumber(set, kind+".heartbeat.interval.ms")
		if session <= beat {
			return fmt.Errorf("%w: %s.session.timeout.ms (%d) must be greater than %s.heartbeat.interval.ms (%d)", ErrValue, kind, session, kind, beat)
		}
	}
	return nil
}

func (l Layers) groupNumber(set map[string]string, name string) int64 {
	k := Lookup(ScopeGroup, name)
	v, ok := own(set, k)
	if !ok {
		v, _ = l.brokerValue(Lookup(ScopeBroker, k.Synonym))
	}
	n, _ := strconv.ParseInt(v, 10, 64)
	return n
}

// checkGroups wants the broker's settings of consumer groups to fit one another.
func (b *Broker) checkGroups(l *loader) {
	if low, high := b.Int("group.min.session.timeout.ms"), b.Int("group.max.session.timeout.ms"); low > high {
		b.fault(l, "group.min.session.timeout.ms", fmt.Sprintf("group.min.session.timeout.ms (%d) is above group.max.session.timeout.ms (%d)", low, high), "")
	}
	for _, what := range []string{"session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"} {
		low, high := b.Int("group.consumer.min."+what), b.Int("group.consumer.max."+what)
		switch n := b.Int("group.consumer." + what); {
		case low > high:
			b.fault(l, "group.consumer.min."+what, fmt.Sprintf("group.consumer.min.%s (%d) is above group.consumer.max.%s (%d)", what, low, what, high), "")
		case n < low:
			b.fault(l, "group.consumer."+what, fmt.Sprintf("group.consumer.%s (%d) is below group.consumer.min.%s (%d)", what, n, what, low), fmt.Sprintf("group.consumer.min.%s=%d too", what, n))
		case n > high:
			b.fault(l, "group.consumer."+what, fmt.Sprintf("group.consumer.%s (%d) is above group.consumer.max.%s (%d)", what, n, what, high), fmt.Sprintf("group.consumer.max.%s=%d too", what, n))
		}
	}
	if session, beat := b.Int("group.consumer.session.timeout.ms"), b.Int("group.consumer.heartbeat.interval.ms"); session <= beat {
		b.fault(l, "group.consumer.session.timeout.ms", fmt.Sprintf("group.consumer.session.timeout.ms (%d) is not above group.consumer.heartbeat.interval.ms (%d)", session, beat), "")
	}
}
