package config

import (
	"strconv"
)

// chainLink is one broker key that can give a value, and the factor that turns its unit into the first key's.
type chainLink struct {
	key    string
	factor int64
}

// chains lists the broker keys that stand in for each other, the strongest first.
func chain(key string) []chainLink {
	switch key {
	case "log.retention.ms", "log.retention.minutes", "log.retention.hours":
		return []chainLink{{"log.retention.ms", 1}, {"log.retention.minutes", 60_000}, {"log.retention.hours", 3_600_000}}
	case "log.roll.ms", "log.roll.hours":
		return []chainLink{{"log.roll.ms", 1}, {"log.roll.hours", 3_600_000}}
	case "log.roll.jitter.ms", "log.roll.jitter.hours":
		return []chainLink{{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", 3_600_000}}
	case "log.flush.interval.ms", "log.flush.scheduler.interval.ms":
		return []chainLink{{"log.flush.interval.ms", 1}, {"log.flush.scheduler.interval.ms", 1}}
	case "":
		return nil
	}
	return []chainLink{{key, 1}}
}

// own returns a valid value of a key out of one layer.
func own(layer map[string]string, k *Key) (string, bool) {
	text, ok := layer[k.Name]
	if !ok {
		return "", false
	}
	v, err := k.check(text)
	return v, err == nil
}

// configured finds the value of one broker key above its default.
func (l Layers) configured(k *Key) (string, Source, bool) {
	if k.Live {
		if v, ok := own(l.Broker, k); ok {
			return v, SourceDynamicBroker, true
		}
		if v, ok := own(l.Cluster, k); ok {
			return v, SourceDynamicCluster, true
		}
	}
	if v := l.Static.Get(k.Name); v.Source == SourceStatic && !v.Null {
		return v.Text, SourceStatic, true
	}
	return "", SourceDefault, false
}

// topicValue is the effective value of a topic key, in canonical form.
func (l Layers) topicValue(k *Key) string {
	if v, ok := own(l.Topic, k); ok {
		return v
	}
	for _, c := range chain(k.Synonym) {
		if v, _, ok := l.configured(Lookup(ScopeBroker, c.key)); ok {
			return scale(v, c.factor)
		}
	}
	if k.Name == "min.insync.replicas" {
		return strconv.Itoa(defaultMinInsync(l.Replicas))
	}
	return k.Default
}

// given says that a topic key has a value above its default.
func (l Layers) given(k *Key) bool {
	if _, ok := own(l.Topic, k); ok {
		return true
	}
	for _, c := range chain(k.Synonym) {
		if _, _, ok := l.configured(Lookup(ScopeBroker, c.key)); ok {
			return true
		}
	}
	return false
}

// defaultMinInsync is the default of min.insync.replicas for a topic with that many replicas.
func defaultMinInsync(replicas int) int {
	if replicas >= 3 {
		return 2
	}
	return 1
}

// scale multiplies a whole number, negative ones excepted, which mean no limit.
func scale(v string, factor int64) string {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || factor == 1 || n < 0 {
		return v
	}
	return strconv.FormatInt(n*factor, 10)
}

// brokerValue is the effective value of a broker key; false where it is not set and has no default.
func (l Layers) brokerValue(k *Key) (string, bool) {
	if v, _, ok := l.configured(k); ok {
		return v, true
	}
	if k.Name == "default.replication.factor" {
		return strconv.Itoa(l.Static.ReplicationFactor(l.Brokers)), true
	}
	if k.Name == "min.insync.replicas" {
		return strconv.Itoa(defaultMinInsync(l.Static.ReplicationFactor(l.Brokers))), true
	}
	return k.Default, !k.Null
}

// Dynamic lays the dynamic settings over the static ones: the configuration that the running server reads. The result is immutable too.
// Keys that need a restart, unknown ones and invalid values are passed over.
func (l Layers) Dynamic() *Broker {
	b := *l.Static
	b.values = make(map[string]Value, len(l.Static.values)+len(l.Broker)+len(l.Cluster))
	for k, v := range l.Static.values {
		b.values[k] = v
	}
	for _, layer := range []map[string]string{l.Cluster, l.Broker} {
		for name := range layer {
			k := Lookup(ScopeBroker, name)
			if k == nil || !k.Live {
				continue
			}
			if v, src, ok := l.configured(k); ok && src != SourceStatic {
				b.values[name] = Value{Key: k, Text: v, Source: src, Origin: "dynamic"}
			}
		}
	}
	b.overrides, _ = parseOverrides(b.Get("max.connections.per.ip.overrides").Text)
	return &b
}
