package main

import (
	"context"
	"errors"
	"regexp"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// refusals remembers what brokers last answered to batches that the client tries again and again, which it tells to its
// logger alone. It listens only while nothing goes on: then each try costs a line, else nothing.
type refusals struct {
	mu      sync.Mutex
	listens bool
	newest  *kerr.Error
}

// listen begins or ends the listening.
func (r *refusals) listen(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listens = on; !on {
		r.newest = nil
	}
}

// last is what was answered last since the listening began, nil for nothing.
func (r *refusals) last() *kerr.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// Level implements kgo.Logger.
func (r *refusals) Level() kgo.LogLevel {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listens {
		return kgo.LogLevelDebug
	}
	return kgo.LogLevelNone
}

// triedAgain finds the name of an error in the client's account of an answer to produce.
var triedAgain = regexp.MustCompile(`retrying@[^(]*\(([A-Z][A-Z_]+)`)

// Log implements kgo.Logger.
func (r *refusals) Log(_ kgo.LogLevel, _ string, pairs ...any) {
	for _, v := range pairs {
		text, ok := v.(string)
		if !ok {
			continue
		}
		if m := triedAgain.FindStringSubmatch(text); m != nil {
			r.mu.Lock()
			r.newest = errorNamed(m[1])
			r.mu.Unlock()
		}
	}
}

// errorNamed finds a Kafka error by its name, nil if there is none.
func errorNamed(name string) *kerr.Error {
	for code := int16(-1); code < 256; code++ {
		if ke := kerr.TypedErrorForCode(code); ke != nil && ke.Message == name {
			return ke
		}
	}
	return nil
}

// explain tells why not all was acknowledged: what the brokers answered to each try, or why they did not.
func (p *producing) explain(err error) *cliError {
	var ce *cliError
	var ke *kerr.Error
	if errors.As(err, &ce) {
		return ce
	}
	if ke = p.refused.last(); ke == nil {
		errors.As(err, &ke)
	}
	passing := ke == nil || ke.Retriable && ke != kerr.KafkaStorageError
	if passing {
		if e := p.refusing(); e != nil {
			return e
		}
	}
	if ke != nil {
		err = ke
	}
	return failure(p.session.explain(err, "topic "+p.topic))
}

// refusing says why the topic takes no writes, nil if that is not to be seen. It asks over connections of its own: on those of the producer
// answers wait for those before them.
func (p *producing) refusing() *cliError {
	ctx, cancel := context.WithTimeout(context.Background(), toExplain)
	defer cancel()
	s, err := p.app.connect(ctx)
	if err != nil {
		return nil
	}
	defer s.close()
	s.explains = p.session
	return s.refusing(ctx, p.topic, p.flags.partition)
}
