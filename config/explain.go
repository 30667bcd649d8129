package config

import (
	"fmt"
	"slices"
	"strings"
)

// Explanation is what `config explain` and `config list` say of a key, in words.
type Explanation struct {
	Name  string `json:"name"`
	Scope string `json:"scope"`
	Type  string `json:"type"`
	// Default is nil where the key is not set by default.
	Default *string `json:"default"`
	// Kafka says how Kafka differs, empty where it does not.
	Kafka string `json:"kafka,omitempty"`
	Unit  string `json:"unit,omitempty"`
	Valid string `json:"valid,omitempty"`
	// Restart is true when a change takes effect at the next start only.
	Restart bool   `json:"restart"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	// Env is the environment name that sets a broker key.
	Env string `json:"env,omitempty"`
	// Before lists the keys that win over this one, the strongest first.
	Before []string `json:"before,omitempty"`
	// Gives names the topic or group key whose default this broker key is; DefaultFrom the broker key that gives this one's.
	Gives       string `json:"gives,omitempty"`
	DefaultFrom string `json:"defaultFrom,omitempty"`
	Doc         string `json:"doc"`
}

// Explain explains a name in every scope that has it, the broker's first. The error wraps ErrUnknownKey and suggests a name.
func Explain(name string) ([]Explanation, error) {
	var out []Explanation
	for s := range registry.byName {
		if k := registry.byName[s][name]; k != nil {
			out = append(out, k.explain())
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	for s := ScopeBroker; s <= ScopeClientMetrics; s++ {
		if Suggest(s, name) != "" {
			return nil, unknown(s, name)
		}
	}
	return nil, unknown(ScopeBroker, name)
}

// ExplainAll explains every key of the scope, sorted by name.
func ExplainAll(scope Scope) []Explanation {
	var out []Explanation
	for _, k := range registry.sorted[scope] {
		out = append(out, k.explain())
	}
	return out
}

func (k *Key) explain() Explanation {
	e := Explanation{
		Name: k.Name, Scope: k.Scope.String(), Type: k.Type.String(), Default: k.DefaultValue(), Unit: k.Unit(),
		Valid: k.Valid.String(), Restart: !k.Live, Status: k.Status.String(), Reason: k.Reason, DefaultFrom: k.Synonym, Doc: k.Doc,
	}
	if k.Scope == ScopeBroker {
		e.Env = EnvName(k.Name)
		e.Gives = givenBy(k.Name)
		for _, c := range chain(k.Name) {
			if c.key == k.Name {
				break
			}
			e.Before = append(e.Before, c.key)
		}
	}
	switch {
	case strings.HasPrefix(k.Name, "keeplog."):
		e.Kafka = "Kafka has no such key"
	case k.Kafka != "":
		e.Kafka = "Kafka's default is " + k.Kafka
	case k.Undescribed:
		e.Kafka = "Kafka reads it and does not describe it"
	}
	return e
}

// givenBy finds the topic or group key that takes its default from a broker key.
func givenBy(broker string) string {
	for _, c := range chain(broker) {
		for _, s := range [...]Scope{ScopeTopic, ScopeGroup} {
			for _, k := range registry.sorted[s] {
				if k.Synonym == c.key {
					return k.Name
				}
			}
		}
	}
	return ""
}

// Markdown writes the keys of a scope as three tables (used, no effect, refused), for the documentation.
func Markdown(scope Scope) string {
	var b strings.Builder
	for _, st := range [...]Status{Used, NoEffect, Refused} {
		keys := slices.DeleteFunc(Keys(scope), func(k *Key) bool { return k.Status != st })
		if len(keys) == 0 {
			continue
		}
		fmt.Fprintf(&b, "### %s\n\n| property | type | default | changes | meaning |\n|---|---|---|---|---|\n", st)
		for _, k := range keys {
			k.row(&b)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (k *Key) row(b *strings.Builder) {
	def, changes, doc := "`"+k.Default+"`", "at start", k.Doc
	switch {
	case k.Null:
		def = "not set"
	case k.Default == "":
		def = "empty"
	}
	if k.Kafka != "" {
		def += " (Kafka: `" + k.Kafka + "`)"
	}
	if k.Live {
		changes = "live"
	}
	if k.Reason != "" {
		doc += " *" + strings.ToUpper(k.Reason[:1]) + k.Reason[1:] + ".*"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", k.Name, k.Type, def, changes, strings.ReplaceAll(doc, "|", `\|`))
}
