package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/metadata"
)

// elrFeature is the feature of eligible leader replicas (KIP-966).
const elrFeature = "eligible.leader.replicas.version"

func settingsMap(settings []metadata.Setting) map[string]string {
	m := make(map[string]string, len(settings))
	for _, s := range settings {
		m[s.Key] = *s.Value
	}
	return m
}

func sortedSettings(set map[string]string) []metadata.Setting {
	settings := make([]metadata.Setting, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		settings = append(settings, metadata.Setting{Key: k, Value: new(set[k])})
	}
	return settings
}

// difference lists what turns one set into the other, by key.
func difference(from, to map[string]string) []metadata.Setting {
	var settings []metadata.Setting
	for _, k := range slices.Sorted(maps.Keys(to)) {
		if old, ok := from[k]; !ok || old != to[k] {
			settings = append(settings, metadata.Setting{Key: k, Value: new(to[k])})
		}
	}
	for _, k := range slices.Sorted(maps.Keys(from)) {
		if _, ok := to[k]; !ok {
			settings = append(settings, metadata.Setting{Key: k})
		}
	}
	return settings
}

// newSettings checks the settings of a new topic. Of a key given twice the last one counts, as in Kafka.
func (p *planner) newSettings(settings []metadata.Setting) (map[string]string, error) {
	own := map[string]string{}
	for _, s := range settings {
		if s.Value == nil {
			return nil, answer(ErrInvalidConfig, "Null value not supported for topic configs: %s", s.Key)
		}
	}
	for _, s := range settings {
		v, err := config.ValidateTopic(s.Key, *s.Value)
		if err != nil {
			return nil, badConfig(ErrInvalidConfig, "topic", s.Key, err)
		}
		own[s.Key] = v
	}
	if err := p.topicLayers(own, 1).ValidateTopicSet(own); err != nil {
		return nil, badConfig(ErrInvalidConfig, "topic", "", err)
	}
	return own, nil
}

// badConfig words an error of package config.
func badConfig(kind error, what, key string, err error) error {
	switch {
	case errors.Is(err, config.ErrUnknownKey):
		text := fmt.Sprintf("Unknown %s config name: %s", what, key)
		if _, hint, ok := strings.Cut(err.Error(), ", did you mean "); ok {
			text += " (did you mean " + hint + "?)"
		}
		return &Answer{Kind: kind, Text: text}
	case errors.Is(err, config.ErrReadOnly):
		return answer(ErrInvalidRequest, "Cannot update these configs dynamically: [%s]", key)
	}
	return &Answer{Kind: kind, Text: err.Error()}
}

// planAlter plans IncrementalAlterConfigs.
func (p *planner) planAlter(req AlterConfigsRequest) (answers []AlteredResource, records []metadata.Record, of []int) {
	times := map[metadata.Resource]int{}
	for _, r := range req.Resources {
		times[r.Resource]++
	}
	for res, r := range once(req.Resources, func(r AlterResource) metadata.Resource { return r.Resource }) {
		a := AlteredResource{Resource: res}
		var changes []metadata.Setting
		if a.Err = checkOps(r, times[res]); a.Err == nil {
			changes, a.Err = p.alterOne(r, req.Receiver)
		}
		if a.Err == nil && !req.ValidateOnly && len(changes) > 0 {
			for _, rec := range append(p.clearedELR(res, changes), metadata.Record(metadata.ConfigChanged{Resource: res, Settings: changes})) {
				records, of = append(records, rec), append(of, len(answers))
			}
		}
		answers = append(answers, a)
	}
	return answers, records, of
}

// checkOps looks at the request alone.
func checkOps(r AlterResource, times int) error {
	if times > 1 {
		return answer(ErrInvalidRequest, "Each resource must appear at most once.")
	}
	seen := map[string]bool{}
	for _, op := range r.Ops {
		if seen[op.Key] {
			return answer(ErrInvalidRequest, "Error due to duplicate config keys")
		}
		seen[op.Key] = true
	}
	for _, op := range r.Ops {
		if op.Value == nil && op.Op != config.OpDelete {
			return answer(ErrInvalidRequest, "Null value not supported for : %s", op.Key)
		}
	}
	for _, op := range r.Ops {
		if op.Op < config.OpSet || op.Op > config.OpSubtract {
			return &Answer{Kind: ErrUnknownOperation}
		}
	}
	return nil
}

