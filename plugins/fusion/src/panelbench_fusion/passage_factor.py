"""The best channel where a sensor passes once a window: it comes, or it goes, or it stays."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from panelbench import NeighboringRelation
from panelbench_fusion.answers import Answers
from panelbench_fusion.factor import fractional_difference
from panelbench_fusion.schedule import least

if TYPE_CHECKING:
    from panelbench_fusion.model import Model

POWER = 0.2
"""Of the fractional difference to begin with."""
VALUE_SHARE = 0.1
"""Of what a sensor that stays costs, the part of its values to begin with."""
EXPONENTS = (16.0, 64.0, 256.0)
"""Under replace-one: of the norm that stands in for the largest cost, one a round."""
LEAST = 1e-150
"""Of what is divided by."""


class Goal:
    """The error that a model expects of answers, as a function of free numbers.

    Whatever the numbers, answers cost the same for every sensor that comes or goes: what one that
    leaves at step b has not spent by then, its leaving spends; one that comes spends all on that.
    So under add-or-remove-one nothing is left to be scaled. A column of free numbers has one more
    row than the channel, which takes what is better not spent. Under replace-one, where distances
    between answers count too, they are scaled by a p-norm of what changes cost.

    Args:
        model: A Gaussian model of the state and (counts, arrivals, far at the start, values).
        supports: As in `passage.supports`.
        total: Q, what the dearest change may cost.
        relation: The neighboring relation.
        values: Number of value coordinates.
    """

    def __init__(
        self,
        model: Model,
        supports: np.ndarray,
        total: float,
        relation: NeighboringRelation,
        *,
        values: int,
    ) -> None:
        steps = model.steps
        self._model, self._supports, self._relation = model, supports, relation
        self._steps, self._values, self._total = steps, values, total
        row = np.arange(steps + 1)[:, None]
        self._free = np.flatnonzero((row >= np.arange(steps)) & (np.arange(steps) > 0))
        self._sizes = np.cumsum([steps, steps * values, len(self._free), len(self._free)])

    def start(self) -> np.ndarray:
        """Answers of a fractional difference."""
        steps = self._steps
        prefix = fractional_difference(steps, POWER).cumsum(axis=1)
        whole = prefix[:, -1]
        left, came = np.zeros((steps + 1, steps)), np.zeros((steps + 1, steps))
        left[:steps, 1:] = np.tril(prefix[:, :-1], -1)
        came[:steps, 1:] = np.tril(whole[:, None] - prefix[:, :-1], -1)
        most = float(whole @ whole)
        left[steps] = np.sqrt(np.maximum(_from(whole**2) - np.square(left).sum(axis=0), 0.0))
        came[steps] = np.sqrt(np.maximum(most - np.square(came).sum(axis=0), 0.0))
        share = VALUE_SHARE / (1 - VALUE_SHARE) * most
        gains = np.full(steps * self._values, math.sqrt(share / max(1, steps * self._values)))
        return np.concatenate(
            [whole, gains, left.ravel()[self._free], came.ravel()[self._free], whole]
        )

    def answers(self, flat: np.ndarray) -> Answers:
        """The answers before they are scaled for replace-one."""
        return self._made(flat)[0]

    def loss(self, flat: np.ndarray, exponent: float) -> tuple[float, np.ndarray]:
        """The expected error and its gradient; `exponent` is that of the norm."""
        found, known = self._made(flat)
        if self._relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
            error, slope = self._model.error(found.channel())
            by = Answers.of_slope(slope, self._steps, self._values)
        else:
            cost, by_cost = _pair_norm(found, self._supports, exponent)
            scale = math.sqrt(self._total / cost)
            error, slope = self._model.error(found.times(scale).channel())
            by = Answers.of_slope(slope, self._steps, self._values)
            by = by.times(scale).plus(-scale / (2 * cost) * by.dot(found), by_cost)
        return error, self._slope(by, found, known)

    def _parts(self, flat: np.ndarray) -> tuple[np.ndarray, ...]:
        steps = self._steps
        stay, gains, left, came, far = np.split(flat, self._sizes)
        columns = []
        for free in (left, came):
            full = np.zeros((steps + 1) * steps)
            full[self._free] = free
            columns.append(full.reshape(steps + 1, steps))
        return stay, gains.reshape(steps, self._values), *columns, far

    def _made(self, flat: np.ndarray) -> tuple[Answers, tuple[np.ndarray, ...]]:
        """The answers, and what `_slope` needs to know."""
        stay, gains, left, came, far = self._parts(flat)
        scale = math.sqrt(self._total / (float(stay @ stay) + float(np.vdot(gains, gains))))
        stay, gains = scale * stay, scale * gains
        of_values = np.square(gains).sum(axis=1)
        spent = np.square(stay) + of_values
        rest_left = np.sqrt(np.maximum(_from(spent), LEAST))
        rest_came = np.sqrt(np.maximum(self._total - _from(of_values), LEAST))
        norms = [np.sqrt(np.maximum(np.square(one).sum(axis=0), LEAST)) for one in (left, came)]
        left, came, length = left / norms[0], came / norms[1], float(np.sqrt(far @ far))
        found = Answers(
            stay=stay,
            leave=(left * rest_left)[:-1],
            enter=(came * rest_came)[:-1],
            far=rest_came[0] * far / length,
            gains=gains,
        )
        known = (left, came, far / length, rest_left, rest_came, *norms)
        return found, (*known, np.array([scale, length]))

    def _slope(self, by: Answers, found: Answers, known: tuple[np.ndarray, ...]) -> np.ndarray:
        """The gradient in the free numbers, from that in the answers."""
        left, came, far, rest_left, rest_came, norm_left, norm_came, scales = known
        to_left, along_left = _through(by.leave, left, rest_left, norm_left)
        to_came, along_came = _through(by.enter, came, rest_came, norm_came)
        along_far = float(far @ by.far)
        to_far = rest_came[0] / scales[1] * (by.far - along_far * far)
        along_left[0] = 0.0
        along_came[0] = along_far
        by_spent = np.cumsum(along_left / (2 * rest_left))
        by_values = by_spent - np.cumsum(along_came / (2 * rest_came))
        to_stay = by.stay + 2 * found.stay * by_spent
        to_gains = by.gains + 2 * found.gains * by_values[:, None]
        along = float(found.stay @ to_stay + np.vdot(found.gains, to_gains)) / self._total
        to_stay = scales[0] * (to_stay - along * found.stay)
        to_gains = scales[0] * (to_gains - along * found.gains)
        return np.concatenate(
            [
                to_stay,
                to_gains.ravel(),
                to_left.ravel()[self._free],
                to_came.ravel()[self._free],
                to_far,
            ]
        )


def _from(spent: np.ndarray) -> np.ndarray:
    """Sums from each step to the last."""
    return np.asarray(spent[::-1].cumsum()[::-1])


def _through(
    by: np.ndarray, unit: np.ndarray, rest: np.ndarray, norm: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Back through columns that were made as long as `rest`."""
    by = np.vstack([by, np.zeros((1, by.shape[1]))])
    along = (by * unit).sum(axis=0)
    return rest / norm * (by - along * unit), along


