package lint

import (
	"os"
	"testing"
)

// TestHouse checks the tree that this package stands in.
func TestHouse(t *testing.T) {
	tree, err := Read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Packages) < 10 {
		t.Fatalf("only %d packages found", len(tree.Packages))
	}
	exceptions, err := Exceptions()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Check(tree, exceptions) {
		t.Error(v)
	}
}
