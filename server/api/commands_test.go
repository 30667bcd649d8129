package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
	"github.com/keeplog/keeplog/peer"
	"github.com/keeplog/keeplog/replication/quorum"
)

// Submit refuses: nothing of a fake quorum becomes an entry.
func (q *fakeQuorum) Submit(context.Context, []byte) (metadata.Outcome, error) {
	return metadata.Outcome{}, q.err
}

// submitter is a quorum that takes commands.
type submitter struct {
	fakeQuorum
	got string
}

func (s *submitter) Submit(_ context.Context, command []byte) (metadata.Outcome, error) {
	s.got = string(command)
	return metadata.Outcome{Index: 7, Results: [][]metadata.Result{{{Value: 3}}}}, s.err
}

// A command of another broker's coordinators comes in an envelope, and its outcome goes back in it.
func TestCommandInAnEnvelope(t *testing.T) {
	w := newWorld(t)
	w.internal = true
	env := &kmsg.EnvelopeRequest{RequestData: []byte("command"), ClientHostAddress: []byte{}}
	env.UnknownTags.Set(peer.TagCommand, nil)
	equal(t, "a node alone", ask[*kmsg.EnvelopeResponse](w, env, 0).ErrorCode, 41)
	s := &submitter{}
	w.api.o.Quorum = s
	resp := ask[*kmsg.EnvelopeResponse](w, env, 0)
	out, err := metadata.DecodeOutcome(resp.ResponseData)
	if err != nil || resp.ErrorCode != 0 || out.Index != 7 || out.Results[0][0].Value != 3 || s.got != "command" {
		t.Errorf("%+v %v, got %q", resp, err, s.got)
	}
	for code, err := range map[int16]error{
		41: fmt.Errorf("%w: node 2 is", quorum.ErrNotLeader), 42: quorum.ErrForeignCommand, 7: quorum.ErrUnknownOutcome,
	} {
		s.err = err
		equal(t, err.Error(), ask[*kmsg.EnvelopeResponse](w, env, 0).ErrorCode, code)
	}
	s.err = errors.New("another")
	equal(t, "another error", ask[*kmsg.EnvelopeResponse](w, env, 0).ErrorCode, 7)
}