// alterOne works out what changes.
func (p *planner) alterOne(r AlterResource, receiver metadata.BrokerID) ([]metadata.Setting, error) {
	if r.Resource.Kind == metadata.ResourceBrokerLogger {
		return nil, answer(ErrInvalidRequest, "Unknown resource type %d", r.Resource.Kind)
	}
	if err := p.checkResource(r.Resource, receiver); err != nil {
		return nil, err
	}
	from := p.img.Configs(r.Resource.Kind, r.Resource.Name)
	to := maps.Clone(from)
	if to == nil {
		to = map[string]string{}
	}
	for _, op := range r.Ops {
		if err := p.operate(r.Resource, op, to); err != nil {
			return nil, err
		}
	}
	if err := p.checkSet(r.Resource, to); err != nil {
		return nil, err
	}
	return difference(from, to), nil
}

// checkResource says whether a resource may have settings.
func (p *planner) checkResource(res metadata.Resource, receiver metadata.BrokerID) error {
	switch res.Kind {
	case metadata.ResourceTopic:
		if res.Name == "" {
			return answer(ErrInvalidRequest, "Default topic resources are not allowed.")
		}
		if err := CheckTopicName(res.Name); err != nil {
			return err
		}
		if _, ok := p.img.TopicByName(res.Name); !ok {
			return answer(ErrUnknownTopic, "The topic '%s' does not exist.", res.Name)
		}
	case metadata.ResourceBroker:
		if res.Name == "" {
			return nil
		}
		return checkNodeName(res.Name, receiver, "Unexpected broker id, expected %d, but received %d")
	case metadata.ResourceGroup:
		if res.Name == "" {
			return answer(ErrInvalidRequest, "Default group resources are not allowed.")
		}
	case metadata.ResourceClientMetrics:
		if res.Name == "" {
			return answer(ErrInvalidRequest, "Subscription name can't be empty")
		}
	default:
		return answer(ErrInvalidRequest, "Unknown resource type %d", int8(res.Kind))
	}
	return nil
}

// checkNodeName wants the decimal id of the broker that received the request; AnyBroker leaves that out.
func checkNodeName(name string, receiver metadata.BrokerID, unexpected string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	switch {
	case err != nil || strconv.FormatInt(id, 10) != name:
		return answer(ErrInvalidRequest, "Node id must be an integer, but it is: %s", name)
	case receiver != AnyBroker && metadata.BrokerID(id) != receiver:
		return answer(ErrInvalidRequest, unexpected, receiver, id)
	}
	return nil
}

// operate carries out one operation on the resource's own settings.
func (p *planner) operate(res metadata.Resource, op ConfigOp, own map[string]string) error {
	if op.Op == config.OpDelete {
		delete(own, op.Key)
		return p.checkELR(res, op.Key, true)
	}
	scope, what, kind := scopeOf(res.Kind)
	key := config.Lookup(scope, op.Key)
	if op.Op != config.OpSet && (key == nil || key.Type != config.List) {
		verb := "APPEND"
		if op.Op == config.OpSubtract {
			verb = "SUBTRACT"
		}
		return answer(ErrInvalidConfig, "Can't %s to key %s because its type is not LIST.", verb, op.Key)
	}
	if err := p.checkELR(res, op.Key, false); err != nil {
		return err
	}
	change := config.Change{Scope: scope, Key: op.Key, Op: op.Op, Operand: *op.Value}
	if v, ok := own[op.Key]; ok {
		change.Current = &v
	}
	if op.Op != config.OpSet {
		change.Inherited = p.layers().Inherited(scope, op.Key)
	}
	next, err := change.Apply()
	if err == nil && res.Kind == metadata.ResourceBroker {
		err = p.checkBrokerKey(res, op.Key, *next)
	}
	if res.Kind == metadata.ResourceBroker && errors.Is(err, config.ErrUnknownKey) {
		kind = ErrInvalidConfig // as with topics: the name is wrong, not the request
	}
	if err != nil {
		return badConfig(kind, what, op.Key, err)
	}
	own[op.Key] = *next
	return nil
}

