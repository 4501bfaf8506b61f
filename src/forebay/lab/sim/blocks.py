"""Paged KV blocks as counts, and the prefix cache as a tree of shared blocks.

Every block is used (a sequence holds it), cached (nobody holds it, its contents are kept) or free.
Cached blocks are given up in the order in which they were last let go, and only when no free one
is left. A path in the tree is let go from its end, so a block always goes before the blocks it
continues.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Items


class Node:
    """Consecutive blocks of one hash, below the blocks of the hashes before it."""

    __slots__ = ("blocks", "children", "key", "parent", "references")

    def __init__(self, key: int, parent: Node | None, blocks: int) -> None:
        self.key = key
        self.parent = parent
        self.blocks = blocks
        self.references = 0
        self.children: dict[int, Node] | None = None


class BlockPool:
    """The blocks of one engine.

    ``free`` may stand below zero while a run of decode steps is under way: those blocks are owed,
    and ``settle`` takes them from the cached ones. ``free + cached`` is what can be had.
    """

    __slots__ = ("_idle", "_roots", "cached", "free", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self.cached = 0
        self._roots: dict[int, Node] = {}
        self._idle: OrderedDict[Node, None] = OrderedDict()

    def root(self, hash_blocks: int) -> Node:
        """The tree of hashes that stand for ``hash_blocks`` blocks each."""
        root = self._roots.get(hash_blocks)
        if root is None:
            root = self._roots[hash_blocks] = Node(0, None, 0)
        return root

    def match(self, hashes: Items[int], hash_blocks: int, most: int) -> list[Node]:
        """The longest cached path along ``hashes``, at most ``most`` of them."""
        found: list[Node] = []
        node = self._roots.get(hash_blocks)
        if node is None:
            return found
        for key in hashes[:most]:
            children = node.children
            if not children:
                break
            child = children.get(key)
            if child is None:
                break
            found.append(child)
            node = child
        return found

    def hold(self, nodes: list[Node]) -> None:
        """Take a reference to each node of a path."""
        idle = self._idle
        for node in nodes:
            if not node.references:
                del idle[node]
                self.cached -= node.blocks
            node.references += 1

    def release(self, nodes: list[Node]) -> None:
        """Give the references of a path back, from its end."""
        idle = self._idle
        for node in reversed(nodes):
            node.references -= 1
            if not node.references:
                idle[node] = None
                self.cached += node.blocks

    def publish(self, parent: Node, key: int, blocks: int) -> Node:
        """Turn ``blocks`` just computed by the caller into the child of ``parent``, held by it.

        When another one computed the same at the same time, the caller's blocks become free and
        it shares the other's.
        """
        children = parent.children
        if children is None:
            children = parent.children = {}
        node = children.get(key)
        if node is None:
            node = children[key] = Node(key, parent, blocks)
            node.references = 1
        else:
            self.hold([node])
            self.free += blocks
        return node

    def settle(self, reserve: int = 0) -> None:
        """Give cached blocks up until ``free + reserve`` is not below zero."""
        while self.free + reserve < 0:
            node, _ = self._idle.popitem(last=False)
            self.cached -= node.blocks
            self.free += node.blocks
            parent = node.parent
            if parent is not None and parent.children is not None:
                del parent.children[node.key]
