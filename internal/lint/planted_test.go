package lint

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// house is a small tree that breaks no rule; the planted files are laid over it.
var house = map[string]string{
	"go.mod":          "module github.com/keeplog/keeplog\n",
	"vfs/vfs.go":      "// Package vfs opens files.\npackage vfs\n\nimport \"os\"\n\nfunc Open(p string) (*os.File, error) { return os.Open(p) }\n",
	"record/a.go":     "// Package record reads batches.\npackage record\n\nvar sizes = map[string]int{\"a\": 1}\n\nfunc Size(s string) int { return sizes[s] }\n",
	"index/a.go":      "// Package index finds positions.\npackage index\n\nimport _ \"github.com/keeplog/keeplog/record\"\n",
	"log/a.go":        "// Package log keeps records.\npackage log\n\nimport \"time\"\n\nfunc Took(f func()) time.Duration {\n\tstart := time.Now()\n\tf()\n\treturn time.Since(start)\n}\n",
	"log/a_test.go":   "package log\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestKeep(t *testing.T) { os.Remove(\"x\") }\n",
	"docs/bugs.md":    "# Bugs\n\n| bug | test |\n|---|---|\n| lost a record | TestKeep |\n",
	"inner/go.mod":    "module inner\n",
	"inner/b_test.go": "package b\n\nimport \"testing\"\n\nfunc TestInner(t *testing.T) {}\n",
}

