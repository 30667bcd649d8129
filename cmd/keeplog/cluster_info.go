package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
)

// quorumBody is a viewQuorum for programs.
type quorumBody struct {
	Leader    int32              `json:"leader"`
	Term      int32              `json:"term"`
	Committed int64              `json:"committed"`
	Voters    []quorumMemberBody `json:"voters"`
	Observers []quorumMemberBody `json:"observers"`
}

type quorumMemberBody struct {
	ID   int32 `json:"id"`
	Lag  int64 `json:"lag_entries"` // −1: not known
	Idle int64 `json:"idle_ms"`     // since it was last heard, −1: not known
}

func newQuorumBody(q *viewQuorum) *quorumBody {
	if q == nil {
		return nil
	}
	members := func(in []quorumMember) []quorumMemberBody {
		out := make([]quorumMemberBody, len(in))
		for i, m := range in {
			out[i] = quorumMemberBody{m.id, m.lag, m.idle}
		}
		return out
	}
	return &quorumBody{q.leader, q.term, q.committed, members(q.voters), members(q.observers)}
}

func newClusterInfoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "info", Short: "Show the cluster's id, size, and who keeps its metadata", Args: wantsArgs(0, 0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			return a.withView(ctx, false, func(_ context.Context, _ *session, v *clusterView) error { return a.showInfo(v) })
		}),
	}
}

func (a *app) showInfo(v *clusterView) error {
	up, fenced := 0, 0
	for i := range v.brokers {
		if v.brokers[i].fenced {
			fenced++
		} else {
			up++
		}
	}
	body := struct {
		Version    int         `json:"version"`
		ID         string      `json:"cluster_id"`
		Controller int32       `json:"controller"`
		Brokers    int         `json:"brokers"`
		Fenced     int         `json:"fenced"`
		Topics     int         `json:"topics"`
		Partitions int         `json:"partitions"`
		Quorum     *quorumBody `json:"quorum"` // null: the brokers do not tell
	}{1, v.id, v.controller, len(v.brokers), fenced, len(v.topics), v.partitionCount(), newQuorumBody(v.quorum)}
	return a.show(result{body: body, text: func(t *text) {
		nodes := count(int64(len(v.brokers)), "broker")
		if fenced > 0 {
			nodes += fmt.Sprintf(", %d of them down", fenced)
		}
		t.line("cluster   %s", v.id)
		t.line("brokers   %s", nodes)
		t.line("topics    %s, %s", count(int64(len(v.topics)), "topic"), count(int64(body.Partitions), "partition"))
		q := v.quorum
		switch {
		case !v.led:
			t.line("metadata  no leader: nothing can be changed (keeplog cluster health)")
			return
		case q == nil:
			t.line("metadata  leader: node %s", number(int64(v.controller)))
			return
		}
		t.line("metadata  leader: node %s, term %d, %d entries", number(int64(q.leader)), q.term, q.committed)
		var rows [][]string
		for kind, members := range map[string][]quorumMember{"voter": q.voters, "observer": q.observers} {
			for _, m := range members {
				rows = append(rows, []string{strconv.Itoa(int(m.id)), kind, number(m.lag), idleText(m)})
			}
		}
		sortRows(rows)
		t.line("")
		t.table([]string{"NODE", "ROLE", "LAG", "LAST HEARD"}, rows)
	}})
}

func idleText(m quorumMember) string {
	switch {
	case m.idle < 0:
		return "-"
	case m.idle < 1000:
		return "now"
	}
	return fmt.Sprintf("%ds ago", m.idle/1000)
}

// sortRows sorts by the number in the first cell.
func sortRows(rows [][]string) {
	less := func(a, b []string) int {
		x, _ := strconv.Atoi(a[0])
		y, _ := strconv.Atoi(b[0])
		return x - y
	}
	slices.SortStableFunc(rows, less)
}

// brokerRow is one broker as "cluster brokers" shows it.
type brokerRow struct {
	ID      int32  `json:"id"`
	Address string `json:"address"`
	State   string `json:"state"` // up, silent, down
	Drained bool   `json:"drained"`
	Role    string `json:"role"` // of the metadata log: leader, voter, observer, empty
	Rack    string `json:"rack"`
	Leads   int    `json:"leads"`
	Holds   int    `json:"replicas"`
	InSync  int    `json:"in_sync"`
	Used    int64  `json:"used_bytes"` // −1: not told
	Free    int64  `json:"free_bytes"` // −1: not told
}

func (v *clusterView) rows() []brokerRow {
	out := make([]brokerRow, len(v.brokers))
	for i := range v.brokers {
		b := &v.brokers[i]
		r := brokerRow{ID: b.id, Address: b.address, State: "up", Drained: b.drained, Role: v.role(b.id), Rack: b.rack, Used: -1, Free: -1}
		r.Leads, r.Holds, r.InSync = v.load(b.id)
		switch {
		case b.fenced:
			r.State = "down"
		case b.silent:
			r.State = "silent"
		}
		for _, d := range b.dirs {
			r.Used = max(r.Used, 0) + d.used
			if d.free >= 0 {
				r.Free = max(r.Free, 0) + d.free
			}
		}
		out[i] = r
	}
	return out
}

// role is what a node is to the metadata log.
func (v *clusterView) role(id int32) string {
	if v.quorum == nil {
		if v.controller == id {
			return "leader"
		}
		return ""
	}
	if v.quorum.leader == id {
		return "leader"
	}
	for _, m := range v.quorum.voters {
		if m.id == id {
			return "voter"
		}
	}
	for _, m := range v.quorum.observers {
		if m.id == id {
			return "observer"
		}
	}
	return ""
}

func newClusterBrokersCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "brokers", Short: "List the brokers, what each leads and holds, and the space it has", Args: wantsArgs(0, 0),
		RunE: a.run(func(ctx context.Context, _ []string) error {
			return a.withView(ctx, false, func(_ context.Context, _ *session, v *clusterView) error { return a.showBrokers(v.rows()) })
		}),
	}
}

func (a *app) showBrokers(rows []brokerRow) error {
	body := struct {
		Version int         `json:"version"`
		Brokers []brokerRow `json:"brokers"`
	}{1, rows}
	return a.show(result{body: body, items: anys(rows), text: func(t *text) {
		head := []string{"NODE", "STATE", "ADDRESS", "METADATA", "LEADS", "REPLICAS", "IN SYNC"}
		if t.wide {
			head = append(head, "RACK", "USED", "FREE")
		}
		var cells [][]string
		for _, r := range rows {
			state := r.State
			if r.Drained {
				state += ", drained"
			}
			row := []string{strconv.Itoa(int(r.ID)), state, r.Address, orDash(r.Role), strconv.Itoa(r.Leads), strconv.Itoa(r.Holds), strconv.Itoa(r.InSync)}
			if t.wide {
				row = append(row, orDash(r.Rack), sizeOrDash(r.Used), sizeOrDash(r.Free))
			}
			cells = append(cells, row)
		}
		t.table(head, cells)
	}})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func sizeOrDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return size(n)
}
