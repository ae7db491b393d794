"""User types found by private k-means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from panelbench import GaussianEvent

if TYPE_CHECKING:
    from panelbench.binning import Binning
    from panelbench.flatten import Wide

ROUNDS = 4


def described(wide: Wide, binning: Binning, codes: dict[str, np.ndarray]) -> np.ndarray:
    """One point for each user: first row, mean row, and mean change from the first row.

    Computed from one user's bins alone; each coordinate lies between -1 and 1 and is scaled so
    that a point has an L2 norm of at most 1.
    """
    parts = []
    present = wide.present
    for column in binning.schema.columns:
        sizes = np.array(binning.sizes(column.name)) - 1
        scaled = 2.0 * codes[column.name] / np.maximum(sizes, 1) - 1
        mean = np.where(present, scaled, 0.0).sum(axis=1) / np.maximum(wide.lengths, 1)
        parts += [scaled[:, 0], mean, np.clip(mean - scaled[:, 0], -1, 1)]
    points = np.stack(parts, axis=1)
    return points / math.sqrt(points.shape[1])


def clustered(
    points: np.ndarray,
    clusters: int,
    *,
    mu: float,
    relation_factor: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, GaussianEvent]:
    """Give each user a type: Lloyd's rounds on noisy counts and sums.

    A user adds a count of 1 and a point of norm at most 1 to one cluster, so each round's vector
    has L2 sensitivity sqrt(2) times `relation_factor` (1, or sqrt(2) under replace-one). Afterwards
    a user's type follows from the released centers and the user alone.

    Args:
        points: One for each user, L2 norm at most 1.
        clusters: How many types.
        mu: Gaussian-DP parameter that may be spent.
        relation_factor: By how much replacing a user costs more than removing one.
        rng: The source of randomness.

    Returns:
        Types of the users, shape (users,), and the charge.
    """
    sensitivity = math.sqrt(2) * relation_factor
    stddev = sensitivity * math.sqrt(ROUNDS) / mu
    size = points.shape[1]
    centers = rng.uniform(-1, 1, (clusters, size)) / math.sqrt(size)
    for _ in range(ROUNDS):
        nearest = _nearest(points, centers)
        sums = np.zeros((clusters, size))
        np.add.at(sums, nearest, points)
        counts = np.bincount(nearest, minlength=clusters) + rng.normal(0.0, stddev, clusters)
        sums += rng.normal(0.0, stddev, sums.shape)
        moved = sums / np.maximum(counts, 1.0)[:, None]
        solid = counts > 2 * stddev  # the others start anew around the largest
        split = moved[counts.argmax()] + rng.normal(0.0, 0.2, moved.shape) / math.sqrt(size)
        centers = np.clip(np.where(solid[:, None], moved, split), -1, 1)
    event = GaussianEvent(stddev=stddev, l2_sensitivity=sensitivity, count=ROUNDS)
    return _nearest(points, centers), event


def _nearest(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    distance = (centers**2).sum(axis=1) - 2 * points @ centers.T
    nearest: np.ndarray = distance.argmin(axis=1)
    return nearest
