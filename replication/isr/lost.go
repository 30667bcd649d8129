package isr

import "github.com/keeplog/keeplog/log"

// Lost tells which offsets the disk here has lost and the log went on behind; ok is false where there are none.
func (p *Partition) Lost() (o log.Lost, ok bool) {
	if p.log == nil {
		return log.Lost{}, false
	}
	return p.log.Lost()
}
