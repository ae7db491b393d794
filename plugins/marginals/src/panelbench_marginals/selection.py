"""The candidates of AIM: which marginals may be measured, and how badly a model has each."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from panelbench_marginals.junction import Clique, cells, growth
from panelbench_marginals.propagation import distance, distance_apart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from panelbench_marginals.graphical import Component, Model


def workload_of(
    sizes: Sequence[int], *, degree: int, max_cells: int, most: int | None
) -> list[Clique]:
    """All marginals over `degree` variables with few enough cells, or a public random part.

    Args:
        sizes: Values of each variable.
        degree: 2 or 3 variables a marginal.
        max_cells: Largest marginals that count.
        most: How many at most; all where None. The part is the same in every run.
    """
    found = [
        clique
        for clique in itertools.combinations(range(len(sizes)), degree)
        if cells(clique, sizes) <= max_cells
    ]
    if most is None or len(found) <= most:
        return found
    rng = np.random.default_rng(0)
    return [found[i] for i in sorted(rng.choice(len(found), most, replace=False))]


def weights_of(workload: Sequence[Clique], variables: int) -> dict[Clique, float]:
    """The weight of every marginal that lies in one of the workload: how much it overlaps all.

    >>> weights_of([(0, 1), (1, 2)], 3)[0, 1]
    3.0
    """
    single = np.zeros(variables)
    for clique in workload:
        single[list(clique)] += 1
    closed = {
        part
        for clique in workload
        for size in range(1, len(clique) + 1)
        for part in itertools.combinations(clique, size)
    }
    closed |= {(v,) for v in range(variables)}
    return {part: float(single[list(part)].sum()) for part in sorted(closed)}


def counted(codes: np.ndarray, clique: Clique, sizes: Sequence[int]) -> np.ndarray:
    """Exact counts of a marginal, shape (values of each variable...)."""
    shape = [sizes[v] for v in clique]
    at = np.ravel_multi_index(tuple(codes[:, v] for v in clique), shape)
    counts = np.bincount(at, minlength=math.prod(shape)).reshape(shape)
    return counts.astype(np.float64)


class Candidates:
    """L1 errors of a model on candidate marginals, kept until the model changes there.

    Attributes:
        cliques: The candidates.
        weight: The weight of each.
        cells: Cells of each.
        error: L1 distance of each between exact counts and the model.
        growth: Upper bound on the cells that measuring each adds to the model.
    """

    def __init__(self, codes: np.ndarray, model: Model, weights: dict[Clique, float]) -> None:
        self.cliques = list(weights)
        self.weight = np.array(list(weights.values()))
        self.cells = np.array([cells(c, model.sizes) for c in self.cliques])
        self.error = np.zeros(len(self.cliques))
        self.growth = np.zeros(len(self.cliques))
        self._counts = [counted(codes, c, model.sizes) for c in self.cliques]
        self._number = {clique: i for i, clique in enumerate(self.cliques)}
        self._of: list[list[int]] = [[] for _ in model.sizes]
        for i, clique in enumerate(self.cliques):
            for v in clique:
                self._of[v].append(i)

    def counts(self, i: int) -> np.ndarray:
        """Exact counts of a candidate."""
        return self._counts[i]

    def choose(
        self,
        model: Model,
        *,
        cells: float,
        noise: float,
        epsilon: float,
        l1_sensitivity: float,
        rng: np.random.Generator,
    ) -> int:
        """Pick one by the exponential mechanism.

        Args:
            model: What is fitted so far.
            cells: How large the model may become; what adds nothing may always be picked.
            noise: Standard deviation of the coming measurement.
            epsilon: As in `panelbench.ExponentialEvent`.
            l1_sensitivity: By how much one user moves the counts of a marginal.
            rng: The source of randomness.
        """
        allowed = (self.growth == 0) | (model.cells + self.growth <= cells)
        excess = self.error - math.sqrt(2 / math.pi) * noise * self.cells
        score = np.where(allowed, self.weight * excess, -np.inf)
        largest = self.weight[allowed].max() * l1_sensitivity
        if largest == 0:  # no marginal of the workload is small enough: all are equally good
            return int(rng.choice(np.flatnonzero(allowed)))
        logits = epsilon / (2 * largest) * (score - score.max())
        probability = np.exp(logits)
        return int(rng.choice(len(score), p=probability / probability.sum()))

    def refresh(self, model: Model, changed: Component) -> None:
        """Look again at all candidates that share a variable with a component."""
        inside = set(changed.variables)
        ones = [model.project((v,)) for v in range(len(model.sizes))]
        for i in {i for v in inside for i in self._of[v]}:
            clique, counts = self.cliques[i], self._counts[i]
            if len(clique) == 1:
                self.error[i] = np.abs(counts - model.total * ones[clique[0]]).sum()
            elif len(clique) == 2 and not inside.issuperset(clique):
                one, two = clique
                self.error[i] = distance_apart(counts, ones[one], ones[two], model.total)
                self.growth[i] = self.cells[i]
            elif len(clique) > 2:
                self.error[i] = np.abs(counts - model.total * model.project(clique)).sum()
                self.growth[i] = model.added_cells(clique)
        ways = {v: growth(v, changed.cliques, changed.parents, model.sizes) for v in inside}
        for v in inside:
            for u, joint in changed.joints(v):
                number = self._number.get((v, u))
                if number is not None:
                    self.error[number] = distance(self._counts[number], joint.T, model.total)
                    self.growth[number] = min(ways[v][u][0], ways[u][v][0])
