package quorum

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/keeplog/keeplog/metadata"
)

// said makes a hello of a node that lists the given ids.
func said(id int, listed ...int) *hello {
	h := &hello{who: identity{metadata.BrokerID(id), directory(id)}, empty: true, leader: -1}
	for _, l := range listed {
		h.listed = append(h.listed, listedVoter{metadata.BrokerID(l), memAddress(l)})
	}
	return h
}

// inCluster makes it that of a member of a cluster of the given ids, led by leader.
func (h *hello) inCluster(leader int, ids ...int) *hello {
	h.empty, h.begun, h.leader, h.cluster = false, true, metadata.BrokerID(leader), testCluster
	for _, id := range ids {
		h.members = append(h.members, metadata.Member{ID: metadata.BrokerID(id), Directory: directory(id), Voter: true, Controller: metadata.Endpoint{Host: host(id), Port: 9093}})
	}
	return h
}

func (h *hello) with(f func(h *hello)) *hello {
	f(h)
	return h
}

// TestCourse: what a node does next, by what the others say.
func TestCourse(t *testing.T) {
	full := []int{1, 2, 3}
	wiped := func(h *hello) { h.who.directory[2]++ }
	removed := func(id int) func(h *hello) {
		return func(h *hello) {
			i := slices.IndexFunc(h.members, func(m metadata.Member) bool { return m.ID == metadata.BrokerID(id) })
			h.members[i].Removed = true
		}
	}
	tests := []struct {
		name    string
		self    *hello
		answers []*hello
		do      action
		want    error
		text    string
	}{
		{"nobody answers", said(1, full...), nil, actWait, nil, "an answer from 2@n2:9093, 3@n3:9093"},
		{"one is missing", said(1, full...), []*hello{said(2, full...)}, actWait, nil, "an answer from 3@n3:9093"},
		{"the lowest has every answer", said(1, full...), []*hello{said(3, full...), said(2, full...)}, actBegin, nil, ""},
		{"a higher one has every answer", said(2, full...), []*hello{said(1, full...), said(3, full...)}, actWait, nil, "node 1, the lowest listed"},
		{"alone in the list", said(7, 7), nil, actBegin, nil, ""},
		{"a shorter list", said(1, full...), []*hello{said(2, full...), said(3, 1, 3)}, actRefuse, ErrVoters, "node 3 lists 1@n1:9093,3@n3:9093"},
		{"another address in the list", said(1, full...), []*hello{said(2, full...).with(func(h *hello) { h.listed[2].address = "x:1" })}, actRefuse, ErrVoters, "3@x:1"},
		{"one is not empty", said(1, full...), []*hello{said(2, full...), said(3, full...).with(func(h *hello) { h.empty = false })}, actWait, nil, "not empty and in no cluster"},
		{"this one is not empty", said(1, full...).with(func(h *hello) { h.empty = false }), []*hello{said(2, full...), said(3, full...)}, actWait, nil, "not empty"},
		{"begun with this one", said(2, full...), []*hello{said(1, full...).inCluster(-1, full...), said(3, full...)}, actFollow, nil, ""},
		{"a member itself", said(2, full...).inCluster(-1, full...), nil, actFollow, nil, ""},
		{"wiped", said(1, full...).with(wiped), []*hello{said(2, full...).inCluster(3, full...)}, actRefuse, ErrForeign, "keeplog cluster remove 1"},
		{"wiped, and one that does not know better", said(1, full...).with(wiped), []*hello{said(2, full...).inCluster(-1, full...)}, actWait, nil, "a leader"},
		{"wiped, and two say so", said(1, full...).with(wiped), []*hello{said(2, full...).inCluster(-1, full...), said(3, full...).inCluster(3, full...)}, actRefuse, ErrForeign, "keeplog.lost.directories="},
		{"removed", said(3, full...), []*hello{said(1, full...).inCluster(1, full...).with(removed(3))}, actRefuse, ErrRemoved, "keeplog serve --join HOST:PORT --data-dir DIR"},
		{"removed, wiped, back", said(3, full...).with(wiped), []*hello{said(1, full...).inCluster(1, full...).with(removed(3))}, actJoin, nil, ""},
		{"joins by its leader", said(4), []*hello{said(1, full...).inCluster(2, full...)}, actJoin, nil, ""},
		{"nobody to join", said(4), []*hello{said(1, full...)}, actWait, nil, "a node that belongs to a cluster"},
		{"grows by its list", said(2, full...), []*hello{said(1, full...).inCluster(1, 1), said(3, full...)}, actJoin, nil, ""},
		{"a cluster with another list", said(2, full...), []*hello{said(1).inCluster(1, 1), said(3, full...)}, actRefuse, ErrVoters, "--join"},
	}
	for _, x := range tests {
		got := decide(x.self, x.answers)
		text := got.wait
		if got.refuse != nil {
			text = got.refuse.Error()
		}
		if got.do != x.do || !errors.Is(got.refuse, x.want) || !strings.Contains(text, x.text) {
			t.Errorf("%s: %+v", x.name, got)
		}
		if got.do == actBegin && len(got.begin) != len(x.self.listed) {
			t.Errorf("%s: begins with %v", x.name, got.begin)
		}
	}
	c := decide(said(4), []*hello{said(1, full...).inCluster(2, full...)})
	if c.via != (identity{2, directory(2)}) || endpointAddress(c.join) != memAddress(2) {
		t.Errorf("joins via %v at %v", c.via, c.join)
	}
}

