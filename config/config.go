// Package config knows every setting once: its name, type, default, range, meaning, and whether it needs a restart.
//
// The nouns:
//
//   - [Key] describes one setting. [Lookup] finds it, [Keys] lists a scope. Names, types and defaults are Apache Kafka's; keys that begin
//     with "keeplog." are ours. [Status] says whether the server uses a key, accepts it without effect, or refuses it.
//   - [Broker] is what a process was started with: an immutable map from key to value, source and origin. [Load] makes it from, in rising
//     order of precedence, the built-in defaults, a server.properties file, the environment, --set and named flags.
//   - [Layers] are the places a value can come from once the server runs: a topic's own settings, the broker's and the cluster's dynamic
//     ones, and the Broker below them. [Layers.Effective] reduces them to the struct [Topic]; [Layers.DescribeTopic] and its sisters say where
//     each value came from.
//   - [Problem] is one thing wrong with a setting: what, why, and what to try.
//
// Everything here is pure: text goes in, values come out. The package reads no file, no clock and no environment.
//
//	 server.properties   environment   --set k=v   --listen …
//	        │                 │            │           │
//	        └────────┬────────┴────────────┴───────────┘
//	                 ▼ Load
//	┌──────────┐   ┌───────────────┐   ┌───────────────┐   ┌───────────────┐
//	│ defaults │ < │ Broker static │ < │ cluster-wide  │ < │ this broker's │ < topic's own    (Layers)
//	└──────────┘   └───────────────┘   └───────────────┘   └───────────────┘
package config

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Type is the type of a setting's value. The numbers are those of Kafka's DescribeConfigs response.
type Type int8

// The types of a value.
const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

// String gives Kafka's name of the type, in lower case.
func (t Type) String() string {
	names := [...]string{"unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password"}
	if t < 0 || int(t) >= len(names) {
		return names[0]
	}
	return names[t]
}

// Scope is the kind of resource that a key belongs to.
type Scope int8

// The scopes. The same name can exist in two of them (compression.type is a broker key and a topic key).
const (
	ScopeBroker Scope = iota
	ScopeTopic
	ScopeGroup
	ScopeClientMetrics
)

// String names the scope.
func (s Scope) String() string {
	return [...]string{"broker", "topic", "group", "client-metrics"}[s]
}

// Status says what the server does with a key.
type Status int8

// The three lists of `config list`.
const (
	// Used: the value changes what the server does.
	Used Status = iota
	// NoEffect: the value is accepted and described, and changes nothing, for the reason in Key.Reason.
	NoEffect
	// Refused: a value that differs from the default (or from Key.Harmless) is an error, because running without what it asks for would be
	// unsafe.
	Refused
)

// String names the status.
func (s Status) String() string {
	return [...]string{"used", "no effect", "refused"}[s]
}

// Source says which layer a value came from. The numbers are those of Kafka's DescribeConfigs response.
type Source int8

// The sources of a value.
const (
	SourceTopic          Source = 1
	SourceDynamicBroker  Source = 2
	SourceDynamicCluster Source = 3
	SourceStatic         Source = 4
	SourceDefault        Source = 5
	SourceClientMetrics  Source = 7
	SourceGroup          Source = 8
)

// Key describes one setting. Keys are read-only after the package is initialised.
type Key struct {
	Name    string
	Scope   Scope
	Type    Type
	Default string
	// Null is true when the default is "not set" instead of an empty text.
	Null bool
	// Kafka is Kafka's default where ours differs, else empty.
	Kafka string
	// Valid bounds the values beyond what the type says.
	Valid Valid
	// Live is true when the value can be changed while the server runs.
	Live bool
	// Synonym is the broker key that gives a topic or group key its default. Empty where there is none.
	Synonym string
	Status  Status
	// Reason says why a key has no effect or is refused.
	Reason string
	// Undescribed is true for a key that DescribeConfigs leaves out unless it is set or asked for by name, as Kafka does.
	Undescribed bool
	// Harmless lists values of a refused key that are accepted.
	Harmless []string
	// Doc is the meaning in one or two sentences.
	Doc string
}

// Sensitive is true when the value must never be shown.
func (k *Key) Sensitive() bool { return k.Type == Password }

// DefaultValue is the built-in default, nil when the key is not set by default.
func (k *Key) DefaultValue() *string {
	if k.Null {
		return nil
	}
	v := k.Default
	return &v
}

// Unit is the unit of the value as its name tells it: "milliseconds", "bytes", … or empty.
func (k *Key) Unit() string {
	if k.Type == Boolean || k.Type == String || k.Type == List || k.Type == Class || k.Type == Password {
		return ""
	}
	for _, u := range [...]struct{ part, unit string }{
		{"bytes.per.second", "bytes per second"},
		{".ms", "milliseconds"},
		{".seconds", "seconds"},
		{".secs", "seconds"},
		{".minutes", "minutes"},
		{".hours", "hours"},
		{".bytes", "bytes"},
	} {
		if strings.HasSuffix(k.Name, u.part) || strings.Contains(k.Name, u.part+".") {
			return u.unit
		}
	}
	return ""
}

// Forever is the duration of a time limit that never ends.
const Forever time.Duration = math.MaxInt64

// millis converts milliseconds to a Duration. Negative values and those past the range of a Duration are Forever.
func millis(ms int64) time.Duration {
	if ms < 0 || ms > int64(Forever/time.Millisecond) {
		return Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// Lookup finds a key by scope and name; nil when there is none.
func Lookup(scope Scope, name string) *Key {
	return registry.byName[scope][name]
}

// Keys lists the keys of a scope, sorted by name. The slice is the caller's, the keys are shared and read-only.
func Keys(scope Scope) []*Key {
	return slices.Clone(registry.sorted[scope])
}

// registry is the index over the tables; built once, never written after.
var registry = buildRegistry()

type index struct {
	byName [ScopeClientMetrics + 1]map[string]*Key
	sorted [ScopeClientMetrics + 1][]*Key
}

func buildRegistry() *index {
	r := &index{}
	for s := range r.byName {
		r.byName[s] = map[string]*Key{}
	}
	tables := [][]Key{
		serverKeys(), clusterKeys(), logKeys(), coordinatorKeys(), ownKeys(), topicKeys(), groupKeys(), clientMetricsKeys(), inertKeys(),
	}
	for _, t := range tables {
		for i := range t {
			k := &t[i]
			if r.byName[k.Scope][k.Name] != nil {
				panic("config: key twice: " + k.Name)
			}
			r.byName[k.Scope][k.Name] = k
			r.sorted[k.Scope] = append(r.sorted[k.Scope], k)
		}
	}
	for _, l := range r.sorted {
		slices.SortFunc(l, func(a, b *Key) int { return strings.Compare(a.Name, b.Name) })
	}
	return r
}
