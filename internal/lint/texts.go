package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/keeplog/keeplog/config"
)

// errorCodes checks that numbers of Kafka errors are written down in one file and in the commands only.
func errorCodes(t *Tree) []Violation {
	var out []Violation
	t.each(func(f *File) {
		if f.Test || testOnly(f.Dir) || f.Path == "server/api/errors.go" || f.Dir == "peer" || f.Dir == "cmd/keeplog" {
			return
		}
		if f.Dir == "server/api" {
			for _, im := range f.AST.Imports {
				if p := importPath(im); strings.HasSuffix(p, "/kerr") {
					out = append(out, Violation{"codes", f.Path, t.line(im), "kerr", 1, "Kafka's error codes stand in server/api/errors.go"})
				}
			}
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			var name, value ast.Expr
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				name, value = n.Key, n.Value
			case *ast.AssignStmt:
				if len(n.Lhs) == 1 && len(n.Rhs) == 1 {
					name, value = n.Lhs[0], n.Rhs[0]
				}
			}
			if s, ok := name.(*ast.SelectorExpr); ok {
				name = s.Sel
			}
			id, ok := name.(*ast.Ident)
			if ok && strings.HasSuffix(id.Name, "ErrorCode") && nonZero(value) {
				out = append(out, Violation{"codes", f.Path, t.line(n), id.Name, 1, "Kafka's error codes stand in server/api/errors.go"})
			}
			return true
		})
	})
	return out
}

func nonZero(x ast.Expr) bool {
	if u, ok := x.(*ast.UnaryExpr); ok {
		x = u.X
	}
	l, ok := x.(*ast.BasicLit)
	return ok && l.Kind == token.INT && l.Value != "0"
}

// keyed are the methods of config.Broker that take the name of a key.
var keyed = []string{"Bool", "Int", "Int64", "Float", "String", "List", "Duration", "Get", "IsSet"}

var keyName = regexp.MustCompile(`^[a-z0-9]+(\.[a-z0-9]+)+$`)

// configKeys checks that every name of a setting read from the broker's configuration exists.
func configKeys(t *Tree) []Violation {
	var out []Violation
	t.each(func(f *File) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok || len(c.Args) != 1 || f.Test {
				return true
			}
			fn, ok := c.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(keyed, fn.Sel.Name) {
				return true
			}
			l, ok := c.Args[0].(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			key, err := strconv.Unquote(l.Value)
			if err == nil && keyName.MatchString(key) && config.Lookup(config.ScopeBroker, key) == nil {
				out = append(out, Violation{"config", f.Path, t.line(l), key, 1, "no setting of a broker is called " + key})
			}
			return true
		})
	})
	return out
}

// foreign are texts that mean something on one machine only. They are put together here so that this file does not hold them.
func foreign() []string {
	return []string{
		"../" + "shared", "/" + "work/", "/" + "root/", "/" + "home/", "/" + "tmp/bash_jobs", "proxy." + "golang.org", "registry." + "npmjs.org",
		"repo.maven." + "apache.org", "repo1." + "maven.org", "pypi." + "org/simple", "GOPROXY" + "=http", "GONOSUMDB" + "=", "localhost" + ":8081/repository",
	}
}

// texts checks every text file for what means something on one machine only.
func texts(t *Tree) []Violation {
	words := foreign()
	var out []Violation
	for p, text := range t.Text {
		for _, w := range words {
			if !strings.Contains(text, w) {
				continue
			}
			for i, l := range strings.Split(text, "\n") {
				if strings.Contains(l, w) {
					out = append(out, Violation{"text", p, i + 1, w, 1, fmt.Sprintf("%q means something on one machine only", w)})
				}
			}
		}
	}
	return out
}

// bugList is the list of bugs found.
const bugList = "docs/bugs.md"

var testName = regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Za-z0-9_]+|\b[A-Za-z0-9_-]+\.txtar?\b`)

// bugs checks that every row of the list of bugs names a test that exists.
func bugs(t *Tree) []Violation {
	var out []Violation
	scripts := map[string]bool{}
	for p := range t.Text {
		scripts[path.Base(p)] = true
	}
	head := true
	for i, l := range strings.Split(t.Text[bugList], "\n") {
		if !strings.HasPrefix(l, "|") {
			head = true
			continue
		}
		if strings.Trim(l, "|-: ") == "" {
			head = false
			continue
		}
		if head {
			continue
		}
		names := testName.FindAllString(l, -1)
		if len(names) == 0 {
			out = append(out, Violation{"bugs", bugList, i + 1, "row", 1, "the row names no test"})
		}
		for _, n := range names {
			if !t.Tests[n] && !scripts[n] {
				out = append(out, Violation{"bugs", bugList, i + 1, n, 1, "there is no test called " + n})
			}
		}
	}
	return out
}