// TestWire: messages come back as they went, and no damage is believed.
func TestWire(t *testing.T) {
	h := said(2, 1, 2, 3).inCluster(3, 1, 2, 3).with(func(h *hello) {
		h.internal, h.controller = metadata.Endpoint{Name: "R", Host: "h", Port: 65535, Protocol: 3}, metadata.Endpoint{Name: "C", Host: "g", Port: 1}
		h.leading, h.term, h.applied, h.verify = true, 1<<40, 77, true
		h.about, h.linked, h.link = 76, true, [32]byte{5, 31: 6}
		h.members[1].Removed = true
	})
	got, err := readHello(h.append(nil))
	if err != nil || gocmp.Diff(h, got, gocmp.AllowUnexported(hello{}, identity{}, listedVoter{})) != "" {
		t.Error(err, got)
	}
	a := joinAnswer{status: joinElsewhere, leader: 3, controller: h.controller, text: "text"}
	if got, err := readJoinAnswer(a.append(nil)); err != nil || got != a {
		t.Error(err, got)
	}
	p := preamble{kind: callHello, cluster: testCluster, from: h.who, to: anyone}
	if got, err := readPreamble(bytes.NewReader(p.append(nil))); err != nil || got != p {
		t.Error(err, got)
	}
	if i, err := parseAddress(h.who.address()); err != nil || i != h.who {
		t.Error(i, err)
	}
	if i, err := parseAddress("7"); err != nil || i != (identity{id: 7}) {
		t.Error(i, err)
	}
	damage := func(name string, b []byte, read func(r io.Reader) error) {
		for i := range b {
			bad := slices.Clone(b)
			bad[i] ^= 0x10
			if read(bytes.NewReader(bad)) == nil {
				t.Errorf("%s: byte %d of %d flipped", name, i, len(b))
			}
			if read(bytes.NewReader(b[:i])) == nil {
				t.Errorf("%s: cut at %d of %d", name, i, len(b))
			}
		}
	}
	damage("preamble", p.append(nil), func(r io.Reader) error { _, err := readPreamble(r); return err })
	damage("frame", frame(h.append(nil)), func(r io.Reader) error { _, err := readFrame(r); return err })
}

func FuzzReadHello(f *testing.F) {
	f.Add(said(2, 1, 2, 3).inCluster(3, 1, 2, 3).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(b)
		if err != nil {
			return
		}
		again, err := readHello(h.append(nil))
		if err != nil || gocmp.Diff(h, again, gocmp.AllowUnexported(hello{}, identity{}, listedVoter{})) != "" {
			t.Error(err)
		}
	})
}

// TestPromotion: votes go to those who have the whole log, towards an odd number of voters.
func TestPromotion(t *testing.T) {
	// A word has a letter for each member: V votes, n has the whole log, b is behind.
	for word, want := range map[string]int{
		"V": 0, "Vn": 0, "Vnn": 2, "VVn": 3, "VVnn": 3, "VVb": 0, "VVbn": 4, "VVV": 0, "VVVn": 0, "VVVnn": 4, "VVVVn": 5, "VVVVVnn": 0,
		"VnVVn": 2, "nV": 0, "Vbn": 0,
	} {
		var all []MemberStatus
		for i, c := range word {
			all = append(all, MemberStatus{ID: metadata.BrokerID(i + 1), Voter: c == 'V', Contact: 0, CaughtUp: map[bool]time.Duration{true: 0, false: -1}[c != 'b']})
		}
		id, ok := promotion(all, func(m MemberStatus) bool { return m.CaughtUp == 0 })
		if ok != (want > 0) || ok && int(id) != want {
			t.Errorf("%s: %d %v, want %d", word, id, ok, want)
		}
	}
}
