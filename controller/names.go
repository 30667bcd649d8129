package controller

import (
	"strings"

	"github.com/keeplog/keeplog/metadata"
)

// maxName is the longest topic name: with a dash, a partition and a suffix it still is a file name.
const maxName = 249

// CheckTopicName says what is wrong with a topic name: nil, or an [Answer] of kind ErrInvalidTopic. A name that passes can be
// part of a file name.
func CheckTopicName(name string) error {
	const invalid = "Topic name is invalid: "
	switch {
	case name == "":
		return answer(ErrInvalidTopic, invalid+"the empty string is not allowed")
	case name == "." || name == "..":
		return answer(ErrInvalidTopic, invalid+"'%s' is not allowed", name)
	case len(name) > maxName:
		return answer(ErrInvalidTopic, invalid+"the length of '%s' is longer than the max allowed length %d", name, maxName)
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return answer(ErrInvalidTopic, invalid+"'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return nil
}

// collisions finds topics whose names differ in dots and underscores only: they would share one name in metrics.
type collisions map[string]string

func flat(name string) string { return strings.ReplaceAll(name, ".", "_") }

// newCollisions knows the names of the image that could collide.
func newCollisions(img *metadata.Image) collisions {
	c := collisions{}
	for t := range img.Topics() {
		if strings.ContainsAny(t.Name, "._") {
			c[flat(t.Name)] = t.Name
		}
	}
	return c
}

func (c collisions) check(name string) error {
	if other, ok := c[flat(name)]; ok && other != name {
		return answer(ErrInvalidTopic, "Topic '%s' collides with existing topic: %s", name, other)
	}
	return nil
}
