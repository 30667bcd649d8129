package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/protocol"
)

// apiVersions lists what is served, and the features that the cluster has finalized. The client reads the features only when their epoch
// is not negative; the epoch grows with the metadata.
func (a *API) apiVersions(c *Call, req *kmsg.ApiVersionsRequest) {
	resp := kmsg.NewPtrApiVersionsResponse()
	img := a.o.Images.Image()
	if code := a.checkClient(req, img.ClusterID()); code != codeNone {
		resp.ErrorCode = code
		c.reply(resp)
		return
	}
	for _, k := range a.protocol.APIs() {
		if k.Internal && !c.Conn.Internal {
			continue
		}
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: k.Key, MinVersion: k.AdvertisedMin, MaxVersion: k.Max})
	}
	resp.FinalizedFeaturesEpoch = int64(img.Index())
	for name, level := range img.Features() {
		if level > 0 {
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{
				Name: name, MinVersionLevel: level, MaxVersionLevel: level,
			})
		}
	}
	for _, f := range controller.SupportedFeatures() {
		if f.Min > 0 || req.Version >= 4 { // older clients take a lowest level of 0 for an error
			resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: f.Name, MinVersion: f.Min, MaxVersion: f.Max})
		}
	}
	c.reply(resp)
}

// checkClient refuses clients that give a bad name (v3), or think that they talk to somebody else (v5, KIP-1242).
func (a *API) checkClient(req *kmsg.ApiVersionsRequest, cluster string) int16 {
	if req.Version >= 3 && (!softwareName(req.ClientSoftwareName) || !softwareName(req.ClientSoftwareVersion)) {
		return codeInvalidRequest
	}
	if req.Version < 5 {
		return codeNone
	}
	switch named, node := req.ClusterID != nil, req.NodeID != -1; {
	case named != node:
		return codeInvalidRequest
	case named && (*req.ClusterID != cluster || req.NodeID != a.o.NodeID):
		return codeRebootstrapRequired
	}
	return codeNone
}

// softwareName says that s is letters and digits, with '-' and '.' inside.
func softwareName(s string) bool {
	for i := range len(s) {
		b := s[i]
		word := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
		inner := (b == '-' || b == '.') && i > 0 && i < len(s)-1
		if !word && !inner {
			return false
		}
	}
	return s != ""
}

// apiVersionsUnknown answers a version of ApiVersions that this broker does not know: in the layout of version 0, with the range of this
// one key, so that the client asks again.
func (a *API) apiVersionsUnknown(c *Call) {
	own, _ := a.protocol.Lookup(protocol.KeyApiVersions)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = codeUnsupportedVersion
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: own.Key, MinVersion: own.AdvertisedMin, MaxVersion: own.Max}}
	c.Version, c.header.Version = 0, 0
	c.reply(resp)
}
