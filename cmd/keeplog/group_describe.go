package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func newGroupDescribeCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "describe GROUP...", Short: "Show state, members, assignment and lag of groups", Args: wantsArgs(1, -1),
		ValidArgsFunction: a.completeGroups(0),
		RunE: a.withGroups(func(ctx context.Context, s *session, l *groupList, names []string) error {
			if _, err := l.find(s, names); err != nil {
				return err
			}
			all, failed, err := s.lags(ctx, l, names)
			if err != nil {
				return err
			}
			if err := a.showGroupDescriptions(all); err != nil {
				return err
			}
			for i := range all {
				if err := all[i].view.err; err != nil {
					e := failure(s.answered("group "+all[i].Group, err, ""))
					e.exit = exitPart
					return e
				}
			}
			if err := leftOut(failed); err != nil {
				return err
			}
			return untold(all)
		}),
	}
}

type groupDescription struct {
	groupLag
	Assignor      string              `json:"assignor"`
	Epoch         *int32              `json:"group_epoch"` // null in a classic group
	AssignedEpoch *int32              `json:"assignment_epoch"`
	Assignment    []memberDescription `json:"assignment"`
}

type memberDescription struct {
	groupMember
	Assigned []string `json:"assigned"`
	Target   []string `json:"target"`
}

func (a *app) showGroupDescriptions(all []groupLag) error {
	out := make([]groupDescription, len(all))
	items := make([]any, len(all))
	for i := range all {
		v := all[i].view
		d := groupDescription{groupLag: all[i], Assignor: v.assignor, Assignment: []memberDescription{}}
		if v.kind == "consumer" {
			d.Epoch, d.AssignedEpoch = &v.epoch, &v.assignedEpoch
		}
		for _, m := range v.members {
			d.Assignment = append(d.Assignment, memberDescription{m, append([]string{}, names(m.Partitions)...), append([]string{}, names(m.Target)...)})
		}
		out[i], items[i] = d, &out[i]
	}
	body := struct {
		Version int                `json:"version"`
		Groups  []groupDescription `json:"groups"`
	}{1, out}
	return a.show(result{body: body, items: items, text: func(t *text) {
		for i := range out {
			if i > 0 {
				t.line("")
			}
			out[i].write(t)
		}
	}})
}

func (d *groupDescription) write(t *text) {
	v := d.view
	line := fmt.Sprintf("group %s  state %s  type %s  coordinator %d", d.Group, d.State, d.Type, d.Coordinator)
	if v.protocolType != "" && v.protocolType != "consumer" {
		line += "  protocol " + v.protocolType
	}
	if v.assignor != "" {
		line += "  assignor " + v.assignor
	}
	if d.Epoch != nil {
		line += fmt.Sprintf("  epoch %d  assigned %d", *d.Epoch, *d.AssignedEpoch)
	}
	t.line("%s", line)
	t.line("")
	if len(v.members) > 0 {
		rows := make([][]string, 0, len(v.members))
		for i := range d.ByMember {
			m := &v.members[i]
			row := []string{m.name(), ranges(m.Partitions), lagText(d.ByMember[i].Lag, d.ByMember[i].untold), behindText(d.ByMember[i].Behind)}
			if !slices.Equal(m.Partitions, m.Target) {
				row[1] += " -> " + ranges(m.Target)
			}
			if t.wide {
				epoch := "-"
				if m.Epoch != nil {
					epoch = strconv.Itoa(int(*m.Epoch))
				}
				row = append(row, m.ID, orNull(m.Instance), epoch, strings.Join(m.Subscribed, ","))
			}
			rows = append(rows, row)
		}
		head := []string{"MEMBER", "PARTITIONS", "LAG", "BEHIND"}
		if t.wide {
			head = append(head, "MEMBER-ID", "INSTANCE", "EPOCH", "SUBSCRIBED")
		}
		t.table(head, rows)
		t.line("")
	}
	d.writePartitions(t)
}

// ranges are partitions as "orders:0-3,7 audit:1", "-" for none. They are sorted.
func ranges(all []tp) string {
	if len(all) == 0 {
		return "-"
	}
	var b strings.Builder
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1].topic == all[i].topic && all[j+1].partition == all[j].partition+1 {
			j++
		}
		switch {
		case i == 0 || all[i-1].topic != all[i].topic:
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(all[i].topic + ":")
		default:
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(all[i].partition)))
		if j > i {
			b.WriteString("-" + strconv.Itoa(int(all[j].partition)))
		}
		i = j + 1
	}
	return b.String()
}
