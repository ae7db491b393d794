"""Compiled loops: belief propagation on one junction tree, and mirror descent on it.

All tables lie one after the other in flat arrays. `Layout` says where.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

TINY = 1e-300


class Layout(NamedTuple):
    """Where the tables of a junction tree lie; a tuple, because compiled code takes those.

    Attributes:
        clique: Start of each clique's table, and the end; shape (cliques + 1,).
        parent: Position of each clique's parent, smaller than its own; -1 for the first.
        separator: Start of each clique's separator table, and the end; the first has none.
        below: Start in `maps` of the map from each clique's cells to its separator's.
        above: Likewise from its parent's cells.
        factor: Start of each factor's table, and the end; shape (factors + 1,).
        home: The clique that holds each factor.
        inside: Start in `maps` of the map from that clique's cells to the factor's.
        maps: All maps, one after the other.
    """

    clique: np.ndarray
    parent: np.ndarray
    separator: np.ndarray
    below: np.ndarray
    above: np.ndarray
    factor: np.ndarray
    home: np.ndarray
    inside: np.ndarray
    maps: np.ndarray


@njit(cache=True)
def propagate(  # noqa: PLR0912 - one pass up and one pass down, unrolled for the compiler
    potential: np.ndarray, at: Layout, belief: np.ndarray, marginal: np.ndarray
) -> bool:
    """Marginals of the distribution with the given log potentials (Hugin propagation).

    Args:
        potential: Log potentials of all factors.
        at: Where things lie.
        belief: Receives the probabilities of all cliques.
        marginal: Receives the probabilities of all factors.

    Returns:
        False where no cell has a probability that floating point can hold.
    """
    cliques, factors = len(at.parent), len(at.home)
    belief[:] = 1.0
    raised = np.empty(at.separator[-1])
    for f in range(factors):
        first, last = at.factor[f], at.factor[f + 1]
        weight = np.exp(potential[first:last] - potential[first:last].max())
        start, end = at.clique[at.home[f]], at.clique[at.home[f] + 1]
        inside = at.maps[at.inside[f] : at.inside[f] + end - start]
        for c in range(end - start):
            belief[start + c] *= weight[inside[c]]
    for i in range(cliques - 1, 0, -1):
        start, end = at.clique[i], at.clique[i + 1]
        up = raised[at.separator[i] : at.separator[i + 1]]
        up[:] = 0.0
        below = at.maps[at.below[i] : at.below[i] + end - start]
        for c in range(end - start):
            up[below[c]] += belief[start + c]
        largest = up.max()
        if not largest > TINY:
            return False
        start, end = at.clique[at.parent[i]], at.clique[at.parent[i] + 1]
        above = at.maps[at.above[i] : at.above[i] + end - start]
        for c in range(end - start):
            belief[start + c] *= up[above[c]] / largest
    total = belief[: at.clique[1]].sum()
    if not total > TINY:
        return False
    belief[: at.clique[1]] /= total
    for i in range(1, cliques):
        start, end = at.clique[at.parent[i]], at.clique[at.parent[i] + 1]
        up = raised[at.separator[i] : at.separator[i + 1]]
        down = np.zeros(len(up))
        above = at.maps[at.above[i] : at.above[i] + end - start]
        for c in range(end - start):
            down[above[c]] += belief[start + c]
        for s in range(len(up)):
            down[s] = down[s] / up[s] if up[s] > TINY else 0.0
        start, end = at.clique[i], at.clique[i + 1]
        below = at.maps[at.below[i] : at.below[i] + end - start]
        for c in range(end - start):
            belief[start + c] *= down[below[c]]
    marginal[:] = 0.0
    for f in range(factors):
        start, end = at.clique[at.home[f]], at.clique[at.home[f] + 1]
        inside = at.maps[at.inside[f] : at.inside[f] + end - start]
        own = marginal[at.factor[f] : at.factor[f + 1]]
        for c in range(end - start):
            own[inside[c]] += belief[start + c]
    return True


@njit(cache=True)
def descend(  # noqa: PLR0917 - compiled code takes arguments by position
    potential: np.ndarray,
    at: Layout,
    target: np.ndarray,
    weight: np.ndarray,
    belief: np.ndarray,
    iterations: int,
    tolerance: float,
) -> int:
    """Entropic mirror descent on sum(weight * (marginal - target)^2) / 2, from where it stands.

    A step is taken where it gains at least half of what the gradient promises; the next one is
    then twice as long, else half as long.

    Args:
        potential: Log potentials of all factors; changed in place.
        at: Where things lie.
        target: Measured probabilities of all factors.
        weight: Weight of each cell.
        belief: Receives the probabilities of all cliques.
        iterations: Most propagations.
        tolerance: Stop where ten steps together lower the loss by less than this share.

    Returns:
        The number of propagations.
    """
    marginal, other = np.empty(len(potential)), np.empty(len(potential))
    trial = np.empty(len(belief))
    propagate(potential, at, belief, marginal)
    loss = 0.5 * (weight * (marginal - target) ** 2).sum()
    step = 1.0 / max(weight.max(), 1e-12)
    before, since = loss, 0
    for count in range(iterations):
        slope = weight * (marginal - target)
        tried = potential - step * slope
        good = propagate(tried, at, trial, other)
        new = 0.5 * (weight * (other - target) ** 2).sum()
        promised = (slope * (marginal - other)).sum()
        if good and promised >= 0 and loss - new >= 0.5 * promised:
            potential[:] = tried
            marginal[:] = other
            belief[:] = trial
            loss = new
            step *= 2
            since += 1
            if since == 10:
                if before - loss <= tolerance * before:
                    return count + 1
                before, since = loss, 0
        else:
            step *= 0.5
            if step * weight.max() < 1e-9:
                return count + 1
    return iterations


@njit(cache=True)
def push(
    joint: np.ndarray, share: np.ndarray, into: np.ndarray, out_of: np.ndarray, cells: int
) -> np.ndarray:
    """Carry a joint table with another variable through a clique.

    Args:
        joint: Probabilities of each cell of the separator one comes from and each value of the
            other variable; shape (separator cells, values).
        share: Probability of each cell of the clique given that separator.
        into: The separator cell of each cell of the clique.
        out_of: The cell of each in the table that one goes to.
        cells: Number of those.

    Returns:
        Shape (cells, values).
    """
    found = np.zeros((cells, joint.shape[1]))
    for c in range(len(share)):
        if share[c] > 0:
            found[out_of[c]] += share[c] * joint[into[c]]
    return found


@njit(cache=True)
def distance(counts: np.ndarray, probability: np.ndarray, total: float) -> float:
    """L1 distance between counts and probabilities times a total."""
    found = 0.0
    for i in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            found += abs(counts[i, j] - total * probability[i, j])
    return found


@njit(cache=True)
def distance_apart(counts: np.ndarray, one: np.ndarray, two: np.ndarray, total: float) -> float:
    """Likewise, where the two variables are independent."""
    found = 0.0
    for i in range(counts.shape[0]):
        here = total * one[i]
        for j in range(counts.shape[1]):
            found += abs(counts[i, j] - here * two[j])
    return found
