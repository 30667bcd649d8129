package api

import (
	"slices"

	"github.com/keeplog/keeplog/config"
	"github.com/keeplog/keeplog/controller"
)

// sourceLogger is Kafka's number for a setting that is a logger's level.
const sourceLogger config.Source = 6

// Loggers are the loggers of this process: what a BROKER_LOGGER resource stands for.
type Loggers interface {
	controller.Loggers
	// Levels gives each logger's level by its name.
	Levels() map[string]string
}

// noLoggers stands for a process whose loggers cannot be changed.
type noLoggers struct{}

func (noLoggers) Has(string) bool           { return false }
func (noLoggers) SetLevel(string, string)   {}
func (noLoggers) Levels() map[string]string { return nil }

// describeLoggers lists the levels of the loggers asked for, all of them where names is nil.
func (a *API) describeLoggers(names []string) []config.Entry {
	var l []config.Entry
	for name, level := range a.o.Loggers.Levels() {
		if names == nil || slices.Contains(names, name) {
			l = append(l, config.Entry{
				Name: name, Value: &level, Source: sourceLogger, Type: config.String, Doc: "Level of this logger.",
				Synonyms: []config.Synonym{{Name: name, Value: &level, Source: sourceLogger}},
			})
		}
	}
	slices.SortFunc(l, func(a, b config.Entry) int {
		switch {
		case a.Name < b.Name:
			return -1
		case a.Name > b.Name:
			return 1
		}
		return 0
	})
	return l
}
