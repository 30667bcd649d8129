package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Errors of a change to settings; each is wrapped with the key and the cause. ErrValue is the fourth.
var (
	// ErrUnknownKey: the scope has no key of that name.
	ErrUnknownKey = errors.New("unknown property")
	// ErrReadOnly: the key needs a restart.
	ErrReadOnly = errors.New("property cannot be changed while the server runs")
	// ErrNotList: APPEND or SUBTRACT on a key that is no list.
	ErrNotList = errors.New("property is not a list")
	// ErrRefused: the value asks for something that is not served.
	ErrRefused = errors.New("refused")
)

// ValidateTopic checks one setting of a topic and returns it in canonical form.
func ValidateTopic(key, value string) (string, error) { return validate(ScopeTopic, key, value) }

// ValidateGroup checks one setting of a group and returns it in canonical form.
func ValidateGroup(key, value string) (string, error) { return validate(ScopeGroup, key, value) }

// ValidateClientMetrics checks one setting of a client metrics subscription and returns it in canonical form.
func ValidateClientMetrics(key, value string) (string, error) {
	return validate(ScopeClientMetrics, key, value)
}

// ValidateBroker checks one dynamic setting and returns it in canonical form: of this broker, or of all where cluster is true. A key that
// needs a restart answers ErrReadOnly, as does one that may not be set for all brokers.
func (l Layers) ValidateBroker(key, value string, cluster bool) (string, error) {
	if err := Alterable(key, cluster); err != nil {
		return "", err
	}
	v, err := validate(ScopeBroker, key, value)
	if err == nil && slices.Contains(threadKeys[:], key) {
		err = l.checkThreads(key, v)
	}
	return v, err
}

// threadKeys are counts that may at most double or halve at a time.
var threadKeys = [...]string{"background.threads", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir", "num.replica.fetchers"}

func (l Layers) checkThreads(key, value string) error {
	text, _ := l.brokerValue(Lookup(ScopeBroker, key))
	now, _ := strconv.Atoi(text)
	next, _ := strconv.Atoi(value)
	if next < 1 || next < now/2 || next > now*2 {
		return fmt.Errorf("%w for %s: %d is not within half and double of the current %d", ErrValue, key, next, now)
	}
	return nil
}

// Alterable is nil when the broker key can be set, or its setting removed, while the server runs: for this broker, or for all where
// cluster is true.
func Alterable(key string, cluster bool) error {
	k := Lookup(ScopeBroker, key)
	switch {
	case k == nil:
		return unknown(ScopeBroker, key)
	case !k.Live || strings.HasPrefix(key, "ssl."):
		return fmt.Errorf("%s: %w", key, ErrReadOnly)
	case cluster && (strings.HasPrefix(key, "sasl.") || key == "cordoned.log.dirs" || key == "principal.builder.class"):
		return fmt.Errorf("%s: %w for all brokers at once", key, ErrReadOnly)
	}
	return nil
}

// Known is nil when the scope has a key of that name, else an error that wraps ErrUnknownKey and suggests one.
func Known(scope Scope, key string) error {
	if Lookup(scope, key) == nil {
		return unknown(scope, key)
	}
	return nil
}

func unknown(scope Scope, key string) error {
	if s := Suggest(scope, key); s != "" {
		return fmt.Errorf("%w %s, did you mean %s", ErrUnknownKey, key, s)
	}
	return fmt.Errorf("%w %s", ErrUnknownKey, key)
}

func validate(scope Scope, key, value string) (string, error) {
	k := Lookup(scope, key)
	if k == nil {
		return "", unknown(scope, key)
	}
	v, err := k.Check(value)
	if err != nil {
		return "", err
	}
	if k.Status == Refused && !k.accepts(v) {
		return "", fmt.Errorf("%s=%s is %w: %s", key, shown(k, v), ErrRefused, k.Reason)
	}
	return v, nil
}

// ValidateTopicSet checks all settings of one topic together: each on its own, and what concerns several.
func (l Layers) ValidateTopicSet(set map[string]string) error {
	for _, k := range sortedNames(set) {
		if _, err := ValidateTopic(k, set[k]); err != nil {
			return err
		}
	}
	l.Topic = set
	t := l.Effective()
	if t.Compaction.MinLag > t.Compaction.MaxLag {
		return fmt.Errorf("%w: min.compaction.lag.ms (%v) is above max.compaction.lag.ms (%v)", ErrValue, t.Compaction.MinLag, t.Compaction.MaxLag)
	}
	return nil
}

func sortedNames(set map[string]string) []string {
	names := make([]string, 0, len(set))
	for k := range set {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}

// Op is an operation of IncrementalAlterConfigs. The numbers are those of the wire.
type Op int8

// The operations on one setting.
const (
	OpSet      Op = 0
	OpDelete   Op = 1
	OpAppend   Op = 2
	OpSubtract Op = 3
)

// Change is one operation of IncrementalAlterConfigs on one key.
type Change struct {
	Scope   Scope
	Key     string
	Op      Op
	Operand string
	// Current is the resource's own setting, nil where there is none.
	Current *string
	// Inherited is the value that the key has without a setting; APPEND and SUBTRACT start from it then.
	Inherited string
}

// Apply works out the new setting. A nil result with a nil error removes it; a name that no key has can be removed, as in Kafka. The
// result has passed the checks of the scope; for a broker, Layers.ValidateBroker knows more.
func (c Change) Apply() (*string, error) {
	if c.Op == OpDelete {
		return nil, nil
	}
	k := Lookup(c.Scope, c.Key)
	if k == nil {
		return nil, unknown(c.Scope, c.Key)
	}
	next := c.Operand
	if c.Op == OpAppend || c.Op == OpSubtract {
		if k.Type != List {
			return nil, fmt.Errorf("%s has type %s: %w", c.Key, k.Type, ErrNotList)
		}
		from := c.Inherited
		if c.Current != nil {
			from = *c.Current
		}
		next = edit(splitList(from), c.Op, splitList(c.Operand))
	}
	v, err := validate(c.Scope, c.Key, next)
	if err != nil {
		return nil, err
	}
	return &v, nil
}

// Inherited is the value that a known key has without a setting of its own: of the topic, or a dynamic one of the broker.
func (l Layers) Inherited(scope Scope, key string) string {
	l.Topic = nil
	switch k := Lookup(scope, key); {
	case k == nil:
		return ""
	case scope == ScopeTopic:
		return l.topicValue(k)
	case scope == ScopeBroker:
		l.Broker, l.Cluster = nil, nil
		v, _ := l.brokerValue(k)
		return v
	case k.Synonym != "":
		v, _ := l.brokerValue(Lookup(ScopeBroker, k.Synonym))
		return v
	default:
		return k.Default
	}
}

// edit adds the items that are missing, or takes out those that are there.
func edit(items []string, op Op, operand []string) string {
	items = slices.DeleteFunc(items, func(s string) bool { return s == "" })
	for _, it := range operand {
		has := slices.Contains(items, it)
		switch {
		case op == OpAppend && !has:
			items = append(items, it)
		case op == OpSubtract && has:
			items = slices.DeleteFunc(items, func(s string) bool { return s == it })
		}
	}
	return strings.Join(items, ",")
}
