package api

import (
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
	"github.com/keeplog/keeplog/metadata"
)

// maxDescribed bounds the settings, or the producers, that one answer lists: some 200 MiB.
const maxDescribed = 1 << 19

// nodeName is the name of a broker as a resource.
func nodeName(id int32) string { return strconv.Itoa(int(id)) }

// describeConfigs tells settings with their sources. One resource of an unknown kind spoils the whole request, as in Kafka.
func (a *API) describeConfigs(c *Call, req *kmsg.DescribeConfigsRequest) {
	img := a.o.Images.Image()
	resp := &kmsg.DescribeConfigsResponse{}
	known, total := true, 0
	for i := range req.Resources {
		known = known && knownResource(req.Resources[i].ResourceType)
	}
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.DescribeConfigsResponseResource{ResourceType: r.ResourceType, ResourceName: r.ResourceName, ErrorMessage: text("")}
		var entries []config.Entry
		err := error(&controller.Answer{Kind: controller.ErrInvalidRequest, Text: "a resource of the request has an unknown type"})
		switch {
		case known && total > maxDescribed:
			err = invalid("the answer would be too long: ask for fewer resources at once")
		case known:
			entries, err = a.describe(img, r)
			total += len(entries)
		}
		if err != nil {
			out.ErrorCode, out.ErrorMessage = a.adminError(err)
		}
		for j := range entries {
			out.Configs = append(out.Configs, describedConfig(req, r, &entries[j]))
		}
		resp.Resources = append(resp.Resources, out)
	}
	c.reply(resp)
}

func knownResource(t kmsg.ConfigResourceType) bool {
	switch metadata.ResourceKind(t) {
	case metadata.ResourceTopic, metadata.ResourceBroker, metadata.ResourceBrokerLogger, metadata.ResourceClientMetrics, metadata.ResourceGroup:
		return true
	}
	return false
}

func invalid(format string, args ...any) error {
	return &controller.Answer{Kind: controller.ErrInvalidRequest, Text: fmt.Sprintf(format, args...)}
}

// describe lists the settings of one resource.
func (a *API) describe(img *metadata.Image, r *kmsg.DescribeConfigsRequestResource) ([]config.Entry, error) {
	l, kind := a.layers(img), metadata.ResourceKind(r.ResourceType)
	switch kind {
	case metadata.ResourceTopic:
		if err := controller.CheckTopicName(r.ResourceName); err != nil {
			return nil, err
		}
		t, ok := img.TopicByName(r.ResourceName)
		if !ok {
			return nil, &controller.Answer{Kind: controller.ErrUnknownTopic, Text: "This server does not host this topic-partition."}
		}
		l.Topic = img.Configs(kind, t.Name)
		l.Replicas = t.ReplicationFactor()
		return l.DescribeTopic(r.ConfigNames), nil
	case metadata.ResourceBroker:
		if r.ResourceName == "" {
			return l.DescribeCluster(r.ConfigNames), nil
		}
		if err := a.ownNode(r.ResourceName, "broker"); err != nil {
			return nil, err
		}
		return l.DescribeBroker(r.ConfigNames), nil
	case metadata.ResourceBrokerLogger:
		if r.ResourceName == "" {
			return nil, invalid("Broker id must not be empty")
		}
		if err := a.ownNode(r.ResourceName, "node"); err != nil {
			return nil, err
		}
		return a.describeLoggers(r.ConfigNames), nil
	case metadata.ResourceClientMetrics:
		if r.ResourceName == "" {
			return nil, invalid("Client metrics subscription name must not be empty")
		}
		return config.DescribeClientMetrics(img.Configs(kind, r.ResourceName), r.ConfigNames), nil
	default:
		if r.ResourceName == "" {
			return nil, invalid("Group name must not be empty")
		}
		return l.DescribeGroup(img.Configs(kind, r.ResourceName), r.ConfigNames), nil
	}
}

// ownNode wants the decimal id of this broker.
func (a *API) ownNode(name, what string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return invalid("Broker id must be an integer, but it is: %s", name)
	}
	if int32(id) != a.o.NodeID {
		return invalid("Unexpected %s id, expected %d, but received %s", what, a.o.NodeID, name)
	}
	return nil
}

// describedConfig is one setting as the request wants it. Versions without types, synonyms or texts leave them out.
func describedConfig(req *kmsg.DescribeConfigsRequest, r *kmsg.DescribeConfigsRequestResource, e *config.Entry) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.DescribeConfigsResponseResourceConfig{
		Name: e.Name, Value: e.Value, ReadOnly: e.ReadOnly, Source: kmsg.ConfigSource(e.Source), IsSensitive: e.Sensitive,
		ConfigType: kmsg.ConfigType(e.Type),
	}
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			out.ConfigSynonyms = append(out.ConfigSynonyms, kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{
				Name: s.Name, Value: s.Value, Source: kmsg.ConfigSource(s.Source),
			})
		}
	}
	if req.IncludeDocumentation {
		out.Documentation = &e.Doc
	}
	return out
}
