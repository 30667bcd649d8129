package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// globals checks that no package keeps state: nothing at package level is written after its declaration, or can hold what one user left
// for the next.
func globals(t *Tree) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		vars := map[string]bool{}
		for _, f := range p.Files {
			if !f.Test {
				out = append(out, t.declared(f, vars)...)
			}
		}
		for _, f := range p.Files {
			if !f.Test {
				out = append(out, t.written(f, vars)...)
			}
		}
	}
	return out
}

// declared collects the package's variables and reports those whose type alone gives them away.
func (t *Tree) declared(f *File, vars map[string]bool) []Violation {
	var out []Violation
	for _, d := range f.AST.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			what := stateful(v)
			for _, id := range v.Names {
				if id.Name == "_" {
					continue
				}
				vars[id.Name] = true
				if what != "" {
					out = append(out, Violation{"global", f.Path, t.line(id), id.Name, 1, fmt.Sprintf("%s is a package-level %s, hang it off an object", id.Name, what)})
				}
			}
		}
	}
	return out
}

// stateful names the kind of state that a variable holds by its declared type or first value; empty when none shows.
func stateful(v *ast.ValueSpec) string {
	if k := statefulType(v.Type); k != "" {
		return k
	}
	for _, x := range v.Values {
		if u, ok := x.(*ast.UnaryExpr); ok {
			x = u.X
		}
		switch x := x.(type) {
		case *ast.CompositeLit:
			if k := statefulType(x.Type); k != "" {
				return k
			}
		case *ast.CallExpr:
			if k := statefulCall(x); k != "" {
				return k
			}
		}
	}
	return ""
}

func statefulType(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return statefulType(x.X)
	case *ast.ChanType:
		return "channel"
	case *ast.IndexExpr:
		return statefulType(x.X)
	case *ast.SelectorExpr:
		id, ok := x.X.(*ast.Ident)
		if !ok {
			return ""
		}
		switch id.Name + "." + x.Sel.Name {
		case "sync.Pool":
			return "pool"
		case "sync.Mutex", "sync.RWMutex", "sync.Cond", "sync.Map", "sync.WaitGroup", "sync.Once":
			return "lock"
		case "time.Timer", "time.Ticker":
			return "timer"
		case "zstd.Encoder", "zstd.Decoder", "gzip.Writer", "gzip.Reader", "lz4.Writer", "lz4.Reader", "lz4.Compressor", "lz4.CompressorHC":
			return "codec"
		}
		if id.Name == "atomic" {
			return "counter"
		}
	}
	return ""
}

func statefulCall(c *ast.CallExpr) string {
	switch fn := c.Fun.(type) {
	case *ast.Ident:
		if fn.Name == "make" && len(c.Args) > 0 {
			if _, ok := c.Args[0].(*ast.ChanType); ok {
				return "channel"
			}
		}
		if fn.Name == "new" && len(c.Args) == 1 {
			return statefulType(c.Args[0])
		}
	case *ast.SelectorExpr:
		id, ok := fn.X.(*ast.Ident)
		if !ok {
			return ""
		}
		if slices.Contains([]string{"zstd", "gzip", "lz4", "snappy", "flate", "zlib", "s2"}, id.Name) && strings.HasPrefix(fn.Sel.Name, "New") {
			return "codec"
		}
		if id.Name == "time" && strings.HasPrefix(fn.Sel.Name, "New") {
			return "timer"
		}
		if id.Name == "rand" && strings.HasPrefix(fn.Sel.Name, "New") {
			return "random generator"
		}
	}
	return ""
}

// written reports every write, within a function, to a variable of the package or to an element of one.
func (t *Tree) written(f *File, vars map[string]bool) []Violation {
	var out []Violation
	report := func(x ast.Expr) {
		id := root(x)
		if id == nil || !vars[id.Name] || local(f.AST, id) {
			return
		}
		out = append(out, Violation{"global", f.Path, t.line(x), id.Name, 1, fmt.Sprintf("%s is package-level and written to", id.Name)})
	}
	for _, d := range f.AST.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					return true
				}
				for _, x := range n.Lhs {
					report(x)
				}
			case *ast.IncDecStmt:
				report(n.X)
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (id.Name == "delete" || id.Name == "clear" || id.Name == "copy") {
					report(n.Args[0])
				}
			}
			return true
		})
	}
	return out
}

// root finds the variable that an expression starts from.
func root(x ast.Expr) *ast.Ident {
	for {
		switch e := x.(type) {
		case *ast.Ident:
			return e
		case *ast.IndexExpr:
			x = e.X
		case *ast.SelectorExpr:
			x = e.X
		case *ast.StarExpr:
			x = e.X
		case *ast.ParenExpr:
			x = e.X
		case *ast.SliceExpr:
			x = e.X
		default:
			return nil
		}
	}
}

// local is true when the parser found the name declared within a function. Names declared in other files of the package are unresolved.
func local(f *ast.File, id *ast.Ident) bool {
	return id.Obj != nil && f.Scope.Lookup(id.Name) != id.Obj
}
