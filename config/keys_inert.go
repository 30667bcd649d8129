package config

import (
	_ "embed" // the table of keys without effect
	"fmt"
	"strings"
)

// inertTable holds the broker keys that change nothing here, one a line, fields separated by tabs:
//
//	name  type  default  live|start  reason  meaning
//
// "null" as default is not set. A reason that begins with '!' says why the key is refused.
//
//go:embed inert.tsv
var inertTable string

func inertKeys() []Key {
	types := map[string]Type{
		"boolean": Boolean, "string": String, "int": Int, "short": Short, "long": Long,
		"double": Double, "list": List, "class": Class, "password": Password,
	}
	reasons := inertReasons()
	var keys []Key
	for i, line := range strings.Split(strings.TrimSuffix(inertTable, "\n"), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 6 || types[f[1]] == 0 || reasons[strings.TrimPrefix(f[4], "!")] == "" {
			panic(fmt.Sprintf("config: inert.tsv:%d: %q", i+1, line))
		}
		k := Key{Name: f[0], Type: types[f[1]], Default: f[2], Live: f[3] == "live", Status: NoEffect, Doc: f[5]}
		if f[2] == "null" {
			k.Default, k.Null = "", true
		}
		why, refused := strings.CutPrefix(f[4], "!")
		k.Reason = reasons[why]
		if refused {
			k.Status = Refused
		}
		keys = append(keys, k)
	}
	return keys
}

// inertReasons are the reasons of the table: why a key has no effect, or is refused.
func inertReasons() map[string]string {
	return map[string]string{
		"buffer":     "what waits for the metadata log is bounded by the size of one entry",
		"authorizer": "access control lists are not enforced yet, and an open server where a closed one is expected would be unsafe",
		"compaction": NoCompaction,
		"cordon":     "a data directory that should take no new partitions would still get them",
		"fetchers":   "one fetcher for each broker that is followed keeps two fetches in flight",
		"jvm":        "there is no Java process",
		"linger":     "commits gather while the entry before them is in flight, there is no timer",
		"liveness":   "heartbeats and sessions between nodes have fixed times that fit one another",
		"metalog":    "the metadata log is a Raft log trimmed by its own snapshots",
		"metrics":    "metrics are read over HTTP, and no reporter is loaded",
		"offsets":    "committed offsets live in the metadata log, there is no internal topic",
		"peers":      "calls between nodes have fixed times that fit one another",
		"plugin":     "Java plug-ins cannot be loaded, and running without one that is asked for would be unsafe",
		"pluginless": "Java plug-ins cannot be loaded; what it would do is not needed for safety",
		"provider":   "values of the form ${provider:path:key} are not resolved, and would be taken as they stand",
		"purgatory":  "a waiting request is dropped the moment it completes, there is nothing to purge",
		"quota":      "quotas are not enforced yet",
		"raft":       "the metadata log is a Raft log with times of its own",
		"sasl":       "no SASL listener can be opened, listeners that ask for one are refused",
		"share":      noShare,
		"socket":     "the operating system's own setting holds",
		"streams":    noStreams,
		"telemetry":  "client telemetry is not collected",
		"threads":    "work is spread over all processors without pools of a set size",
		"tier":       noTier,
		"tls":        "no TLS listener can be opened, listeners that ask for one are refused",
		"token":      "delegation tokens are not served",
		"txn":        "transactions are not served yet",
	}
}