def _pair_norm(answers: Answers, supports: np.ndarray, exponent: float) -> tuple[float, Answers]:
    """A p-norm of what replacing one sensor by another costs, and its gradient."""
    columns, of_values = answers.columns(), np.square(answers.gains).sum(axis=1)
    gram = columns.T @ columns
    alone = np.diag(gram) + supports @ of_values
    costs = alone[:, None] + alone - 2 * gram - (supports * of_values) @ supports.T
    costs = np.maximum(np.triu(costs, 1), LEAST)
    top = float(costs.max())
    powers = (costs / top) ** exponent
    total = float(powers.sum())
    value = top * total ** (1 / exponent)
    weight = value / total * powers / costs
    both = weight + weight.T
    share = both.sum(axis=1)
    by_columns = 2 * (columns * share - columns @ both)
    by_values = (
        share @ supports - np.einsum("ik,ij,jk->k", supports, both, supports, optimize=True) / 2
    )
    return value, Answers.gradient(by_columns, 2 * answers.gains * by_values[:, None])


def optimal_answers(
    model: Model,
    supports: np.ndarray,
    total: float,
    relation: NeighboringRelation,
    *,
    values: int,
    iterations: int,
) -> Answers:
    """Answers whose expected error is low when no change of one sensor costs over `total`.

    L-BFGS on `Goal.loss`, under replace-one in rounds with ever higher norms, after which the
    answers still have to be scaled exactly. The problem is not convex; in tries other starts ended
    within 0.3 %.

    Args:
        model: As in `Goal`.
        supports: As in `passage.supports`.
        total: Q, what the dearest change may cost.
        relation: The neighboring relation.
        values: Number of value coordinates.
        iterations: Most iterations of L-BFGS.
    """
    goal = Goal(model, supports, total, relation, values=values)
    rounds = EXPONENTS if relation is NeighboringRelation.REPLACE_ONE else EXPONENTS[:1]
    flat = goal.start()
    level, _ = goal.loss(flat, rounds[0])

    def loss(flat: np.ndarray, exponent: float) -> tuple[float, np.ndarray]:
        error, slope = goal.loss(flat, exponent)
        return error / level, slope / level

    for exponent in rounds:
        one = partial(loss, exponent=exponent)
        flat = least(one, flat, iterations=math.ceil(iterations / len(rounds)), tolerance=1e-9)
    return goal.answers(flat)
