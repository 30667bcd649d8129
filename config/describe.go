package config

import (
	"slices"
	"strconv"
)

// Entry is one setting as DescribeConfigs answers it.
type Entry struct {
	Name string
	// Value is nil where the key is not set or must not be shown.
	Value *string
	// Source is the layer the value came from: that of the first synonym.
	Source              Source
	Type                Type
	ReadOnly, Sensitive bool
	Doc                 string
	Synonyms            []Synonym
}

// Synonym is one place that could give an entry's value, the strongest first.
type Synonym struct {
	Name string
	// Value is nil where it must not be shown.
	Value  *string
	Source Source
}

// DescribeTopic describes the topic's settings: all of them where names is nil, else the known ones among names, in the table's order.
func (l Layers) DescribeTopic(names []string) []Entry {
	return describe(ScopeTopic, names, func(k *Key) (*string, []Synonym) {
		v := l.topicValue(k)
		syn := l.synonyms(k.Synonym)
		if k.Name == "min.insync.replicas" {
			d := strconv.Itoa(defaultMinInsync(l.Replicas))
			syn[len(syn)-1].Value = &d
		}
		if t, ok := own(l.Topic, k); ok {
			syn = slices.Insert(syn, 0, Synonym{k.Name, &t, SourceTopic})
		}
		return &v, syn
	})
}

// DescribeBroker describes the settings of this broker, as DescribeTopic does. Keys that Kafka does not describe are among them only when
// they are set or named.
func (l Layers) DescribeBroker(names []string) []Entry {
	return describe(ScopeBroker, names, func(k *Key) (*string, []Synonym) {
		v, ok := l.brokerValue(k)
		syn := l.synonyms(k.Name)
		if k.Undescribed && names == nil && (len(syn) == 0 || syn[0].Source == SourceDefault) {
			return nil, leftOut
		}
		if !ok {
			return nil, syn
		}
		return &v, syn
	})
}

// DescribeCluster describes the cluster-wide dynamic settings: only those that are set.
func (l Layers) DescribeCluster(names []string) []Entry {
	var set []string
	for _, k := range registry.sorted[ScopeBroker] {
		if _, ok := own(l.Cluster, k); ok && (names == nil || slices.Contains(names, k.Name)) {
			set = append(set, k.Name)
		}
	}
	if set == nil {
		return nil
	}
	return describe(ScopeBroker, set, func(k *Key) (*string, []Synonym) {
		v, _ := own(l.Cluster, k)
		return &v, []Synonym{{k.Name, &v, SourceDynamicCluster}}
	})
}

// DescribeGroup describes a group's settings; set are its own.
func (l Layers) DescribeGroup(set map[string]string, names []string) []Entry {
	return describe(ScopeGroup, names, func(k *Key) (*string, []Synonym) {
		v, syn := k.Default, l.synonyms(k.Synonym)
		if k.Synonym != "" {
			v, _ = l.brokerValue(Lookup(ScopeBroker, k.Synonym))
		} else {
			syn = []Synonym{{k.Name, &k.Default, SourceDefault}}
		}
		if t, ok := own(set, k); ok {
			v = t
			syn = slices.Insert(syn, 0, Synonym{k.Name, &t, SourceGroup})
		}
		return &v, syn
	})
}

// DescribeClientMetrics describes a client metrics subscription; set are its own settings.
func DescribeClientMetrics(set map[string]string, names []string) []Entry {
	return describe(ScopeClientMetrics, names, func(k *Key) (*string, []Synonym) {
		v := k.Default
		var syn []Synonym
		if t, ok := own(set, k); ok {
			v = t
			syn = []Synonym{{k.Name, &t, SourceClientMetrics}}
		}
		return &v, syn
	})
}

// leftOut stands for the synonyms of a key that is not described.
var leftOut = []Synonym{{}}

// describe builds the entries of a scope.
func describe(scope Scope, names []string, value func(*Key) (*string, []Synonym)) []Entry {
	var out []Entry
	for _, k := range registry.sorted[scope] {
		if names != nil && !slices.Contains(names, k.Name) {
			continue
		}
		v, syn := value(k)
		if len(syn) == 1 && syn[0].Source == 0 {
			continue
		}
		e := Entry{Name: k.Name, Value: v, Source: SourceDefault, Type: k.Type, ReadOnly: !k.Live, Sensitive: k.Sensitive(), Doc: k.told(), Synonyms: syn}
		if len(syn) > 0 {
			e.Source = syn[0].Source
		}
		if e.Sensitive {
			e.Value = nil
			for i := range e.Synonyms {
				e.Synonyms[i].Value = nil
			}
		}
		out = append(out, e)
	}
	return out
}

// synonyms lists the places that give a broker key its value, by layer, and within a layer by the strength of the keys. What stands
// before the first entry under the key's own name is left out, as Kafka does: log.retention.hours alone says nothing of log.retention.ms.
func (l Layers) synonyms(name string) []Synonym {
	links := chain(name)
	var all []Synonym
	add := func(key string, v string, src Source) { all = append(all, Synonym{key, &v, src}) }
	layers := []struct {
		set map[string]string
		src Source
	}{{l.Broker, SourceDynamicBroker}, {l.Cluster, SourceDynamicCluster}}
	for _, layer := range layers {
		for _, c := range links {
			if v, ok := own(layer.set, Lookup(ScopeBroker, c.key)); ok {
				add(c.key, v, layer.src)
			}
		}
	}
	for _, c := range links {
		if v := l.Static.Get(c.key); v.Source == SourceStatic {
			add(c.key, v.Text, SourceStatic)
		}
	}
	for _, c := range links {
		if k := Lookup(ScopeBroker, c.key); !k.Null {
			v := k.Default
			if k.Name == "default.replication.factor" || k.Name == "min.insync.replicas" {
				v, _ = Layers{Static: Default(), Brokers: l.Brokers}.brokerValue(k)
			}
			add(c.key, v, SourceDefault)
		}
	}
	for i, s := range all {
		if s.Name == name {
			return all[i:]
		}
	}
	return nil
}

// told is the documentation of a key, with the reason why it does less than it says, or nothing.
func (k *Key) told() string {
	if k.Reason == "" {
		return k.Doc
	}
	return k.Doc + " Note: " + k.Reason + "."
}
