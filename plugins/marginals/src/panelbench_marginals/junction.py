"""Junction trees: which cliques an exact fit of given marginals needs, and how they hang together.

Variables are numbered from 0 and cliques are increasing tuples of them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Clique = tuple[int, ...]


def cells(clique: Iterable[int], sizes: Sequence[int]) -> int:
    """Number of cells of a marginal."""
    return math.prod(sizes[v] for v in clique)


def maximal(cliques: Iterable[Iterable[int]]) -> list[Clique]:
    """The cliques that lie in no other one.

    >>> maximal([(0,), (0, 1), (1, 2), (1, 0)])
    [(0, 1), (1, 2)]
    """
    found: list[set[int]] = []
    for clique in sorted({tuple(sorted(c)) for c in cliques}, key=lambda c: (-len(c), c)):
        if not any(larger.issuperset(clique) for larger in found):
            found.append(set(clique))
    return sorted(tuple(sorted(c)) for c in found)


def triangulated(cliques: Iterable[Clique], sizes: Sequence[int]) -> list[Clique]:
    """Maximal cliques of a chordal graph that covers `cliques`.

    Variables are eliminated greedily, the one whose clique is smallest first.
    """
    beside: dict[int, set[int]] = {}
    for clique in cliques:
        for v in clique:
            beside.setdefault(v, set()).update(u for u in clique if u != v)
    cost = {v: cells((v, *beside[v]), sizes) for v in beside}
    eliminated: list[Clique] = []
    while beside:
        v = min(cost, key=lambda u: (cost[u], u))
        around = beside.pop(v)
        del cost[v]
        eliminated.append((v, *around))
        for u in around:
            beside[u] |= around - {u}
            beside[u].discard(v)
        for u in around:
            cost[u] = cells((u, *beside[u]), sizes)
    return maximal(eliminated)


def tree(cliques: Sequence[Clique]) -> tuple[list[Clique], list[int]]:
    """Order the cliques of a connected chordal graph so that each follows its parent.

    A spanning tree of largest separators is a junction tree.

    Returns:
        The cliques in order, and the position of each one's parent, -1 for the first.
    """
    order, parents = [0], [-1]
    best = {i: (len(set(cliques[0]) & set(cliques[i])), 0) for i in range(1, len(cliques))}
    while best:
        chosen = max(best, key=lambda i: (best[i][0], -i))
        _, parent = best.pop(chosen)
        parents.append(parent)
        order.append(chosen)
        here = set(cliques[chosen])
        for i, (shared, _) in best.items():
            if (now := len(here.intersection(cliques[i]))) > shared:
                best[i] = (now, len(order) - 1)
    return [cliques[i] for i in order], parents


def growth(
    v: int, cliques: Sequence[Clique], parents: Sequence[int], sizes: Sequence[int]
) -> dict[int, tuple[int, tuple[int, ...]]]:
    """What it costs to bring `v` together with every other variable of its tree.

    Adding `v` to all cliques on the way to one that holds the other variable keeps the tree a
    junction tree.

    Returns:
        For each variable, the added cells and the positions of the cliques to add `v` to.
    """
    around: list[list[int]] = [[] for _ in cliques]
    for i, parent in enumerate(parents):
        if parent >= 0:
            around[i].append(parent)
            around[parent].append(i)
    own = [i for i, clique in enumerate(cliques) if v in clique]
    reached: dict[int, tuple[int, tuple[int, ...]]] = {u: (0, ()) for i in own for u in cliques[i]}
    seen = set(own)
    queue: list[tuple[int, int, tuple[int, ...]]] = [(i, 0, ()) for i in own]
    while queue:
        i, cost, path = queue.pop()
        for j in around[i]:
            if j in seen:
                continue
            seen.add(j)
            more = cost + cells(cliques[j], sizes) * (sizes[v] - 1)
            for u in cliques[j]:
                if u not in reached or more < reached[u][0]:
                    reached[u] = (more, (*path, j))
            queue.append((j, more, (*path, j)))
    del reached[v]
    return reached


def positions(clique: Clique, part: Iterable[int], sizes: Sequence[int]) -> np.ndarray:
    """For each cell of `clique`, the number of its cell in the marginal over `part`."""
    shape = tuple(sizes[v] for v in clique)
    return _positions(shape, tuple(clique.index(v) for v in part))


@lru_cache(maxsize=64)
def _positions(shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    found = np.zeros(shape, dtype=np.int32)
    stride = 1
    for axis in reversed(axes):
        steps = np.arange(shape[axis], dtype=np.int32) * stride
        found += steps.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        stride *= shape[axis]
    found = found.ravel()
    found.setflags(write=False)
    return found
