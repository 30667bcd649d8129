package node

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
)

// elsewhere are the live broker keys that no room asks the live settings for by name, and what they do reach.
var elsewhere = map[string]string{
	"max.connections.per.ip":           "config.Broker.ConnectionLimit of the live settings",
	"max.connections.per.ip.overrides": "the same",
	"keeplog.broker.drained":           "the controller reads it in the image",
}

// Every setting that claims to be alterable while the server runs is asked for where it is used, each time: it gives topics or groups their default, or
// the code reads it from the live settings, and nobody reads it from the settings of the start.
func TestLiveKeysAreReadLive(t *testing.T) {
	topics := map[string]bool{}
	for _, k := range slices.Concat(config.Keys(config.ScopeTopic), config.Keys(config.ScopeGroup)) {
		topics[k.Synonym] = true // see Layers.Effective and Layers.Group
	}
	lines := sourceLines(t)
	for _, k := range config.Keys(config.ScopeBroker) {
		if !k.Live || k.Status != config.Used {
			continue
		}
		read, once := 0, regexp.MustCompile(`(cfg|[sS]tatic(\(\))?)\.\w+\("`+regexp.QuoteMeta(k.Name)+`"\)`)
		for at, line := range lines {
			if !strings.Contains(line, `"`+k.Name+`"`) {
				continue
			}
			if once.MatchString(line) && !handedOn[k.Name] {
				t.Errorf("%s can be altered while the server runs, and %s reads it once: %s", k.Name, at, strings.TrimSpace(line))
			}
			if regexp.MustCompile(`([lL]ive(\(\))?\.\w+|rate)\("`).MatchString(line) {
				read++
			}
		}
		switch _, known := elsewhere[k.Name]; {
		case known || topics[k.Name]:
		case read == 0:
			t.Errorf("%s can be altered while the server runs, and nobody reads it then", k.Name)
		}
	}
}

// handedOn are read at the start as well, and again with each image that changes them (settings.update).
var handedOn = map[string]bool{"producer.id.expiration.ms": true, "num.recovery.threads.per.data.dir": true}

// sourceLines are the lines of the program, tests and the table of keys left out, by file and line.
func sourceLines(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case err != nil:
			return err
		case e.IsDir() && (slices.Contains([]string{"testdata", "test", "bin"}, name) || strings.HasPrefix(name, ".") && len(name) > 2):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"), strings.HasPrefix(name, "keys_") && filepath.Base(filepath.Dir(p)) == "config":
			return nil
		}
		b, err := os.ReadFile(p)
		n := 0
		for line := range strings.Lines(string(b)) {
			n++
			if strings.Contains(line, `"`) {
				out[p+":"+strconv.Itoa(n)] = line
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A dynamic setting reaches the data directories with the image that has it.
func TestDirectoriesFollowTheSettings(t *testing.T) {
	n, err := start(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	check := func(idle time.Duration, threads int) {
		t.Helper()
		if i, n := n.dirs[0].Tuned(); i != idle || n != threads {
			t.Errorf("producers are forgotten after %v, %d logs are opened at a time; want %v, %d", i, n, idle, threads)
		}
	}
	check(24*time.Hour, 2)
	idle, threads := "60000", "3"
	payload := metadata.AppendCommand(nil, &metadata.Command{
		Session: metadata.Session{Epoch: metadata.NoEpoch},
		Groups: []metadata.Group{{Records: []metadata.Record{
			metadata.ConfigChanged{
				Resource: metadata.Resource{Kind: metadata.ResourceBroker, Name: "1"}, Settings: []metadata.Setting{{Key: "producer.id.expiration.ms", Value: &idle}},
			},
			metadata.ConfigChanged{
				Resource: metadata.Resource{Kind: metadata.ResourceBroker}, Settings: []metadata.Setting{{Key: "num.recovery.threads.per.data.dir", Value: &threads}},
			},
		}}},
	})
	img, _, _, err := metadata.Apply(n.quorum.Image(), nil, metadata.Entry{Index: n.quorum.Image().Index() + 1, Term: 1, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	n.settings.update(img)
	check(time.Minute, 3)
}
