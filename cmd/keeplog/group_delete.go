package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
)

func newGroupDeleteCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "delete GROUP...", Short: "Delete groups without members, and what they have committed", Args: wantsArgs(1, -1),
		ValidArgsFunction: a.completeGroups(0),
		RunE: a.run(func(ctx context.Context, names []string) error {
			slices.Sort(names)
			names = slices.Compact(names)
			err := a.ask(ctx, func(ctx context.Context, s *session) error {
				l, err := s.groups(ctx)
				if err != nil {
					return err
				}
				if len(names) == 1 {
					if _, err := l.find(s, names); err != nil {
						return err
					}
				}
				for _, name := range names {
					if g := l.groups[name]; g != nil {
						a.say("group %s: %s", name, g.state)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if err := a.confirm(ctx, "delete "+count(int64(len(names)), "group")); err != nil {
				return err
			}
			return a.ask(ctx, func(ctx context.Context, s *session) error { return s.deleteGroups(ctx, names) })
		}),
	}
}

// groupOutcome is what became of one group.
type groupOutcome struct {
	Group   string `json:"group"`
	Done    string `json:"done,omitempty"`
	Message string `json:"error,omitempty"`

	err *cliError
}

func (s *session) deleteGroups(ctx context.Context, names []string) error {
	answers, err := s.admin.DeleteGroups(ctx, names...)
	if len(answers) == 0 && err != nil {
		return err
	}
	all := make([]groupOutcome, 0, len(names))
	for _, name := range names {
		o := groupOutcome{Group: name, Done: "deleted"}
		r, ok := answers[name]
		switch {
		case !ok:
			o.err = &cliError{msg: "group " + name + ": its coordinator does not answer", code: "COORDINATOR_NOT_AVAILABLE", exit: exitUnreachable, try: "keeplog cluster health"}
		case r.Err != nil:
			o.err = s.notDeleted(ctx, name, r.Err)
		}
		if o.err != nil {
			o.Done, o.Message = "", o.err.msg
		}
		all = append(all, o)
	}
	return s.app.showGroupOutcomes(all)
}

// notDeleted says why a group was not deleted, and what to do.
func (s *session) notDeleted(ctx context.Context, name string, why error) *cliError {
	l, err := s.groups(ctx)
	switch {
	case err != nil:
	case errors.Is(why, kerr.GroupIDNotFound):
		return l.missing(s, name)
	case errors.Is(why, kerr.NonEmptyGroup) && l.groups[name] != nil:
		return liveMembers(s.describeGroups(ctx, l, []string{name})[name])
	}
	return failure(s.answered("group "+name, why, ""))
}

// liveMembers says that a group has members, who they are and what to do; it must have none.
func liveMembers(v *groupView) *cliError {
	e := &cliError{msg: fmt.Sprintf("group %s: NON_EMPTY_GROUP (it has members)", v.name), code: "NON_EMPTY_GROUP", exit: exitFailed}
	if n := len(v.members); n > 0 {
		e.msg = fmt.Sprintf("group %s: NON_EMPTY_GROUP (it has %s)", v.name, count(int64(n), "member"))
		e.why = v.memberNames()
		if n == 1 {
			e.why += " reads with it"
		} else {
			e.why += " read with it"
		}
	}
	e.try = "stop them; the group is empty when they have left, or a session timeout after they were killed: keeplog group describe " + shellWord(v.name)
	return e
}

func (a *app) showGroupOutcomes(all []groupOutcome) error {
	made := make([]madeOf, len(all))
	for i := range all {
		made[i] = madeOf{all[i], all[i].Done + " " + all[i].Group, all[i].err}
	}
	return a.showMade(made, struct {
		Version int            `json:"version"`
		Groups  []groupOutcome `json:"groups"`
	}{1, all})
}
