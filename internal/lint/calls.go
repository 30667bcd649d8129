package lint

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// fileCalls are the functions that touch files, by import path.
var fileCalls = map[string][]string{
	"os": {
		"Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "DirFS", "Lchown", "Link", "Lstat", "Mkdir", "MkdirAll",
		"MkdirTemp", "Open", "OpenFile", "OpenInRoot", "OpenRoot", "ReadDir", "ReadFile", "Readlink", "Remove", "RemoveAll", "Rename",
		"Stat", "Symlink", "Truncate", "WriteFile",
	},
	"path/filepath":         {"EvalSymlinks", "Glob", "Walk", "WalkDir"},
	"syscall":               systemCalls,
	"golang.org/x/sys/unix": systemCalls,
}

var systemCalls = []string{
	"Creat", "Fallocate", "Fdatasync", "Flock", "Fsync", "Ftruncate", "Link", "Mkdir", "Mmap", "Munmap", "Open", "Openat", "Pread",
	"Pwrite", "Pwritev", "Preadv", "Rename", "Renameat", "Renameat2", "Rmdir", "Stat", "Statfs", "SyncFileRange", "Truncate", "Unlink",
	"Unlinkat", "Fadvise",
}

// wallMethods turn a time into what a clock on the wall shows.
var wallMethods = []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "Format", "AppendFormat", "String", "UTC", "Date", "Year"}

// calls checks the functions that only some rooms may call.
func calls(t *Tree) []Violation {
	var out []Violation
	t.each(func(f *File) {
		names := localNames(f.AST)
		bubble := slices.Contains(mapValues(names), "testing/synctest")
		chained := map[ast.Expr]bool{}
		called := map[ast.Expr]bool{}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				called[n.Fun] = true
				if s, ok := n.Fun.(*ast.SelectorExpr); ok {
					if c, ok := s.X.(*ast.CallExpr); ok && slices.Contains(wallMethods, s.Sel.Name) {
						chained[c.Fun] = true
					}
				}
			case *ast.SelectorExpr:
				id, ok := n.X.(*ast.Ident)
				if !ok || names[id.Name] == "" || local(f.AST, id) {
					return true
				}
				use := use{file: f, pkg: names[id.Name], name: n.Sel.Name, called: called[n], wall: chained[n], bubble: bubble}
				if why := use.fault(); why != "" {
					subject := path.Base(use.pkg) + "." + use.name
					if strings.HasPrefix(use.pkg, "math/rand") {
						subject = "rand." + use.name
					}
					out = append(out, Violation{"call", f.Path, t.line(n), subject, 1, fmt.Sprintf("%s: %s", subject, why)})
				}
			}
			return true
		})
	})
	return out
}

// localNames maps the names that a file gives to its imports to their paths.
func localNames(f *ast.File) map[string]string {
	m := map[string]string{}
	for _, im := range f.Imports {
		p := importPath(im)
		name := path.Base(p)
		if strings.HasPrefix(name, "v") && strings.Trim(name[1:], "0123456789") == "" && len(name) > 1 {
			name = path.Base(path.Dir(p))
		}
		if im.Name != nil {
			name = im.Name.Name
		}
		m[name] = p
	}
	return m
}

func mapValues(m map[string]string) []string {
	var vs []string
	for _, v := range m {
		vs = append(vs, v)
	}
	return vs
}

// use is one mention of a function of another package.
type use struct {
	file      *File
	pkg, name string
	// called is false where the function is passed as a value; wall is true where the result is turned into wall time at once; bubble
	// where the file runs in virtual time.
	called, wall, bubble bool
}

// fault says why the use is not allowed; empty when it is.
func (u use) fault() string {
	test := u.file.Test || testOnly(u.file.Dir)
	switch u.pkg {
	case "time":
		return u.clock(test)
	case "math/rand", "math/rand/v2":
		if test && slices.Contains([]string{"Uint64", "Int64", "Int63"}, u.name) {
			return "" // the choice of a seed
		}
		if !strings.HasPrefix(u.name, "New") && !slices.Contains([]string{"Rand", "Source", "Source64", "Zipf", "PCG", "ChaCha8"}, u.name) {
			return "global random numbers cannot be repeated, use a seeded generator"
		}
	case "fmt":
		if strings.HasPrefix(u.name, "Print") && !test && u.file.Dir != "cmd/keeplog" {
			return "only commands write to the standard output"
		}
	}
	if !test && slices.Contains(fileCalls[u.pkg], u.name) && !slices.Contains(fileUsers, u.file.Dir) {
		return "files are reached through vfs"
	}
	return ""
}

func (u use) clock(test bool) string {
	edge := slices.Contains(edges, u.file.Dir)
	switch u.name {
	case "Sleep":
		if test && !u.bubble {
			return "a test waits for a condition, or sleeps in virtual time (testing/synctest)"
		}
		if !test && !edge {
			return "nothing sleeps for luck: wait for a timer, a condition or a context"
		}
	case "Now":
		switch {
		case test || edge:
		case pure[u.file.Dir]:
			return "a pure room reads no clock, the time is an argument"
		case !u.called:
			return "the clock is passed in by the edges (cmd, internal/node, server)"
		case u.wall:
			return "wall time is an argument; only elapsed time may be measured here"
		}
	case "Since", "Until", "NewTimer", "NewTicker", "After", "AfterFunc", "Tick":
		if !test && pure[u.file.Dir] {
			return "a pure room reads no clock, the time is an argument"
		}
	}
	return ""
}
