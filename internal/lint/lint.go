// Package lint enforces the rules of the house on the source tree.
//
// The nouns:
//
//   - [Tree] is the source of one module, read once: parsed Go files by package, and all text files.
//   - A rule is a function from a Tree to [Violation] values. The list of rules is [Rules]; what they allow is data beside them
//     (levels.go).
//   - An [Exception] lets one subject of one rule in one file be as large as its limit, with a reason. A limit above what the code needs
//     is itself a violation, so limits only go down.
//
// The package is used by its own tests alone: `go test ./internal/lint` checks the tree that it stands in.
package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Module is the import path of the module.
const Module = "github.com/keeplog/keeplog"

// Violation is one breach of a rule.
type Violation struct {
	Rule string
	File string
	Line int
	// Subject is what breaks the rule within the file: a function, a call, an import.
	Subject string
	// Size is the measured size for rules with a limit, 1 otherwise.
	Size int
	// Detail says what is wrong.
	Detail string
}

// String gives "file:line: rule: detail".
func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", v.File, v.Line, v.Rule, v.Detail)
}

// File is one Go file.
type File struct {
	// Path is slash-separated, from the root of the tree; Dir its directory.
	Path, Dir string
	AST       *ast.File
	Lines     int
	Test      bool
}

// Package holds the Go files of one directory.
type Package struct {
	Dir   string
	Files []*File
}

// Tree is the source of one module.
type Tree struct {
	Fset     *token.FileSet
	Packages []*Package
	// Text holds every text file, Go files included, by path.
	Text map[string]string
	// Tests are the names of all test, fuzz and benchmark functions, those of nested modules included.
	Tests map[string]bool
}

// skipped directories hold no source, or hold data that tests made or read.
var skipped = []string{".git", ".cache", "bin", "node_modules", "keeplog-data", "keeplog-local", "target"}

// maxText is the size above which a file is taken for data.
const maxText = 1 << 20

// Read parses the tree. Directories named testdata are read as text only, and modules within the module for their text and test names.
func Read(root fs.FS) (*Tree, error) {
	t := &Tree{Fset: token.NewFileSet(), Text: map[string]string{}, Tests: map[string]bool{}}
	byDir := map[string]*Package{}
	var nested []string
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains(skipped, d.Name()) {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(p, "go.mod")); err == nil && p != "." {
				nested = append(nested, p+"/")
			}
			return nil
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxText {
			return err
		}
		b, err := fs.ReadFile(root, p)
		if err != nil || !utf8.Valid(b) {
			return err
		}
		t.Text[p] = string(b)
		if !strings.HasSuffix(p, ".go") || strings.Contains("/"+p, "/testdata/") {
			return nil
		}
		inner := slices.ContainsFunc(nested, func(n string) bool { return strings.HasPrefix(p, n) })
		return t.parse(byDir, p, b, inner)
	})
	return t, err
}

func (t *Tree) parse(byDir map[string]*Package, p string, b []byte, inner bool) error {
	f, err := parser.ParseFile(t.Fset, p, b, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
			for _, prefix := range []string{"Test", "Fuzz", "Benchmark"} {
				if strings.HasPrefix(fn.Name.Name, prefix) && strings.HasSuffix(p, "_test.go") {
					t.Tests[fn.Name.Name] = true
				}
			}
		}
	}
	if inner {
		return nil
	}
	dir := path.Dir(p)
	pkg := byDir[dir]
	if pkg == nil {
		pkg = &Package{Dir: dir}
		byDir[dir] = pkg
		t.Packages = append(t.Packages, pkg)
	}
	pkg.Files = append(pkg.Files, &File{
		Path: p, Dir: dir, AST: f, Lines: strings.Count(string(b), "\n"), Test: strings.HasSuffix(p, "_test.go"),
	})
	return nil
}

// line gives the line number of a node.
func (t *Tree) line(n ast.Node) int { return t.Fset.Position(n.Pos()).Line }

// each calls fn with every Go file.
func (t *Tree) each(fn func(*File)) {
	for _, p := range t.Packages {
		for _, f := range p.Files {
			fn(f)
		}
	}
}

// Rules are all rules, in the order of the report.
func Rules() []func(*Tree) []Violation {
	return []func(*Tree) []Violation{
		imports, libraries, packageNames, packageComments, sizes, calls, globals, errorCodes, configKeys, texts, bugs,
	}
}

// Check runs every rule over the tree, lets the exceptions stand, and returns what is left, sorted by place.
func Check(t *Tree, exceptions []Exception) []Violation {
	var all []Violation
	for _, rule := range Rules() {
		all = append(all, rule(t)...)
	}
	all = apply(all, exceptions)
	slices.SortStableFunc(all, func(a, b Violation) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return all
}
