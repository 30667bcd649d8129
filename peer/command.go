package peer

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
)

// Submit carries an encoded command of the metadata log to the broker that leads it, and returns the bytes of its outcome, which are the
// caller's. Commands go one after the other on a connection of their own. Errors: ErrNotController, and those of the connection.
func (c *Client) Submit(ctx context.Context, leader metadata.BrokerID, command []byte) ([]byte, error) {
	p, err := c.peer(leader)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrEnvelopeRequest()
	req.RequestData = command
	req.UnknownTags.Set(TagCommand, nil)
	resp := kmsg.NewPtrEnvelopeResponse()
	if err := askOn(ctx, p.commands, req, resp); err != nil {
		return nil, err
	}
	return resp.ResponseData, fromCode(resp.ErrorCode)
}

// IsCommand says that what is in an envelope is a command of the metadata log, and not a client's request.
func IsCommand(req *kmsg.EnvelopeRequest) (is bool) {
	req.UnknownTags.Each(func(tag uint32, _ []byte) { is = is || tag == TagCommand })
	return is
}
