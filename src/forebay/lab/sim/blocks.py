"""Paged KV blocks as counts, and the prefix cache as a tree of what sequences share.

Every block is used (a sequence holds it), cached (nobody holds it, its contents are kept) or free.
Cached blocks are given up in the order in which they were last let go, and only when no free one
is left. A path in the tree is let go from its end, so a block always goes before the blocks it
continues.

A node of the tree is a stretch of hashes that every holder so far went through as a whole, so that
the cost of a prefix depends on where prefixes part, not on their length.
"""

from __future__ import annotations

from collections import OrderedDict

Hashes = tuple[int, ...]


class Node:
    """Hashes in a row, each of which stands for ``size`` blocks, below those of ``parent``."""

    __slots__ = ("children", "hashes", "parent", "references", "size")

    def __init__(self, hashes: Hashes, parent: Node | None, size: int) -> None:
        self.hashes = hashes
        self.parent = parent  # None of a root, which has no hashes
        self.size = size
        self.references = 0
        self.children: dict[int, Node] = {}


class Match:
    """The longest cached beginning of some hashes: ``count`` of them, ending inside ``node``.

    ``idle_blocks`` are those of its blocks that nobody holds.
    """

    __slots__ = ("count", "idle_blocks", "inside", "node")

    def __init__(self, node: Node, count: int, inside: int) -> None:
        self.node = node
        self.count = count
        self.inside = inside  # how many of the node's hashes belong to it
        idle = 0
        above: Node | None = node
        while above is not None and not above.references:
            idle += inside
            above = above.parent
            inside = len(above.hashes) if above is not None else 0
        self.idle_blocks = idle * node.size


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

    def match(self, hashes: Hashes, size: int, most: int) -> Match:
        """How much of ``hashes``, at most ``most`` of them, is cached; changes nothing."""
        node = self._roots.get(size)
        if node is None:
            node = self._roots[size] = Node((), None, size)
        count = inside = 0
        while count < most:
            child = node.children.get(hashes[count])
            if child is None:
                break
            node = child
            inside = _common(node.hashes, hashes, count, most)
            count += inside
            if inside < len(node.hashes):
                break
        return Match(node, count, inside)

    def hold(self, match: Match) -> Node:
        """Take a reference to all of a match; give it back with ``release``."""
        node = match.node
        if match.inside < len(node.hashes):
            node = self._split(node, match.inside)
        above: Node | None = node
        while above is not None:
            self._take(above)
            above = above.parent
        return node

    def release(self, node: Node) -> None:
        """Give the references of a path back, from its end."""
        idle = self._idle
        above = node.parent
        while above is not None:  # the root stays
            node.references -= 1
            if not node.references:
                idle[node] = None
                self.cached += len(node.hashes) * node.size
            node, above = above, above.parent
        node.references -= 1

    def publish(self, node: Node, hashes: Hashes) -> Node:
        """Let others share what was just computed after ``node``, which the caller holds.

        The caller's own blocks become those of the tree, held by it. Where another one computed
        the same at the same time they become free, and it shares the other's.
        """
        count, most = 0, len(hashes)
        while count < most:
            child = node.children.get(hashes[count])
            if child is None:
                child = Node(hashes[count:], node, node.size)
                child.references = 1
                node.children[hashes[count]] = child
                return child
            inside = _common(child.hashes, hashes, count, most)
            if inside < len(child.hashes):
                child = self._split(child, inside)
            self._take(child)
            self.free += inside * node.size
            count += inside
            node = child
        return node

    def settle(self, reserve: int = 0) -> None:
        """Give cached blocks up until ``free + reserve`` is not below zero."""
        idle = self._idle
        while (missing := -self.free - reserve) > 0:
            node = next(iter(idle))
            hashes, size = node.hashes, node.size
            count = min(len(hashes), -(-missing // size))
            if count == len(hashes):
                del idle[node]
                assert node.parent is not None
                del node.parent.children[hashes[0]]
            else:
                node.hashes = hashes[:-count]
            self.cached -= count * size
            self.free += count * size

    def _take(self, node: Node) -> None:
        if not node.references and node.parent is not None:
            self._idle.pop(node, None)  # a part just split off is not in there
            self.cached -= len(node.hashes) * node.size
        node.references += 1

    @staticmethod
    def _split(node: Node, at: int) -> Node:
        """Make the first ``at`` hashes a node of their own, which must be taken at once.

        The rest keeps its place among the idle ones.
        """
        parent, hashes = node.parent, node.hashes
        head = Node(hashes[:at], parent, node.size)
        head.references = node.references
        head.children[hashes[at]] = node
        assert parent is not None
        parent.children[hashes[0]] = head
        node.hashes = hashes[at:]
        node.parent = head
        return head


def _common(stretch: Hashes, hashes: Hashes, begin: int, end: int) -> int:
    """How many hashes of a stretch equal those of ``hashes`` between ``begin`` and ``end``."""
    most = min(len(stretch), end - begin)
    if stretch[:most] == hashes[begin : begin + most]:
        return most
    count = 0
    while stretch[count] == hashes[begin + count]:
        count += 1
    return count
