package metadata

import (
	"errors"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestMembers: the first voters are members; a directory that was removed never comes back, its id may, with another one.
func TestMembers(t *testing.T) {
	img := apply(t, New(), 1, ClusterStarted{ClusterID: "c", Voters: []Voter{{1, DirectoryID{1}}, {2, DirectoryID{2}}}})
	if b := snapshotBytes(t, img); b[len(snapshotMagic)] != 1 {
		t.Error("an image without members of its own is no version 1")
	}
	at := uint64(1)
	change := func(want error, m MemberChanged) {
		t.Helper()
		at++
		next, _, out, err := Apply(img, nil, Entry{Index: at, Term: 1, Payload: payload(t, m)})
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Results[0][0].Err(); !errors.Is(got, want) {
			t.Errorf("%+v: %v, want %v", m, got, want)
		}
		img = next
	}
	where := Endpoint{Name: "C", Host: "h", Port: 9}
	change(nil, MemberChanged{ID: 2, Directory: DirectoryID{2}, Voter: true, Controller: where})
	change(ErrNoMember, MemberChanged{ID: 2, Directory: DirectoryID{22}, Voter: true})
	change(nil, MemberChanged{ID: 3, Directory: DirectoryID{3}})
	change(ErrInvalidRecord, MemberChanged{ID: 4})
	change(ErrNoMember, MemberChanged{ID: 4, Directory: DirectoryID{4}, Removed: true})
	change(ErrNoMember, MemberChanged{ID: 1, Directory: DirectoryID{11}, Removed: true})
	change(nil, MemberChanged{ID: 1, Directory: DirectoryID{1}, Removed: true})
	change(ErrNoMember, MemberChanged{ID: 1, Directory: DirectoryID{1}})
	want := []Member{{ID: 2, Directory: DirectoryID{2}, Voter: true, Controller: where}, {ID: 3, Directory: DirectoryID{3}}}
	if d := gocmp.Diff(want, img.Members()); d != "" {
		t.Error(d)
	}
	if d := gocmp.Diff([]Member{{ID: 1, Directory: DirectoryID{1}, Removed: true}}, img.RemovedMembers()); d != "" {
		t.Error(d)
	}
	change(nil, MemberChanged{ID: 1, Directory: DirectoryID{11}})
	if m, ok := img.Member(1); !ok || m.Removed || m.Directory != (DirectoryID{11}) {
		t.Error(m, ok)
	}
}

// TestChainCheckpoint changes nothing but the chain, and is told to the caller.
func TestChainCheckpoint(t *testing.T) {
	img := apply(t, New(), 1, FeatureLevel{Name: "f", Level: 1})
	c := ChainCheckpoint{Index: 1, Hash: img.Chain()}
	next, delta, out, err := Apply(img, nil, Entry{Index: 2, Term: 1, Payload: payload(t, c)})
	if err != nil || !delta.Empty() || next.Chain() == img.Chain() {
		t.Error(err, delta)
	}
	if d := gocmp.Diff([]ChainCheckpoint{c}, out.Checkpoints); d != "" {
		t.Error(d)
	}
}
