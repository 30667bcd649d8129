package lint

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// imports checks that imports point down, and that every package stands in the table of levels.
func imports(t *Tree) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		level, known := levels[p.Dir]
		if !known && !testOnly(p.Dir) && p.Dir != "." {
			f := p.Files[0]
			out = append(out, Violation{"levels", f.Path, 1, p.Dir, 1, fmt.Sprintf("package %s has no level in internal/lint/levels.go", p.Dir)})
			continue
		}
		for _, f := range p.Files {
			if f.Test || testOnly(p.Dir) {
				continue
			}
			for _, im := range f.AST.Imports {
				to, ok := strings.CutPrefix(importPath(im), Module+"/")
				if !ok {
					continue
				}
				v := Violation{Rule: "levels", File: f.Path, Line: t.line(im), Subject: to, Size: 1}
				target, known := levels[to]
				switch {
				case testOnly(to):
					v.Detail = fmt.Sprintf("%s is for tests, %s is not one", to, p.Dir)
				case known && target >= level:
					v.Detail = fmt.Sprintf("%s (level %d) imports %s (level %d); imports point down", p.Dir, level, to, target)
				default:
					continue
				}
				out = append(out, v)
			}
		}
	}
	return out
}

func importPath(im *ast.ImportSpec) string {
	s, _ := strconv.Unquote(im.Path.Value)
	return s
}

// libraries checks who imports what from outside the module.
func libraries(t *Tree) []Violation {
	var out []Violation
	t.each(func(f *File) {
		for _, im := range f.AST.Imports {
			name := importPath(im)
			v := Violation{Rule: "libraries", File: f.Path, Line: t.line(im), Subject: name, Size: 1}
			if why, ok := banned[name]; ok {
				v.Detail = fmt.Sprintf("import of %s: %s", name, why)
				out = append(out, v)
				continue
			}
			dirs, ok := owned[name]
			if !ok || slices.Contains(dirs, f.Dir) {
				continue
			}
			// Raft and the memory map stay in their rooms in tests too.
			strict := name == "github.com/tysonmote/gommap" || strings.HasPrefix(name, "github.com/hashicorp/raft")
			if (f.Test || testOnly(f.Dir)) && !strict {
				continue
			}
			where := "tests"
			if len(dirs) > 0 {
				where = strings.Join(dirs, ", ")
			}
			v.Detail = fmt.Sprintf("import of %s, which belongs to %s", name, where)
			out = append(out, v)
		}
	})
	return out
}

// hollow are package names that say nothing.
var hollow = []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "shared", "base"}

func packageNames(t *Tree) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		name := strings.TrimSuffix(p.Files[0].AST.Name.Name, "_test")
		if slices.Contains(hollow, name) {
			out = append(out, Violation{"names", p.Files[0].Path, 1, name, 1, "a package called " + name + " says nothing of its job"})
		}
	}
	return out
}

// packageComments checks that each package says its job in one sentence first.
func packageComments(t *Tree) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		var docs []*File
		for _, f := range p.Files {
			if f.AST.Doc != nil && !f.Test {
				docs = append(docs, f)
			}
		}
		first := p.Files[0]
		v := Violation{Rule: "comment", File: first.Path, Line: 1, Subject: p.Dir, Size: 1}
		onlyTests := !slices.ContainsFunc(p.Files, func(f *File) bool { return !f.Test })
		switch {
		case onlyTests:
			continue
		case len(docs) == 0:
			v.Detail = fmt.Sprintf("package %s has no package comment", p.Dir)
		case len(docs) > 1:
			v.File = docs[1].Path
			v.Detail = fmt.Sprintf("package %s has a second package comment, the first is in %s", p.Dir, docs[0].Path)
		default:
			v.File = docs[0].Path
			v.Detail = faultOfComment(docs[0].AST)
		}
		if v.Detail != "" {
			out = append(out, v)
		}
	}
	return out
}

// maxSentence bounds the first sentence of a package comment, in characters.
const maxSentence = 250

func faultOfComment(f *ast.File) string {
	text := strings.Join(strings.Fields(f.Doc.Text()), " ")
	want := "Package " + f.Name.Name + " "
	if f.Name.Name == "main" {
		want = "Command "
	}
	sentence, _, ended := strings.Cut(text+" ", ". ")
	switch {
	case !strings.HasPrefix(text, want):
		return fmt.Sprintf("the package comment does not begin with %q", strings.TrimSpace(want))
	case !ended || len(sentence) > maxSentence:
		return fmt.Sprintf("the first sentence of the package comment is not one sentence of at most %d characters", maxSentence)
	}
	return ""
}
