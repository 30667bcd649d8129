package config

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestProperties(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []Property
	}{
		{"equals, colon, blank", "a=1\nb:2\nc 3\nd = 4\ne\t:\t5", []Property{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}, {"d", "4", 4}, {"e", "5", 5}}},
		{"comments and blank lines", "# one\n! two\n\n  # three\n  a=1\n", []Property{{"a", "1", 5}}},
		{"no value", "a\nb=\nc:", []Property{{"a", "", 1}, {"b", "", 2}, {"c", "", 3}}},
		{"a value keeps what follows", "a=b=c:d # e \n", []Property{{"a", "b=c:d # e ", 1}}},
		{"continued line", "a=1,\\\n   2,\\\n\t3\nb=4", []Property{{"a", "1,2,3", 1}, {"b", "4", 4}}},
		{"continued into a comment sign", "a=1\\\n#2", []Property{{"a", "1#2", 1}}},
		{"even backslashes do not continue", "a=1\\\\\nb=2", []Property{{"a", `1\`, 1}, {"b", "2", 2}}},
		{"continued at the end", "a=1\\", []Property{{"a", "1", 1}}},
		{"escapes", `a\ b\=c=\t\n\r\f\q\\`, []Property{{"a b=c", "\t\n\r\fq\\", 1}}},
		{"unicode escapes", `a=\u00e9\uD83D\uDE00x`, []Property{{"a", "é😀x", 1}}},
		{"line ends", "a=1\r\nb=2\rc=3", []Property{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}}},
		{"latin-1", "a=\xe9", []Property{{"a", "é", 1}}},
		{"utf-8", "a=é", []Property{{"a", "é", 1}}},
		{"repeated keys come in order", "a=1\na=2", []Property{{"a", "1", 1}, {"a", "2", 2}}},
		{"nothing", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseProperties([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("properties (-want +got):\n%s", diff)
			}
		})
	}
	for _, bad := range []string{`a=\u`, `a=\u12g4`, `\u1=a`} {
		if _, err := ParseProperties([]byte("\n" + bad)); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// escape writes a text so that ParseProperties reads it back.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch r {
		case '\t':
			b.WriteString(`\t`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\f':
			b.WriteString(`\f`)
		case ' ', '=', ':', '#', '!', '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// FuzzProperties: nothing panics, lines rise, and what is written with escapes is read back as it was.
func FuzzProperties(f *testing.F) {
	for _, s := range []string{"a=1", "a\\\n b", `\u00e9`, "#x\r\n!y\ra b", `a\`, "\\\n\\\n", "a=\xff", `\uD83D`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		props, err := ParseProperties(content)
		if err != nil {
			return
		}
		var b strings.Builder
		last := 0
		for _, p := range props {
			if p.Line <= last || p.Line > len(content)+1 {
				t.Fatalf("line %d after line %d", p.Line, last)
			}
			last = p.Line
			if !utf8.ValidString(p.Key) || !utf8.ValidString(p.Value) {
				return // an escape cut a character in two
			}
			b.WriteString(escape(p.Key) + "=" + escape(p.Value) + "\n")
		}
		again, err := ParseProperties([]byte(b.String()))
		if err != nil || len(again) != len(props) {
			t.Fatalf("%q reads back as %d entries, %v", b.String(), len(again), err)
		}
		for i := range props {
			if again[i].Key != props[i].Key || again[i].Value != props[i].Value {
				t.Fatalf("%+v reads back as %+v", props[i], again[i])
			}
		}
	})
}

// FuzzLoad: no file, environment or --set panics, and what loads can be read with every getter.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("listeners=PLAINTEXT://127.0.0.1:9092\n"), "KAFKA_NODE_ID=3", "num.partitions=3")
	f.Add([]byte("advertised.listeners=A://[::1]:1,A://b:2\n"), "KEEPLOG_LOG_DIRS=,", "controller.quorum.voters=1@a:1")
	f.Fuzz(func(t *testing.T, content []byte, env, set string) {
		b, _, err := Load(Input{Content: content, Env: []string{env}, Set: []string{set}})
		if err != nil {
			return
		}
		if len(b.Listeners()) == 0 || len(b.LogDirs()) == 0 || b.NodeID() < 0 {
			t.Errorf("listeners %v, directories %v, node %d", b.Listeners(), b.LogDirs(), b.NodeID())
		}
		l := Layers{Static: b, Replicas: 1, Brokers: 1}
		l.Effective()
		l.DescribeBroker(nil)
	})
}
