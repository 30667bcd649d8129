package api

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/metadata"
)

// listConfigResources lists the resources that have, or may have, settings. Version 0 lists client metrics subscriptions only.
func (a *API) listConfigResources(c *Call, req *kmsg.ListConfigResourcesRequest) {
	resp := &kmsg.ListConfigResourcesResponse{}
	all := []metadata.ResourceKind{
		metadata.ResourceTopic, metadata.ResourceBroker, metadata.ResourceBrokerLogger, metadata.ResourceClientMetrics, metadata.ResourceGroup,
	}
	var kinds []metadata.ResourceKind
	for _, t := range req.ResourceTypes {
		kinds = append(kinds, metadata.ResourceKind(t))
	}
	switch {
	case c.Version == 0:
		kinds = []metadata.ResourceKind{metadata.ResourceClientMetrics}
	case len(kinds) == 0:
		kinds = all
	}
	img := a.o.Images.Image()
	slices.Sort(kinds)
	for _, k := range slices.Compact(kinds) {
		if !slices.Contains(all, k) {
			c.reply(&kmsg.ListConfigResourcesResponse{ErrorCode: codeUnsupportedVersion})
			return
		}
		for _, name := range resourceNames(img, k) {
			r := kmsg.NewListConfigResourcesResponseConfigResource()
			r.Name, r.Type = name, int8(k)
			resp.ConfigResources = append(resp.ConfigResources, r)
		}
	}
	c.reply(resp)
}

// resourceNames lists the resources of a kind: topics and brokers that exist, and of the other kinds those that have settings.
func resourceNames(img *metadata.Image, kind metadata.ResourceKind) []string {
	var names []string
	switch kind {
	case metadata.ResourceTopic:
		for t := range img.Topics() {
			names = append(names, t.Name)
		}
	case metadata.ResourceBroker, metadata.ResourceBrokerLogger:
		for _, b := range img.Brokers() {
			names = append(names, nodeName(b.ID))
		}
	default:
		for r := range img.AllConfigs() {
			if r.Kind == kind {
				names = append(names, r.Name)
			}
		}
	}
	return names
}
