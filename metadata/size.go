package metadata

// Size is how many brokers the cluster counts: the bootstrap voters, and all that registered and were not removed, also those that are down.
func (m *Image) Size() int {
	n := m.brokers.len()
	for _, v := range m.voters {
		if _, ok := m.brokers.get(v.ID); !ok {
			n++
		}
	}
	return n
}
