package lint

import (
	"fmt"
	"go/ast"
)

// sizes checks files, functions, structs and parameter lists against their limits.
func sizes(t *Tree) []Violation {
	var out []Violation
	t.each(func(f *File) {
		if f.Lines > maxFileLines {
			out = append(out, Violation{"file", f.Path, f.Lines, "lines", f.Lines, fmt.Sprintf("%d lines, the limit is %d", f.Lines, maxFileLines)})
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				out = append(out, t.function(f, n)...)
			case *ast.TypeSpec:
				out = append(out, t.typeSpec(f, n)...)
			}
			return true
		})
	})
	return out
}

func (t *Tree) function(f *File, n *ast.FuncDecl) []Violation {
	var out []Violation
	limit := maxFuncLines
	if f.Test {
		limit = maxTestFuncLines
	}
	name := functionName(n)
	lines := t.Fset.Position(n.End()).Line - t.line(n) + 1
	if lines > limit {
		out = append(out, Violation{"function", f.Path, t.line(n), name, lines, fmt.Sprintf("%s has %d lines, the limit is %d", name, lines, limit)})
	}
	if v, ok := t.params(f, name, n.Type); ok {
		out = append(out, v)
	}
	return out
}

func functionName(n *ast.FuncDecl) string {
	if n.Recv == nil || len(n.Recv.List) == 0 {
		return n.Name.Name
	}
	r := n.Recv.List[0].Type
	for {
		switch x := r.(type) {
		case *ast.StarExpr:
			r = x.X
		case *ast.IndexExpr:
			r = x.X
		case *ast.IndexListExpr:
			r = x.X
		case *ast.Ident:
			return x.Name + "." + n.Name.Name
		default:
			return n.Name.Name
		}
	}
}

func (t *Tree) params(f *File, name string, fn *ast.FuncType) (Violation, bool) {
	n := fields(fn.Params)
	if n <= maxParams {
		return Violation{}, false
	}
	return Violation{"parameters", f.Path, t.line(fn), name, n, fmt.Sprintf("%s has %d parameters, the limit is %d", name, n, maxParams)}, true
}

// fields counts the names of a field list; an unnamed one counts as one.
func fields(l *ast.FieldList) int {
	if l == nil {
		return 0
	}
	n := 0
	for _, f := range l.List {
		n += max(1, len(f.Names))
	}
	return n
}

func (t *Tree) typeSpec(f *File, n *ast.TypeSpec) []Violation {
	var out []Violation
	switch x := n.Type.(type) {
	case *ast.StructType:
		if c := fields(x.Fields); c > maxFields {
			out = append(out, Violation{"struct", f.Path, t.line(n), n.Name.Name, c, fmt.Sprintf("struct %s has %d fields, the limit is %d", n.Name.Name, c, maxFields)})
		}
	case *ast.InterfaceType:
		for _, m := range x.Methods.List {
			fn, ok := m.Type.(*ast.FuncType)
			if !ok || len(m.Names) == 0 {
				continue
			}
			if v, ok := t.params(f, n.Name.Name+"."+m.Names[0].Name, fn); ok {
				out = append(out, v)
			}
		}
	}
	return out
}
