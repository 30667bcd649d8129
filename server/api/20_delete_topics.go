package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
)

// deleteTopics takes topics away, by name, or from version 6 on by id.
func (a *API) deleteTopics(c *Call, req *kmsg.DeleteTopicsRequest) {
	ctx, cancel := withTimeout(c, req.TimeoutMillis)
	defer cancel()
	resp := &kmsg.DeleteTopicsResponse{}
	var refs []controller.TopicRef
	var at []int // places in the answer
	for _, n := range req.TopicNames {
		req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &n})
	}
	enabled := a.o.Settings.Live().Bool("delete.topic.enable")
	for i := range req.Topics {
		t := &req.Topics[i]
		r := kmsg.DeleteTopicsResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		switch {
		case !enabled:
			r.ErrorCode, r.ErrorMessage = codeTopicDeletionDisabled, text("topic deletion is disabled")
			if c.Version < 3 {
				r.ErrorCode = codeInvalidRequest
			}
		case t.Topic != nil && t.TopicID != [16]byte{}:
			r.ErrorCode, r.ErrorMessage = codeInvalidRequest, text("a topic is named either by its name or by its id")
		case t.Topic == nil && t.TopicID == [16]byte{}:
			r.ErrorCode, r.ErrorMessage = codeInvalidRequest, text("a topic has neither name nor id")
		case t.Topic != nil:
			refs, at = append(refs, controller.TopicRef{Name: *t.Topic}), append(at, i)
		default:
			refs, at = append(refs, controller.TopicRef{ID: t.TopicID}), append(at, i)
		}
		resp.Topics = append(resp.Topics, r)
	}
	if len(refs) > 0 {
		var gone []controller.DeletedTopic
		err := ctx.Err()
		if err == nil {
			gone, err = a.o.Controller.DeleteTopics(ctx, refs)
		}
		for i, place := range at {
			r := &resp.Topics[place]
			if err != nil {
				r.ErrorCode, r.ErrorMessage = a.adminError(err)
			} else {
				a.deletedTopic(&gone[i], r)
			}
		}
	}
	c.reply(resp)
}

func (a *API) deletedTopic(g *controller.DeletedTopic, r *kmsg.DeleteTopicsResponseTopic) {
	if g.Err != nil {
		r.ErrorCode, r.ErrorMessage = a.adminError(g.Err)
		return
	}
	r.Topic, r.TopicID = &g.Name, g.ID
}

func text(s string) *string { return &s }
