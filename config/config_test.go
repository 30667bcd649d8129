package config

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"
)

// intended lists, for each key, the columns of Kafka's table that differ here on purpose, and why.
var intended = map[string]struct{ columns, why string }{
	"broker log.flush.interval.messages":    {"default", "durable on acknowledgement"},
	"topic flush.messages":                  {"default", "durable on acknowledgement"},
	"broker listeners":                      {"live", "listeners open at the start only"},
	"broker listener.security.protocol.map": {"live", "listeners open at the start only"},
	"topic retention.ms":                    {"synonym", "given by log.retention.ms, .minutes or .hours; the table has no single name"},
	"topic segment.ms":                      {"synonym", "given by log.roll.ms or .hours"},
	"topic segment.jitter.ms":               {"synonym", "given by log.roll.jitter.ms or .hours"},
	"topic flush.ms":                        {"synonym", "given by log.flush.interval.ms or the scheduler's"},
}

// TestKafkaTable compares name, type, default, liveness and synonym of every key with what Kafka 4.4 describes.
func TestKafkaTable(t *testing.T) {
	f, err := os.Open("testdata/kafka-4.4-configs.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scopes := map[string]Scope{"broker": ScopeBroker, "topic": ScopeTopic, "group": ScopeGroup}
	counts := map[Scope]int{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		c := strings.Split(sc.Text(), "\t")
		scope, name := scopes[c[0]], c[1]
		k := Lookup(scope, name)
		if k == nil {
			t.Errorf("%s key %s is not known", c[0], name)
			continue
		}
		counts[scope]++
		checkColumns(t, k, c)
	}
	if counts[ScopeBroker] != 350 || counts[ScopeTopic] != 37 || counts[ScopeGroup] != 21 {
		t.Errorf("keys compared: %v", counts)
	}
}

func checkColumns(t *testing.T, k *Key, c []string) {
	t.Helper()
	differs := map[string]string{}
	note := func(column string, differ bool, ours, kafkas string) {
		if differ {
			differs[column] = ours + " here, " + kafkas + " there"
		}
	}
	def := k.Default
	if k.Null {
		def = "null"
	}
	live := "start"
	if k.Live {
		live = "live"
	}
	synonym := k.Synonym
	if synonym == k.Name {
		synonym = "" // the table leaves out synonyms of the same name
	}
	note("type", !strings.EqualFold(k.Type.String(), c[2]), k.Type.String(), c[2])
	note("default", def != c[3] && c[3] != "(set by us)", def, c[3])
	note("live", live != c[4], live, c[4])
	note("synonym", synonym != c[5], synonym, c[5])
	want := strings.Fields(intended[c[0]+" "+k.Name].columns)
	for column, what := range differs {
		if !slices.Contains(want, column) {
			t.Errorf("%s %s: %s: %s", c[0], k.Name, column, what)
		}
	}
	for _, column := range want {
		if differs[column] == "" {
			t.Errorf("%s %s: %s no longer differs, take it off the list", c[0], k.Name, column)
		}
	}
	if differs["default"] != "" && k.Kafka != c[3] {
		t.Errorf("%s: Kafka's default %q is not noted", k.Name, c[3])
	}
}

// TestEveryKey holds for the table as a whole.
func TestEveryKey(t *testing.T) {
	for s := ScopeBroker; s <= ScopeClientMetrics; s++ {
		for _, k := range Keys(s) {
			if k.Doc == "" || !strings.HasSuffix(k.Doc, ".") {
				t.Errorf("%s: the meaning %q is no sentence", k.Name, k.Doc)
			}
			if k.Status != Used && k.Reason == "" {
				t.Errorf("%s has no effect or is refused, without a reason", k.Name)
			}
			if !k.Null {
				if v, err := k.Check(k.Default); err != nil || v != k.Default {
					t.Errorf("%s: the default %q gives %q, %v", k.Name, k.Default, v, err)
				}
			}
			if k.Synonym != "" && Lookup(ScopeBroker, k.Synonym) == nil {
				t.Errorf("%s: no broker key %s", k.Name, k.Synonym)
			}
			if e, err := Explain(k.Name); err != nil || len(e) == 0 {
				t.Errorf("%s is not explained: %v", k.Name, err)
			}
		}
	}
}

// TestDefaultsAgree: where nothing is set, a topic's value is the default of its broker key in the topic's unit.
func TestDefaultsAgree(t *testing.T) {
	l := Layers{Static: Default(), Replicas: 1, Brokers: 1}
	for _, k := range Keys(ScopeTopic) {
		if got := l.topicValue(k); got != k.Default {
			t.Errorf("%s is %s without settings, its default is %s", k.Name, got, k.Default)
		}
	}
}

// What no part of the server reads says so, and a key that is given the default of such a one does too.
func TestUnreadTopicKeysSayWhy(t *testing.T) {
	for name, reason := range map[string]string{
		"delete.retention.ms": NoCompaction, "max.compaction.lag.ms": NoCompaction, "min.compaction.lag.ms": NoCompaction, "min.cleanable.dirty.ratio": NoCompaction,
	} {
		k := Lookup(ScopeTopic, name)
		if k.Status != NoEffect || k.Reason != reason {
			t.Errorf("%s: %s, %q; want %q", name, k.Status, k.Reason, reason)
		}
		if b := Lookup(ScopeBroker, k.Synonym); b != nil && b.Status != NoEffect {
			t.Errorf("%s: %s, and its default %s: %s", name, k.Status, b.Name, b.Status)
		}
	}
}
