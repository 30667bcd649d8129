package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
)

// The default replication factor follows the nodes that there are: those that the cluster began with count before they register, and no more once
// they were removed.
func TestDefaultFactorFollowsTheMembers(t *testing.T) {
	w := newWorld()
	apply := func(records ...metadata.Record) {
		t.Helper()
		_, results, err := w.ProposeAt(context.Background(), 0, records)
		for _, r := range results {
			err = errors.Join(err, r.Err())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, factor int) {
		t.Helper()
		if got := (&planner{img: w.img, static: config.Default()}).defaultReplicas(); got != factor {
			t.Errorf("%s: %d, want %d", when, got, factor)
		}
	}
	directory := func(id int) metadata.DirectoryID { return metadata.DirectoryID{byte(id)} }
	var voters []metadata.Voter
	for id := range 3 {
		voters = append(voters, metadata.Voter{ID: metadata.BrokerID(id + 1), Directory: directory(id + 1)})
	}
	apply(metadata.ClusterStarted{ClusterID: "c", Voters: voters})
	want("before anybody registered", 3)
	for _, id := range []metadata.BrokerID{2, 3} {
		apply(metadata.MemberChanged{ID: id, Directory: directory(int(id)), Removed: true})
		want("removed", 3-int(id)+1)
	}
	apply(metadata.MemberChanged{ID: 4, Directory: directory(4)})
	want("a member that has not registered yet", 1)
}
