package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Broker is the immutable configuration of a process: the static layer. The typed getters panic on a name that is no broker key of that
// type, for such a call is a mistake in the program. Values of keys that are not set read as the zero value; use Get to tell.
type Broker struct {
	values    map[string]Value
	listeners []Listener
	advert    []Listener
	voters    []Voter
	cluster   cluster
	overrides map[string]int
}

// Default is the configuration of a broker that was started with nothing.
func Default() *Broker {
	b, _, err := Load(Input{})
	if err != nil {
		panic("config: the defaults do not load: " + err.Error())
	}
	return b
}

// Get returns the value of a key with its source and origin.
func (b *Broker) Get(key string) Value {
	if v, ok := b.values[key]; ok {
		return v
	}
	k := Lookup(ScopeBroker, key)
	if k == nil {
		panic("config: no broker key " + key)
	}
	return Value{Key: k, Text: k.Default, Null: k.Null, Source: SourceDefault, Origin: "default"}
}

// IsSet is true when something other than the built-in default gives the key's value.
func (b *Broker) IsSet(key string) bool {
	_, ok := b.values[key]
	return ok
}

func (b *Broker) typed(key string, types ...Type) string {
	v := b.Get(key)
	if !slices.Contains(types, v.Key.Type) {
		panic(fmt.Sprintf("config: %s has type %s", key, v.Key.Type))
	}
	return v.Text
}

// Bool reads a boolean key.
func (b *Broker) Bool(key string) bool { return b.typed(key, Boolean) == "true" }

// Int reads an int or short key.
func (b *Broker) Int(key string) int {
	n, _ := strconv.Atoi(b.typed(key, Int, Short))
	return n
}

// Int64 reads an int, short or long key.
func (b *Broker) Int64(key string) int64 {
	n, _ := strconv.ParseInt(b.typed(key, Int, Short, Long), 10, 64)
	return n
}

// Float reads a double key.
func (b *Broker) Float(key string) float64 {
	f, _ := strconv.ParseFloat(b.typed(key, Double), 64)
	return f
}

// String reads a string, class or password key.
func (b *Broker) String(key string) string { return b.typed(key, String, Class, Password) }

// List reads a list key. The slice is the caller's.
func (b *Broker) List(key string) []string { return splitList(b.typed(key, List)) }

// Duration reads a number whose unit is in the key's name (ms, seconds, minutes, hours). Negative values, and those past the range of a
// Duration, are Forever.
func (b *Broker) Duration(key string) time.Duration {
	v := b.Get(key)
	n := b.Int64(key)
	unit := int64(1)
	switch v.Key.Unit() {
	case "milliseconds":
	case "seconds":
		unit = 1000
	case "minutes":
		unit = 60_000
	case "hours":
		unit = 3_600_000
	default:
		panic("config: " + key + " is not a time")
	}
	if n > int64(Forever)/unit {
		return Forever
	}
	return millis(n * unit)
}

// Listeners are the addresses to listen on, the first for clients. The slice is shared and read-only.
func (b *Broker) Listeners() []Listener { return b.listeners }

// Advertised are the addresses told to clients, one for each listener that has one. A port of 0 stands for the port that the listener of
// that name got from the system. The slice is shared and read-only.
func (b *Broker) Advertised() []Listener { return b.advert }

// Voters are the entries of controller.quorum.voters; empty for a node alone. The slice is shared and read-only.
func (b *Broker) Voters() []Voter { return b.voters }

// NodeID is the number of this node.
func (b *Broker) NodeID() int32 { return int32(b.Int("node.id")) }

// LogDirs are the data directories, at least one. The slice is the caller's.
func (b *Broker) LogDirs() []string {
	dirs := b.List("log.dirs")
	if !b.IsSet("log.dirs") && b.IsSet("log.dir") {
		dirs = b.List("log.dir")
	}
	clean := make([]string, len(dirs))
	for i, d := range dirs {
		clean[i] = filepath.Clean(d)
	}
	return clean
}

