package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
)

// addRaftVoter makes a node that runs a voter of the metadata quorum.
func (a *API) addRaftVoter(c *Call, req *kmsg.AddRaftVoterRequest) {
	ctx, cancel := withTimeout(c, req.TimeoutMillis)
	defer cancel()
	resp := kmsg.NewPtrAddRaftVoterResponse()
	var wrong error
	switch {
	case req.VoterID < 0:
		wrong = invalid("%d is not the id of a node", req.VoterID)
	case req.VoterDirectoryID == [16]byte{}:
		wrong = invalid("the voter has no directory id")
	case len(req.Listeners) == 0:
		wrong = invalid("the voter has no endpoint")
	}
	err := a.voterRequest(req.ClusterID, wrong)
	if err == nil {
		l := &req.Listeners[0]
		err = a.o.Quorum.AddVoter(ctx, QuorumMember{
			ID: req.VoterID, Directory: req.VoterDirectoryID, Voter: true, Endpoint: metadata.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port},
		})
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = a.adminError(err)
	}
	c.reply(resp)
}

// voterRequest says what stands against a change of the quorum before it is looked at; wrong is what is wrong with its own fields.
func (a *API) voterRequest(cluster *string, wrong error) error {
	switch {
	case cluster != nil && *cluster != a.o.Images.Image().ClusterID():
		return remote(codeInconsistentClusterID, text("the request is for cluster "+*cluster))
	case wrong != nil:
		return wrong
	case a.o.Quorum == nil:
		return remote(codeUnsupportedVersion, text("this node runs alone: start it with controller.quorum.voters, or with an internal listener, to let others join"))
	case !a.leading():
		return remote(codeNotController, nil)
	}
	return nil
}
