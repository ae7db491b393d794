"""A graphical model fitted to noisy marginals, made for marginals that come one at a time.

This is Private-PGM (McKenna, Sheldon and Miklau 2019, arXiv:1901.09136): of all distributions the
one with the smallest weighted squared error to the measured marginals. `mbi` has it too, on JAX,
which compiles anew for each new shape of the model; a mechanism that measures hundreds of
marginals one after the other then compiles most of the time. Here propagation is compiled once,
and a new marginal refits only the variables that it hangs together with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from panelbench_marginals.junction import (
    Clique,
    cells,
    growth,
    maximal,
    positions,
    tree,
    triangulated,
)
from panelbench_marginals.propagation import Layout, descend, push

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOLERANCE = 1e-3


@dataclass
class Factor:
    """All measurements of one marginal.

    Attributes:
        precision: Sum of 1 / variance.
        mean: Mean of the noisy counts, weighted by precision.
        potential: Log potentials of the fit.
    """

    precision: float
    mean: np.ndarray
    potential: np.ndarray


@dataclass
class Component:
    """Variables that hang together, with a junction tree; independent of all others.

    Attributes:
        sizes: Values of every variable of the model.
        factors: Measured marginals within it.
        cliques: Cliques of its junction tree, each after its parent.
        parents: Position of each clique's parent, -1 for the first.
        beliefs: Fitted probabilities of each clique's cells.
    """

    sizes: Sequence[int]
    factors: dict[Clique, Factor]
    cliques: list[Clique]
    parents: list[int]
    beliefs: list[np.ndarray] = field(default_factory=list)

    @property
    def variables(self) -> list[int]:
        """Its variables in order."""
        return sorted({v for clique in self.cliques for v in clique})

    @property
    def cells(self) -> int:
        """Cells of all cliques."""
        return sum(cells(clique, self.sizes) for clique in self.cliques)

    def separator(self, i: int) -> Clique:
        """Variables that a clique shares with its parent."""
        parent = self.cliques[self.parents[i]]
        return tuple(v for v in self.cliques[i] if v in parent)

    def layout(self) -> Layout:
        """Where its tables lie in flat arrays."""
        maps: list[np.ndarray] = []
        length = 0

        def start_of(clique: Clique, part: Clique) -> int:
            nonlocal length
            maps.append(positions(clique, part, self.sizes))
            length += len(maps[-1])
            return length - len(maps[-1])

        below, above, separators = [0], [0], [0]
        for i in range(1, len(self.cliques)):
            separator = self.separator(i)
            below.append(start_of(self.cliques[i], separator))
            above.append(start_of(self.cliques[self.parents[i]], separator))
            separators.append(cells(separator, self.sizes))
        home, inside = [], []
        for factor in self.factors:
            at = next(i for i, c in enumerate(self.cliques) if set(factor) <= set(c))
            home.append(at)
            inside.append(start_of(self.cliques[at], factor))

        def starts(lengths: list[int]) -> np.ndarray:
            return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

        return Layout(
            clique=starts([cells(c, self.sizes) for c in self.cliques]),
            parent=np.array(self.parents, dtype=np.int64),
            separator=starts(separators),
            below=np.array(below, dtype=np.int64),
            above=np.array(above, dtype=np.int64),
            factor=starts([cells(f, self.sizes) for f in self.factors]),
            home=np.array(home, dtype=np.int64),
            inside=np.array(inside, dtype=np.int64),
            maps=np.concatenate(maps),
        )

    def fit(self, total: float, iterations: int) -> None:
        """Fit it to its measurements, from the potentials that it has."""
        at = self.layout()
        factors = list(self.factors.values())
        potential = np.concatenate([f.potential for f in factors])
        weight = np.concatenate([np.full(f.mean.size, f.precision * total**2) for f in factors])
        target = np.concatenate([f.mean / total for f in factors])
        belief = np.empty(at.clique[-1])
        weight /= weight.max()
        descend(potential, at, target, weight, belief, iterations, TOLERANCE)
        for factor, first, last in zip(factors, at.factor[:-1], at.factor[1:], strict=True):
            factor.potential = potential[first:last]
        self.beliefs = np.split(belief, at.clique[1:-1])

    def table(self, i: int, part: Clique) -> np.ndarray:
        """Fitted probabilities of some variables of one clique, flat."""
        at = positions(self.cliques[i], part, self.sizes)
        return np.bincount(at, weights=self.beliefs[i], minlength=cells(part, self.sizes))

    def joints(self, v: int) -> Iterator[tuple[int, np.ndarray]]:
        """The joint probabilities of each other variable with `v`, shape (its values, v's)."""
        around: list[list[int]] = [[] for _ in self.cliques]
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                around[i].append(parent)
                around[parent].append(i)
        first = next(i for i, clique in enumerate(self.cliques) if v in clique)
        seen = {v}
        queue: list[tuple[int, int, Clique, np.ndarray]] = [
            (first, -1, (v,), np.eye(self.sizes[v]))
        ]
        while queue:
            i, origin, entrance, joint = queue.pop()
            clique = self.cliques[i]
            into = positions(clique, entrance, self.sizes)
            share = self.beliefs[i]
            if origin >= 0:
                known = np.bincount(into, weights=share, minlength=len(joint))
                share = share / np.maximum(known, 1e-300)[into]
            for u in clique:
                if u not in seen:
                    seen.add(u)
                    yield u, self._pushed(joint, share, into, clique, (u,))
            for j in around[i]:
                if j != origin:
                    exit_ = tuple(u for u in clique if u in self.cliques[j])
                    queue.append((j, i, exit_, self._pushed(joint, share, into, clique, exit_)))

    def _pushed(
        self, joint: np.ndarray, share: np.ndarray, into: np.ndarray, clique: Clique, part: Clique
    ) -> np.ndarray:
        out_of = positions(clique, part, self.sizes)
        found: np.ndarray = push(joint, share, into, out_of, cells(part, self.sizes))
        return found

    def project(self, wanted: Clique) -> np.ndarray:
        """Fitted probabilities of any variables of the component, shape (values of each...)."""
        shape = [self.sizes[v] for v in wanted]
        for i, clique in enumerate(self.cliques):
            if set(wanted) <= set(clique):
                return self.table(i, wanted).reshape(shape)
        keep = set(range(len(self.cliques)))
        while True:  # leaves that hold nothing wanted which their neighbor has not
            children = {self.parents[i] for i in keep}
            leaves = [
                i
                for i in keep - children
                if self.parents[i] in keep
                and not (set(self.cliques[i]) - set(self.separator(i))) & set(wanted)
            ]
            if not leaves:
                break
            keep -= set(leaves)
        keep = self._without_roots(keep, set(wanted))
        operands: list[object] = []
        names: dict[int, int] = {}
        for i in sorted(keep):
            clique = self.cliques[i]
            belief = self.beliefs[i]
            if self.parents[i] in keep:
                into = positions(clique, self.separator(i), self.sizes)
                known = np.bincount(into, weights=belief)
                belief = belief / np.maximum(known, 1e-300)[into]
            axes = [names.setdefault(v, len(names)) for v in clique]
            operands += [belief.reshape([self.sizes[v] for v in clique]), axes]
        out = [names[v] for v in wanted]
        found: np.ndarray = np.einsum(*operands, out, optimize="greedy")  # type: ignore[call-overload] # numpy types no sublists
        return found

    def _without_roots(self, keep: set[int], wanted: set[int]) -> set[int]:
        """Drop the first clique while it has one child and all that is wanted lies below."""
        while True:
            root = min(keep)
            children = [i for i in keep if self.parents[i] == root]
            if len(children) != 1 or set(self.cliques[root]) & wanted - set(
                self.cliques[children[0]]
            ):
                return keep
            keep = keep - {root}


class Model:
    """A distribution over several variables, fitted to noisy marginals.

    Attributes:
        sizes: Values of each variable.
        total: Number of records that counts add up to.
        of: The component of each variable.
    """

    def __init__(self, sizes: Sequence[int], total: float) -> None:
        self.sizes = tuple(int(size) for size in sizes)
        self.total = total
        self.of: list[Component] = []
        for v, size in enumerate(self.sizes):
            flat = Factor(precision=0.0, mean=np.zeros(size), potential=np.zeros(size))
            self.of.append(
                Component(
                    sizes=self.sizes,
                    factors={(v,): flat},
                    cliques=[(v,)],
                    parents=[-1],
                    beliefs=[np.full(size, 1.0 / size)],
                )
            )

    @property
    def components(self) -> list[Component]:
        """All components, in the order of their first variable."""
        return list({id(component): component for component in self.of}.values())

    @property
    def cells(self) -> int:
        """Cells of all cliques of all components."""
        return sum(component.cells for component in self.components)

    def estimated_total(self) -> float:
        """The number of records that all measured marginals add up to, 1 or more."""
        factors = [f for part in self.components for f in part.factors.values() if f.precision]
        weights = [f.precision / f.mean.size for f in factors]
        return max(1.0, float(np.average([f.mean.sum() for f in factors], weights=weights)))

    def added_cells(self, clique: Clique) -> int:
        """By how many cells the model grows with a marginal."""
        parts = list({id(self.of[v]): self.of[v] for v in clique}.values())
        if len(parts) == 1 and any(set(clique) <= set(c) for c in parts[0].cliques):
            return 0
        factors = [factor for part in parts for factor in part.factors]
        grown = triangulated([*factors, clique], self.sizes)
        return sum(cells(c, self.sizes) for c in grown) - sum(part.cells for part in parts)

    def add(self, clique: Clique, counts: np.ndarray, stddev: float) -> Component:
        """Take in a noisy marginal; nothing is fitted yet.

        Returns:
            The component that now holds it, to be fitted.
        """
        parts = list({id(self.of[v]): self.of[v] for v in clique}.values())
        factors = {key: factor for part in parts for key, factor in part.factors.items()}
        own = factors.get(clique)
        if own is None:
            shape = cells(clique, self.sizes)
            own = factors[clique] = Factor(
                precision=0.0, mean=np.zeros(shape), potential=np.zeros(shape)
            )
        precision = own.precision + 1 / stddev**2
        own.mean = own.mean + (counts.ravel() - own.mean) / (stddev**2 * precision)
        own.precision = precision
        if len(parts) == 1 and any(set(clique) <= set(c) for c in parts[0].cliques):
            return parts[0]
        grown = Component(sizes=self.sizes, factors=factors, cliques=[], parents=[])
        grown.cliques, grown.parents = tree(self._grown(clique, parts, factors))
        for v in grown.variables:
            self.of[v] = grown
        return grown

    def _grown(
        self, clique: Clique, parts: list[Component], factors: dict[Clique, Factor]
    ) -> list[Clique]:
        """Cliques for the joined factors: eliminated afresh, or grown if that is smaller."""
        fresh = triangulated(factors, self.sizes)
        if len(parts) > 1 or len(clique) != 2:
            return fresh
        options = [fresh]
        for v, u in (clique, clique[::-1]):
            _, path = growth(v, parts[0].cliques, parts[0].parents, self.sizes)[u]
            options.append(
                maximal((*c, v) if i in path else c for i, c in enumerate(parts[0].cliques))
            )
        return min(options, key=lambda cs: sum(cells(c, self.sizes) for c in cs))

    def project(self, wanted: Clique) -> np.ndarray:
        """Fitted probabilities of some variables, shape (values of each...)."""
        found = np.ones(())
        order: list[int] = []
        for component in self.components:
            part = tuple(v for v in wanted if self.of[v] is component)
            if part:
                found = np.multiply.outer(found, component.project(part))
                order += part
        return found.transpose([order.index(v) for v in wanted])