// MetadataDir is the directory of the metadata log.
func (b *Broker) MetadataDir() string {
	if d := b.String("metadata.log.dir"); d != "" {
		return filepath.Clean(d)
	}
	return b.LogDirs()[0]
}

// ReplicationFactor is the number of replicas of a topic made without a count. brokers counts the bootstrap voters and all brokers that
// registered and were not removed, also when down.
func (b *Broker) ReplicationFactor(brokers int) int {
	if b.IsSet("default.replication.factor") {
		return b.Int("default.replication.factor")
	}
	return max(1, min(3, brokers))
}

// ConnectionLimit is the most connections that one address (without a port) may hold.
func (b *Broker) ConnectionLimit(host string) int {
	if n, ok := b.overrides[host]; ok {
		return n
	}
	return b.Int("max.connections.per.ip")
}

// Values lists every broker key with its value, source and origin, sorted by name.
func (b *Broker) Values() []Value {
	var vs []Value
	for _, k := range registry.sorted[ScopeBroker] {
		vs = append(vs, b.Get(k.Name))
	}
	return vs
}

// WithoutEffect lists the values that were set and change nothing, sorted by name.
func (b *Broker) WithoutEffect() []Value {
	return slices.DeleteFunc(b.Values(), func(v Value) bool {
		return v.Key.Status != NoEffect || v.Source == SourceDefault || !v.Key.Null && v.Text == v.Key.Default
	})
}

// NonDefault gives "key=value" for every value that differs from the built-in default, sorted, secrets hidden: the line that a server
// prints at its start.
func (b *Broker) NonDefault() []string {
	var out []string
	for _, v := range b.Values() {
		if v.Source != SourceDefault && (v.Key.Null || v.Text != v.Key.Default) {
			out = append(out, v.Key.Name+"="+shown(v.Key, v.Text))
		}
	}
	return out
}

// finish checks what concerns several keys, and parses the values that have a form of their own.
func (b *Broker) finish(l *loader) {
	b.checkNode(l)
	b.finishListeners(l)
	b.voters, _ = parseVoters(b.Get("controller.quorum.voters").Text)
	b.finishCluster(l)
	b.overrides, _ = parseOverrides(b.Get("max.connections.per.ip.overrides").Text)
	if len(b.LogDirs()) == 0 {
		b.fault(l, "log.dirs", "log.dirs is empty", "")
	}
	low, high := b.Int64("log.cleaner.min.compaction.lag.ms"), b.Int64("log.cleaner.max.compaction.lag.ms")
	if low > high {
		b.fault(l, "log.cleaner.min.compaction.lag.ms", fmt.Sprintf("log.cleaner.min.compaction.lag.ms (%d) is above log.cleaner.max.compaction.lag.ms (%d)", low, high), "")
	}
	if n := b.Int64("message.max.bytes"); n > b.Int64("socket.request.max.bytes") {
		l.warn(Problem{Where: b.Get("message.max.bytes").Origin, Key: "message.max.bytes", What: fmt.Sprintf("message.max.bytes (%d) is above socket.request.max.bytes (%d), which bounds every request", n, b.Int64("socket.request.max.bytes"))})
	}
	b.checkDurability(l)
	b.checkGroups(l)
}

func (b *Broker) checkDurability(l *loader) {
	if b.IsSet("default.replication.factor") && b.Int("min.insync.replicas") > b.Int("default.replication.factor") {
		l.warn(Problem{Where: b.Get("min.insync.replicas").Origin, Key: "min.insync.replicas", What: fmt.Sprintf("min.insync.replicas (%d) is above default.replication.factor (%d): topics made without a count take no acks=all writes", b.Int("min.insync.replicas"), b.Int("default.replication.factor"))})
	}
	if n := b.Int64("log.flush.interval.messages"); n > 1 {
		l.warn(Problem{Where: b.Get("log.flush.interval.messages").Origin, Key: "log.flush.interval.messages", What: fmt.Sprintf("log.flush.interval.messages=%d: topics are not durable on acknowledgement", n), Why: "a record is acknowledged when it is written, and a power failure can lose the tail"})
	}
}

