package config

import (
	"fmt"
	"slices"
	"strings"
)

// Flag is a named command-line flag that sets a key, such as --listen for listeners.
type Flag struct {
	// Name is the flag as typed, with its dashes.
	Name string
	Key  string
	// Value replaces what came before.
	Value string
}

// Input is everything a broker's configuration is made from.
type Input struct {
	// File is the name of the properties file, for messages; Content is what is in it. Both empty where there is none.
	File    string
	Content []byte
	// Env are NAME=value pairs; all but KEEPLOG_* and KAFKA_* are passed over.
	Env []string
	// Set are the key=value texts of --set, in order.
	Set []string
	// Flags are named flags that were given.
	Flags []Flag
}

// Value is one setting of a Broker.
type Value struct {
	Key *Key
	// Text is the value in canonical form; empty where Null is true.
	Text string
	// Null is true when the key is not set and has no default.
	Null   bool
	Source Source
	// Origin is the place the value came from: "server.properties:12", "KAFKA_NODE_ID", "--set", "--listen"; "default" for a built-in one.
	Origin string
}

// Load reads all inputs and returns the immutable configuration of a broker, with warnings that do not stop it. The error is an *Error
// that holds every problem found.
func Load(in Input) (*Broker, []Problem, error) {
	l := &loader{set: map[string]Value{}}
	l.file(in.File, in.Content)
	l.environment(in.Env)
	for _, kv := range in.Set {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			l.fail(Problem{Where: "--set", What: fmt.Sprintf("%q is not key=value", kv), Try: "--set num.partitions=3"})
			continue
		}
		l.strict("--set", trim(k), v)
	}
	for _, f := range in.Flags {
		l.strict(f.Name, f.Key, f.Value)
	}
	if len(l.errors) > 0 {
		return nil, l.warnings, &Error{l.errors}
	}
	b := &Broker{values: l.set}
	b.finish(l)
	if len(l.errors) > 0 {
		return nil, l.warnings, &Error{l.errors}
	}
	return b, l.warnings, nil
}

// loader gathers values in rising order of precedence.
type loader struct {
	set      map[string]Value
	errors   []Problem
	warnings []Problem
}

func (l *loader) fail(p Problem) { l.errors = append(l.errors, p) }
func (l *loader) warn(p Problem) { l.warnings = append(l.warnings, p) }

func (l *loader) file(name string, content []byte) {
	if name == "" {
		name = "server.properties"
	}
	props, err := ParseProperties(content)
	if err != nil {
		l.fail(Problem{Where: name, What: err.Error()})
		return
	}
	seen := map[string]int{}
	for _, p := range props {
		where := fmt.Sprintf("%s:%d", name, p.Line)
		if first := seen[p.Key]; first != 0 {
			l.warn(Problem{Where: where, Key: p.Key, What: fmt.Sprintf("%s is set again, line %d no longer counts", p.Key, first)})
		}
		seen[p.Key] = p.Line
		if i := strings.IndexByte(p.Value, '#'); i > 0 && strings.ContainsRune(blanks, rune(p.Value[i-1])) {
			l.warn(Problem{Where: where, Key: p.Key, What: "the # is part of the value of " + p.Key, Why: "comments stand on their own lines"})
		}
		if Lookup(ScopeBroker, p.Key) != nil {
			l.put(where, p.Key, p.Value)
			continue
		}
		problem := unknownKey(where, ScopeBroker, p.Key)
		if Suggest(ScopeBroker, p.Key) != "" {
			l.fail(problem)
			continue
		}
		problem.What += " has no effect"
		if strings.HasPrefix(p.Key, "listener.name.") {
			problem.What, problem.Try = p.Key+" has no effect", ""
			problem.Why = "listeners have no settings of their own: only PLAINTEXT is served"
		}
		l.warn(problem)
	}
}

// strict sets a key that must exist.
func (l *loader) strict(where, key, value string) {
	if Lookup(ScopeBroker, key) == nil {
		l.fail(unknownKey(where, ScopeBroker, key))
		return
	}
	l.put(where, key, value)
}

// put checks a value and sets it. An empty value of a key that is not set by default unsets it.
func (l *loader) put(where, key, value string) {
	k := Lookup(ScopeBroker, key)
	if trim(value) == "" && k.Null && k.Type != String && k.Type != Class && k.Type != Password && k.Type != List {
		l.fail(Problem{Where: where, Key: key, What: key + " has no value", Try: "keeplog config explain " + key})
		return
	}
	v, err := k.check(value)
	if err != nil {
		what := fmt.Sprintf("%s: %v", key, err)
		if k.Sensitive() {
			what = key + ": invalid value"
		}
		l.fail(Problem{Where: where, Key: key, What: what, Try: "keeplog config explain " + key})
		return
	}
	if k.Status == Refused && !k.accepts(v) {
		l.fail(Problem{Where: where, Key: key, What: fmt.Sprintf("%s=%s is refused", key, shown(k, v)), Why: k.Reason, Try: "remove it   (keeplog config explain " + key + ")"})
		return
	}
	l.set[key] = Value{Key: k, Text: v, Source: SourceStatic, Origin: where}
}

// accepts is true when a value of a refused key asks for nothing that is missing.
func (k *Key) accepts(v string) bool {
	return !k.Null && v == k.Default || k.Null && v == "" || slices.Contains(k.Harmless, v)
}

func shown(k *Key, v string) string {
	if k.Sensitive() {
		return "[hidden]"
	}
	return v
}