func check(t *testing.T, planted map[string]string, exceptions ...Exception) []string {
	t.Helper()
	root := fstest.MapFS{}
	for _, files := range []map[string]string{house, planted} {
		for p, text := range files {
			root[p] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	tree, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range Check(tree, exceptions) {
		got = append(got, fmt.Sprintf("%s:%d: %s: %s", v.File, v.Line, v.Rule, v.Subject))
	}
	return got
}

func TestCleanHouse(t *testing.T) {
	if got := check(t, nil); len(got) > 0 {
		t.Errorf("violations in a clean tree:\n%s", strings.Join(got, "\n"))
	}
}

const log = "// Package log keeps records.\npackage log\n\n"

var planted = []struct {
	name, file, text string
	want             []string
}{
	{"import upwards", "record/a.go", "// Package record reads.\npackage record\n\nimport _ \"github.com/keeplog/keeplog/log\"\n", []string{"record/a.go:4: levels: log"}},
	{"import sideways", "vfs/vfs.go", "// Package vfs opens.\npackage vfs\n\nimport _ \"github.com/keeplog/keeplog/record\"\n", []string{"vfs/vfs.go:4: levels: record"}},
	{"import of a test package", "log/a.go", log + "import _ \"github.com/keeplog/keeplog/internal/logtest\"\n", []string{"log/a.go:4: levels: internal/logtest"}},
	{"package without a level", "attic/a.go", "// Package attic holds things.\npackage attic\n", []string{"attic/a.go:1: levels: attic"}},
	{"std log", "log/a.go", log + "import \"log\"\n\nfunc f() { log.Print() }\n", []string{"log/a.go:4: libraries: log"}},
	{"raft outside quorum", "metadata/a.go", "// Package metadata agrees.\npackage metadata\n\nimport _ \"github.com/hashicorp/raft\"\n", []string{"metadata/a.go:4: libraries: github.com/hashicorp/raft"}},
	{"raft in another room's test", "log/b_test.go", "package log\n\nimport _ \"github.com/hashicorp/raft-boltdb/v2\"\n", []string{"log/b_test.go:3: libraries: github.com/hashicorp/raft-boltdb/v2"}},
	{"gommap outside vfs", "index/a.go", "// Package index finds.\npackage index\n\nimport _ \"github.com/tysonmote/gommap\"\n", []string{"index/a.go:4: libraries: github.com/tysonmote/gommap"}},
	{"test library in the product", "log/a.go", log + "import _ \"pgregory.net/rapid\"\n", []string{"log/a.go:4: libraries: pgregory.net/rapid"}},
	{"error codes elsewhere", "log/a.go", log + "import _ \"github.com/twmb/franz-go/pkg/kerr\"\n", []string{"log/a.go:4: libraries: github.com/twmb/franz-go/pkg/kerr"}},
	{"error codes in a handler", "server/api/01_fetch.go", "// Package api answers.\npackage api\n\nimport _ \"github.com/twmb/franz-go/pkg/kerr\"\n", []string{"server/api/01_fetch.go:4: codes: kerr"}},
	{"an error code as a number", "server/api/01_fetch.go", "// Package api answers.\npackage api\n\ntype r struct{ ErrorCode int16 }\n\nfunc f(x *r) {\n\tx.ErrorCode = 0\n\tx.ErrorCode = 56\n\t_ = r{ErrorCode: -1}\n}\n", []string{"server/api/01_fetch.go:8: codes: ErrorCode", "server/api/01_fetch.go:9: codes: ErrorCode"}},
	{"hollow name", "log/a.go", "// Package utils does.\npackage utils\n", []string{"log/a.go:1: names: utils"}},
	{"no package comment", "log/a.go", "package log\n", []string{"log/a.go:1: comment: log"}},
	{"comment without the job", "log/a.go", "// This is the log.\npackage log\n", []string{"log/a.go:1: comment: log"}},
	{"two package comments", "log/b.go", log, []string{"log/b.go:1: comment: log"}},
	{"first sentence too long", "log/a.go", "// Package log " + strings.Repeat("keeps and ", 30) + "ends.\npackage log\n", []string{"log/a.go:1: comment: log"}},
	{"long file", "log/a.go", log + strings.Repeat("//\n", 800), []string{"log/a.go:803: file: lines"}},
	{"long function", "log/a.go", log + "func f() {\n" + strings.Repeat("\t_ = 1\n", 69) + "}\n", []string{"log/a.go:4: function: f"}},
	{"function at the limit", "log/a.go", log + "func f() {\n" + strings.Repeat("\t_ = 1\n", 68) + "}\n", nil},
	{"wide struct", "log/a.go", log + "type wide struct {\n\ta, b, c, d, e, f, g, h, i, j int\n\tk, l, m, n, o, p, q, r, s, t int\n\tu int\n}\n", []string{"log/a.go:4: struct: wide"}},
	{"five parameters", "log/a.go", log + "type x[T any] struct{}\n\nfunc (x[T]) f(a, b int, c, d, e string) {}\n", []string{"log/a.go:6: parameters: x.f"}},
	{"five parameters in an interface", "log/a.go", log + "type x interface {\n\tf(a, b, c, d, e int)\n}\n", []string{"log/a.go:5: parameters: x.f"}},
	{"file call", "log/a.go", log + "import \"os\"\n\nfunc f() { os.Remove(\"x\") }\n", []string{"log/a.go:6: call: os.Remove"}},
	{"file call under another name", "log/a.go", log + "import sys \"os\"\n\nvar open = sys.OpenFile\n", []string{"log/a.go:6: call: os.OpenFile"}},
	{"a local that is called os", "log/a.go", log + "import \"os\"\n\nvar _ = os.Args\n\ntype t struct{ Remove int }\n\nfunc f(os t) int { return os.Remove }\n", nil},
	{"system call", "log/a.go", log + "import \"golang.org/x/sys/unix\"\n\nfunc f() { unix.Fsync(1) }\n", []string{"log/a.go:6: call: unix.Fsync"}},
	{"wall time", "log/a.go", log + "import \"time\"\n\nfunc f() int64 { return time.Now().UnixMilli() }\n", []string{"log/a.go:6: call: time.Now"}},
	{"the clock as a value", "log/a.go", log + "import \"time\"\n\nvar now = time.Now\n", []string{"log/a.go:6: call: time.Now"}},
	{"clock in a pure room", "record/a.go", "// Package record reads.\npackage record\n\nimport \"time\"\n\nfunc f() { time.Now() }\n", []string{"record/a.go:6: call: time.Now"}},
	{"timer in a pure room", "record/a.go", "// Package record reads.\npackage record\n\nimport \"time\"\n\nfunc f() { <-time.After(1) }\n", []string{"record/a.go:6: call: time.After"}},
	{"sleep", "log/a.go", log + "import \"time\"\n\nfunc f() { time.Sleep(1) }\n", []string{"log/a.go:6: call: time.Sleep"}},
	{"sleep in a test", "log/a_test.go", "package log\n\nimport (\n\t\"testing\"\n\t\"time\"\n)\n\nfunc TestKeep(t *testing.T) { time.Sleep(1) }\n", []string{"log/a_test.go:8: call: time.Sleep"}},
	{"sleep in virtual time", "log/a_test.go", "package log\n\nimport (\n\t\"testing\"\n\t\"testing/synctest\"\n\t\"time\"\n)\n\nfunc TestKeep(t *testing.T) { synctest.Test(t, func(*testing.T) { time.Sleep(1) }) }\n", nil},
	{"global random", "log/a.go", log + "import \"math/rand/v2\"\n\nfunc f() int { return rand.IntN(3) + rand.New(nil).IntN(3) }\n", []string{"log/a.go:6: call: rand.IntN"}},
	{"print", "log/a.go", log + "import \"fmt\"\n\nfunc f() { fmt.Println() }\n", []string{"log/a.go:6: call: fmt.Println"}},
	{"package-level state", "log/a.go", log + "var (\n\tpool sync.Pool\n\tch = make(chan int)\n\tenc, _ = zstd.NewWriter(nil)\n\ttick = time.NewTicker(1)\n\tmu = &sync.Mutex{}\n\tn atomic.Int64\n)\n", []string{
		"log/a.go:5: global: pool", "log/a.go:6: global: ch", "log/a.go:7: global: enc", "log/a.go:8: global: tick", "log/a.go:9: global: mu", "log/a.go:10: global: n",
	}},
	{"written map", "record/a.go", "// Package record reads.\npackage record\n\nvar sizes = map[string]int{}\n\nfunc f() {\n\tsizes[\"a\"] = 1\n\tdelete(sizes, \"a\")\n}\n\nfunc g() {\n\tvar sizes map[string]int\n\tsizes[\"a\"] = 2\n}\n", []string{"record/a.go:7: global: sizes", "record/a.go:8: global: sizes"}},
	{"written from another file", "record/b.go", "package record\n\nfunc h() { sizes = nil }\n", []string{"record/b.go:3: global: sizes"}},
	{"unknown setting", "log/a.go", log + "func f(b interface{ Int(string) int }) int { return b.Int(\"num.partitions\") + b.Int(\"num.partition\") }\n", []string{"log/a.go:4: config: num.partition"}},
	{"machine path", "README.md", "one\n" + "see " + foreign()[0] + "/x\n", []string{"README.md:2: text: " + foreign()[0]}},
	{"registry in a lock file", "test/interop/package-lock.json", "{\"resolved\": \"https://" + foreign()[6] + "/x\"}\n", []string{"test/interop/package-lock.json:1: text: " + foreign()[6]}},
	{"bug without a test", "docs/bugs.md", "| bug | test |\n|---|---|\n| a | none |\n| b | TestGone |\n| c | `TestInner` |\n", []string{"docs/bugs.md:3: bugs: row", "docs/bugs.md:4: bugs: TestGone"}},
}

func TestPlanted(t *testing.T) {
	for _, c := range planted {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, check(t, map[string]string{c.file: c.text})); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExceptions(t *testing.T) {
	files := map[string]string{"log/a.go": log + "func f() {\n" + strings.Repeat("\t_ = 1\n", 70) + "}\n"}
	exception := func(limit int) Exception {
		return Exception{Rule: "function", File: "log/a.go", Subject: "f", Limit: limit, Reason: "one long table", line: 7}
	}
	for _, c := range []struct {
		name  string
		limit int
		want  []string
	}{
		{"exact", 72, nil},
		{"grown", 71, []string{"log/a.go:4: function: f"}},
		{"loose", 73, []string{"internal/lint/exceptions.tsv:7: exceptions: f"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, check(t, files, exception(c.limit))); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("unused", func(t *testing.T) {
		want := []string{"internal/lint/exceptions.tsv:7: exceptions: f"}
		if diff := cmp.Diff(want, check(t, nil, exception(80))); diff != "" {
			t.Errorf("violations (-want +got):\n%s", diff)
		}
	})
}

func TestExceptionTable(t *testing.T) {
	for _, bad := range []string{"function\ta.go\tf\t9", "function\ta.go\tf\tx\ta good reason", "function\ta.go\tf\t0\ta good reason", "function\ta.go\tf\t9\tshort"} {
		if _, err := parseExceptions(bad); err == nil {
			t.Errorf("%q is taken for an exception", bad)
		}
	}
	got, err := parseExceptions("# head\n\nfunction\ta.go\tf\t9\ta good reason\n")
	if err != nil || len(got) != 1 || got[0].Limit != 9 || got[0].line != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}