func (b *Broker) fault(l *loader, key, what, try string) {
	p := Problem{Key: key, What: what, Try: try}
	if b.IsSet(key) {
		p.Where = b.Get(key).Origin
	}
	l.fail(p)
}

func (b *Broker) checkNode(l *loader) {
	if b.IsSet("node.id") && b.IsSet("broker.id") && b.Int("node.id") != b.Int("broker.id") {
		b.fault(l, "broker.id", fmt.Sprintf("broker.id is %d and node.id is %d", b.Int("broker.id"), b.Int("node.id")), "remove broker.id, the older name of node.id")
		return
	}
	for _, pair := range [][2]string{{"node.id", "broker.id"}, {"broker.id", "node.id"}} {
		if v, ok := b.values[pair[0]]; ok {
			v.Key = Lookup(ScopeBroker, pair[1])
			b.values[pair[1]] = v
			return
		}
	}
}

// finishListeners joins listeners, their protocols and what is advertised.
func (b *Broker) finishListeners(l *loader) {
	b.listeners, _ = parseListeners(b.Get("listeners").Text)
	if len(b.listeners) == 0 {
		b.fault(l, "listeners", "listeners is empty", "listeners=PLAINTEXT://127.0.0.1:9092")
		return
	}
	protocols, _ := parseProtocolMap(b.Get("listener.security.protocol.map").Text)
	if !b.IsSet("listener.security.protocol.map") {
		b.plainInternal(protocols)
	}
	for i := range b.listeners {
		li := &b.listeners[i]
		li.Protocol = protocols[li.Name]
		switch li.Protocol {
		case "PLAINTEXT":
		case "":
			b.fault(l, "listeners", fmt.Sprintf("listener %s has no security protocol", li.Name), "listener.security.protocol.map="+li.Name+":PLAINTEXT")
		default:
			p := Problem{Where: b.Get("listeners").Origin, Key: "listeners", What: fmt.Sprintf("listener %s asks for %s, which is not served", li, li.Protocol), Why: "only PLAINTEXT is served; opening it without encryption or authentication would be unsafe", Try: "PLAINTEXT://" + li.Address()}
			l.fail(p)
		}
	}
	b.finishAdvertised(l, protocols)
}

// plainInternal gives the listeners that nodes use among themselves the protocol PLAINTEXT where no map was written.
func (b *Broker) plainInternal(protocols map[string]string) {
	names := append(b.List("controller.listener.names"), b.String("inter.broker.listener.name"))
	for _, n := range names {
		n = strings.ToUpper(n)
		if n != "" && protocols[n] == "" {
			protocols[n] = "PLAINTEXT"
		}
	}
}

func (b *Broker) finishAdvertised(l *loader, protocols map[string]string) {
	if b.IsSet("advertised.listeners") {
		b.advert, _ = parseListeners(b.Get("advertised.listeners").Text)
	}
	if len(b.advert) > 0 {
		for i := range b.advert {
			a := &b.advert[i]
			a.Protocol = protocols[a.Name]
			if !slices.ContainsFunc(b.listeners, func(li Listener) bool { return li.Name == a.Name }) {
				b.fault(l, "advertised.listeners", fmt.Sprintf("advertised listener %s is not among listeners", a.Name), "")
			}
			if a.Wildcard() {
				b.fault(l, "advertised.listeners", fmt.Sprintf("%s tells clients no address to connect to", a), "a name or address that clients can reach")
			}
		}
		return
	}
	for _, li := range b.listeners {
		if li.Wildcard() {
			try := fmt.Sprintf("advertised.listeners=%s://HOST:%d, HOST being a name that clients can reach", li.Name, li.Port)
			p := Problem{Where: b.Get("listeners").Origin, Key: "listeners", What: fmt.Sprintf("listener %s binds to all interfaces and nothing is advertised", li), Why: "clients are told where to connect, and this address tells them nothing", Try: try}
			l.fail(p)
			continue
		}
		b.advert = append(b.advert, li)
	}
}