// scopeOf gives the scope of a resource, how a message names it, and the kind of answer to a bad value.
func scopeOf(k metadata.ResourceKind) (scope config.Scope, what string, kind error) {
	switch k {
	case metadata.ResourceBroker:
		return config.ScopeBroker, "broker", ErrInvalidRequest
	case metadata.ResourceGroup:
		return config.ScopeGroup, "group", ErrInvalidConfig
	case metadata.ResourceClientMetrics:
		return config.ScopeClientMetrics, "client metrics", ErrInvalidRequest
	}
	return config.ScopeTopic, "topic", ErrInvalidConfig
}

// checkBrokerKey adds what a broker's setting must fulfil beyond its value: that it can change while the server runs.
func (p *planner) checkBrokerKey(res metadata.Resource, key, value string) error {
	if res.Name == "" {
		_, err := p.layers().ValidateBroker(key, value, true)
		return err
	}
	id, _ := strconv.ParseInt(res.Name, 10, 32)
	_, err := p.brokerLayers(metadata.BrokerID(id)).ValidateBroker(key, value, false)
	return err
}

// checkELR keeps min.insync.replicas one value for all brokers while eligible leader replicas are on.
func (p *planner) checkELR(res metadata.Resource, key string, remove bool) error {
	if res.Kind != metadata.ResourceBroker || key != "min.insync.replicas" || p.img.Feature(elrFeature) == 0 {
		return nil
	}
	switch {
	case res.Name != "":
		return answer(ErrInvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
	case remove:
		return answer(ErrInvalidConfig, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
	}
	return nil
}

// checkSet looks at all settings of a resource together.
func (p *planner) checkSet(res metadata.Resource, own map[string]string) error {
	if res.Kind == metadata.ResourceGroup {
		known := maps.Clone(own)
		maps.DeleteFunc(known, func(k, _ string) bool { return config.Lookup(config.ScopeGroup, k) == nil })
		if err := p.layers().ValidateGroupSet(known); err != nil {
			return badConfig(ErrInvalidConfig, "group", "", err)
		}
	}
	if res.Kind != metadata.ResourceTopic {
		return nil
	}
	known := maps.Clone(own)
	maps.DeleteFunc(known, func(k, _ string) bool { return config.Lookup(config.ScopeTopic, k) == nil })
	if err := p.topicLayers(known, 1).ValidateTopicSet(known); err != nil {
		return badConfig(ErrInvalidConfig, "topic", "", err)
	}
	return nil
}

// planReplace plans AlterConfigs: a resource's settings become those of the request.
func (p *planner) planReplace(req ReplaceConfigsRequest) (answers []AlteredResource, records []metadata.Record, of []int) {
	times := map[metadata.Resource]int{}
	for _, r := range req.Resources {
		times[r.Resource]++
	}
	for res, r := range once(req.Resources, func(r ReplaceResource) metadata.Resource { return r.Resource }) {
		a := AlteredResource{Resource: res}
		changes, err := p.replaceOne(r, times[res], req.Receiver)
		if a.Err = err; err == nil && !req.ValidateOnly && len(changes) > 0 {
			for _, rec := range append(p.clearedELR(res, changes), metadata.Record(metadata.ConfigChanged{Resource: res, Settings: changes})) {
				records, of = append(records, rec), append(of, len(answers))
			}
		}
		answers = append(answers, a)
	}
	return answers, records, of
}

func (p *planner) replaceOne(r ReplaceResource, times int, receiver metadata.BrokerID) ([]metadata.Setting, error) {
	ops := AlterResource{Resource: r.Resource}
	for _, s := range r.Settings {
		ops.Ops = append(ops.Ops, ConfigOp{Key: s.Key, Op: config.OpSet, Value: s.Value})
	}
	if err := checkOps(ops, times); err != nil {
		return nil, err
	}
	if r.Resource.Kind == metadata.ResourceBrokerLogger {
		return nil, answer(ErrInvalidRequest, "Unknown resource type %d", r.Resource.Kind)
	}
	if err := p.checkResource(r.Resource, receiver); err != nil {
		return nil, err
	}
	to := map[string]string{}
	for _, op := range ops.Ops {
		if err := p.operate(r.Resource, op, to); err != nil {
			return nil, err
		}
	}
	from := p.img.Configs(r.Resource.Kind, r.Resource.Name)
	for k := range from {
		if _, kept := to[k]; !kept {
			if err := p.checkELR(r.Resource, k, true); err != nil {
				return nil, err
			}
		}
	}
	if err := p.checkSet(r.Resource, to); err != nil {
		return nil, err
	}
	return difference(from, to), nil
}
