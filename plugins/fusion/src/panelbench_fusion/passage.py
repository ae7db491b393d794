"""Sensors that pass once a window: what each adds to the sums, and what it costs to change one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from panelbench import NeighboringRelation
from panelbench_fusion.feature import first_visit

if TYPE_CHECKING:
    from panelbench_fusion.feature import Feature

COUNT, ARRIVALS, FAR, VALUES = range(4)
"""Coordinates of the sums; from VALUES on the values."""


def passages(counted: np.ndarray, far: np.ndarray) -> np.ndarray:
    """When each sensor counts, so that it changes at most once, whatever it reports.

    A sensor that is there at the first step counts until its first absence, or to the end where it
    is far from the exit then; one that comes later counts from its first report to the end.

    Args:
        counted: Shape (..., steps, sensors).
        far: Shape (..., sensors), read where a sensor is there at the first step.
    """
    first = counted[..., :1, :]
    came = np.logical_or.accumulate(counted, axis=-2)
    until = np.where(far[..., None, :], True, first_visit(counted))
    return np.where(first, until, came)


def passage_sums(
    feature: Feature,
    observations: np.ndarray,
    present: np.ndarray,
    *,
    position: int | None,
    far_below: float,
) -> np.ndarray:
    """Sums over sensors of (counts, arrives now, is far now, value, ...).

    Args:
        feature: Says which reports count, and scales the values.
        observations: Shape (episodes, steps, sensors, columns).
        present: Shape (episodes, steps, sensors).
        position: Column of the position, or None where no sensor is far.
        far_below: A sensor below this position is far from the exit.

    Returns:
        Shape (episodes, steps, 3 + values).
    """
    f = feature.unit_contributions(observations, present)
    counted = f[..., 0] > 0
    far = np.zeros_like(counted)
    if position is not None:
        far = counted & (np.where(counted, observations[..., position], np.inf) < far_below)
    counts = passages(counted, far[..., 0, :])
    arrives = counts.copy()
    arrives[..., 1:, :] &= ~counts[..., :-1, :]
    arrives[..., 0, :] = False
    values = np.where(counts[..., None], f[..., 1:], 0.0).sum(axis=-2)
    sums = np.stack([counts.sum(axis=-1), arrives.sum(axis=-1), far.sum(axis=-1)], axis=-1)
    return np.concatenate([sums, values], axis=-1)


@lru_cache(maxsize=4)
def supports(steps: int) -> np.ndarray:
    """When a sensor counts, for each way it may pass, shape (2 * steps + 1, steps).

    In order: never; there from the start and gone at step 1, 2, ..; there all the time; there from
    step 1, 2, .. to the end; far at the start.
    """
    step = np.arange(steps)
    rows = np.concatenate(
        [
            step < np.arange(steps + 1)[:, None],
            step >= np.arange(1, steps)[:, None],
            np.ones((1, steps), dtype=bool),
        ]
    ).astype(float)
    rows.flags.writeable = False
    return rows


def answers(matrix: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """What the count rows of a channel show of a sensor, and what its values may cost.

    Args:
        matrix: A in time order, shape (steps * (1 + values), steps * (3 + values)).
        steps: Number of steps.

    Returns:
        For each way in the order of `supports` a column, shape (steps, 2 * steps + 1); and q_v,
        the squared gains of the values, summed, shape (steps,).

    Raises:
        ValueError: Where this is not all that a sensor moves: a row that sees later steps, values
            in a count row, counts in a value row, or a use of who is far after the first step.
    """
    rows = len(matrix) // steps
    blocks = matrix.reshape(steps, rows, steps, -1)
    late = np.triu(np.ones((steps, steps), dtype=bool), 1)
    of_values = blocks[:, 1:, :, VALUES:]
    step, place = np.arange(steps)[:, None], np.arange(rows - 1)
    gains = of_values[step, place, step, place]
    if (
        blocks.transpose(0, 2, 1, 3)[late].any()
        or blocks[:, 0, :, VALUES:].any()
        or blocks[:, 1:, :, :VALUES].any()
        or blocks[:, :, 1:, FAR].any()
        or np.count_nonzero(of_values) > np.count_nonzero(gains)
    ):
        raise ValueError("The channel shows more of a sensor than `passage.supports` lists.")
    shown = blocks[:, 0, :, COUNT] @ supports(steps).T
    shown[:, steps + 1 : 2 * steps] += blocks[:, 0, 1:, ARRIVALS]
    shown[:, 2 * steps] += blocks[:, 0, 0, FAR]
    return shown, np.square(gains).sum(axis=1)


def dearest_change(
    shown: np.ndarray, value_costs: np.ndarray, relation: NeighboringRelation
) -> tuple[float, np.ndarray]:
    """What the dearest change of one sensor costs, by trying all, and what each step spends on it.

    Args:
        shown: As from `answers`.
        value_costs: q_v, shape (steps,).
        relation: The neighboring relation.
    """
    there = supports(len(shown))
    gram = shown.T @ shown
    alone = np.diag(gram) + there @ value_costs
    if relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        one, two = int(alone.argmax()), 0
    else:
        pairs = alone[:, None] + alone - 2 * gram - (there * value_costs) @ there.T
        one, two = (int(at) for at in np.unravel_index(pairs.argmax(), pairs.shape))
    spent = np.square(shown[:, one] - shown[:, two])
    spent += np.maximum(there[one], there[two]) * value_costs
    return float(spent.sum()), spent
