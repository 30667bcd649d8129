package metadata

import "iter"

// tree is a persistent sorted map: put and without return a new tree that shares all but the path to the key (an AVL tree,
// so a path is at most 1.44·log2(n) nodes). The zero tree with an order is empty.
type tree[K, V any] struct {
	root  *node[K, V]
	order func(a, b K) int
}

type node[K, V any] struct {
	key         K
	value       V
	left, right *node[K, V]
	height      int8
	size        int
}

func newTree[K, V any](order func(a, b K) int) tree[K, V] { return tree[K, V]{order: order} }

func (t tree[K, V]) len() int { return t.root.count() }

func (t tree[K, V]) get(key K) (value V, ok bool) {
	for n := t.root; n != nil; {
		switch c := t.order(key, n.key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n.value, true
		}
	}
	return value, false
}

func (t tree[K, V]) put(key K, value V) tree[K, V] {
	t.root = t.insert(t.root, key, value)
	return t
}

func (t tree[K, V]) without(key K) tree[K, V] {
	if _, ok := t.get(key); ok {
		t.root = t.remove(t.root, key)
	}
	return t
}

// all goes through the tree in order.
func (t tree[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.root.walk(yield) }
}

func (n *node[K, V]) walk(yield func(K, V) bool) bool {
	return n == nil || n.left.walk(yield) && yield(n.key, n.value) && n.right.walk(yield)
}

func (t tree[K, V]) insert(n *node[K, V], key K, value V) *node[K, V] {
	if n == nil {
		return join(key, value, nil, nil)
	}
	switch c := t.order(key, n.key); {
	case c < 0:
		return balance(n.key, n.value, t.insert(n.left, key, value), n.right)
	case c > 0:
		return balance(n.key, n.value, n.left, t.insert(n.right, key, value))
	}
	return join(key, value, n.left, n.right)
}

// remove takes out a key that is there.
func (t tree[K, V]) remove(n *node[K, V], key K) *node[K, V] {
	switch c := t.order(key, n.key); {
	case c < 0:
		return balance(n.key, n.value, t.remove(n.left, key), n.right)
	case c > 0:
		return balance(n.key, n.value, n.left, t.remove(n.right, key))
	case n.left == nil:
		return n.right
	case n.right == nil:
		return n.left
	}
	next := n.right
	for next.left != nil {
		next = next.left
	}
	return balance(next.key, next.value, n.left, t.remove(n.right, next.key))
}

func (n *node[K, V]) tall() int8 {
	if n == nil {
		return 0
	}
	return n.height
}

func (n *node[K, V]) count() int {
	if n == nil {
		return 0
	}
	return n.size
}

func join[K, V any](key K, value V, left, right *node[K, V]) *node[K, V] {
	return &node[K, V]{
		key: key, value: value, left: left, right: right,
		height: 1 + max(left.tall(), right.tall()), size: 1 + left.count() + right.count(),
	}
}

// balance joins two trees whose heights differ by at most 2.
func balance[K, V any](key K, value V, left, right *node[K, V]) *node[K, V] {
	switch d := left.tall() - right.tall(); {
	case d > 1 && left.left.tall() >= left.right.tall():
		return join(left.key, left.value, left.left, join(key, value, left.right, right))
	case d > 1:
		m := left.right
		return join(m.key, m.value, join(left.key, left.value, left.left, m.left), join(key, value, m.right, right))
	case d < -1 && right.right.tall() >= right.left.tall():
		return join(right.key, right.value, join(key, value, left, right.left), right.right)
	case d < -1:
		m := right.left
		return join(m.key, m.value, join(key, value, left, m.left), join(right.key, right.value, m.right, right.right))
	}
	return join(key, value, left, right)
}
