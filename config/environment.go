package config

import (
	"fmt"
	"slices"
	"strings"
)

// clientNames are environment names of the client commands.
var clientNames = [...]string{"KEEPLOG_BROKERS", "KEEPLOG_PROFILE"}

// envKey finds the key that an environment name stands for: KEEPLOG_ or KAFKA_ and the key in upper case with underscores for dots. For
// KEEPLOG_X both keeplog.x and x are tried, keeplog.x first. Empty when there is none.
func envKey(name string) string {
	if rest, ok := strings.CutPrefix(name, "KEEPLOG_"); ok {
		if k := registryEnv[name]; k != "" {
			return k
		}
		return registryEnv[rest]
	}
	if rest, ok := strings.CutPrefix(name, "KAFKA_"); ok {
		return registryEnv[rest]
	}
	return ""
}

// registryEnv maps a key in upper case with underscores to the key. Built once, never written after.
var registryEnv = buildEnv()

func buildEnv() map[string]string {
	m := map[string]string{}
	for _, k := range registry.sorted[ScopeBroker] {
		name := strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
		if m[name] != "" {
			panic("config: " + k.Name + " and " + m[name] + " have one environment name")
		}
		m[name] = k.Name
	}
	return m
}

// EnvName is the environment name that sets a key.
func EnvName(key string) string {
	name := strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
	if strings.HasPrefix(name, "KEEPLOG_") {
		return name
	}
	return "KEEPLOG_" + name
}

// environment takes the settings out of NAME=value pairs, KAFKA_ names before KEEPLOG_ ones, so that ours win.
func (l *loader) environment(env []string) {
	env = slices.Clone(env)
	slices.Sort(env)
	var ignored []string
	from := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "KAFKA_") && !strings.HasPrefix(name, "KEEPLOG_") || slices.Contains(clientNames[:], name) {
			continue
		}
		key := envKey(name)
		if key == "" {
			ignored = append(ignored, name)
			continue
		}
		if other := from[key]; other != "" {
			l.warn(Problem{Where: name, Key: key, What: fmt.Sprintf("%s sets %s too and no longer counts", other, key)})
		}
		from[key] = name
		l.put(name, key, value)
	}
	if len(ignored) > 0 {
		l.warn(Problem{Where: "environment", What: "no property has these names, they are ignored: " + strings.Join(ignored, ", ")})
	}
}
