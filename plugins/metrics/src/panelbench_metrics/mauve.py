"""How much of the real tables' distribution a release covers, and how much of it is real."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import USER_TABLES, Direction, Metric, Scale, Score
from panelbench_metrics.embedding import HASHED, check_embedder, embed
from panelbench_metrics.samples import (
    check_rows,
    floor_sample,
    remaining_train,
    some_users,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from panelbench import Dataset, Release

MIXTURES = 25
SCALING = 5.0
VARIANCE = 0.9
TABLES_A_CLUSTER = 10
_EDGE = 1e-6  # how far the outer mixtures are from either distribution


@dataclass(frozen=True, kw_only=True)
class Mauve(Metric):
    """MAUVE of table embeddings: higher is better, 1 is perfect (path.md 3.3).

    Tables become vectors (the schema and the mean row, so it is blind to the order of rows), the
    vectors of test users and of the release are scaled to length 1, projected on the components
    that hold 90 % of their variance and clustered together by k-means, a tenth as many clusters as
    the smaller side has tables. With p and q the shares of the clusters and r a mixture of them,
    the curve (exp(-5 KL(q | r)), exp(-5 KL(p | r))) over 25 mixtures, from (1, 0) to (0, 1), bounds
    the area that is the score (Pillutla et al. 2021, arXiv:2102.01454; Rosenblatt et al. 2026,
    arXiv:2602.02766). The curve is monotone, so the areas against either axis are one. The score
    is the mean over seeds of k-means, the detail has their standard deviation ("spread").

    Values depend on the embedder and on the number of tables: compare with the floor, and only
    rows of one board.

    Attributes:
        embedder: "hashed", or "minilm", which needs 'panelbench-metrics[minilm]'.
        max_tables: How many synthetic and how many test tables are used at most, chosen at random;
            the same places of both, so that the reference against itself stays at 1.
        seeds: How many seeds of k-means the score is averaged over.
        restarts: Starts of k-means with each seed, of which the tightest counts.
        rows: Cut every table to its first so many rows and drop shorter ones; None for whole
            tables.
    """

    name: ClassVar[str] = "mauve"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        "mauve": Scale(direction=Direction.HIGHER, upper=1.0, perfect=1.0)
    }

    embedder: str = HASHED
    max_tables: int = 2000
    seeds: int = 5
    restarts: int = 1
    rows: int | None = None

    def __post_init__(self) -> None:
        check_embedder(self.embedder)
        check_rows(self.rows)
        for name in ("max_tables", "seeds", "restarts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        tables, synthetic = tables_of(reference, release, rows=self.rows)
        sample = floor_sample(tables, synthetic, rng)
        place = int(rng.integers(2**63))
        frames = [
            frame[frame["user"].isin(some_users(frame, self.max_tables, place))]
            for frame in (tables.test, synthetic.frame, sample)
            if frame is not None
        ]
        train = remaining_train(tables, synthetic)
        real, *others = embed(self.embedder, frames, tables.schema, train)
        seeds = rng.integers(2**31, size=self.seeds).tolist()
        found = [
            [mauve(real, other, seed=seed, restarts=self.restarts) for seed in seeds]
            for other in others
        ]
        yield Score(
            component="mauve",
            value=float(np.mean(found[0])),
            detail={
                "spread": float(np.std(found[0])),
                "synthetic tables": float(len(others[0])),
                "test tables": float(len(real)),
            },
            floor=float(np.mean(found[1])) if len(found) > 1 else None,
        )


def mauve(p: np.ndarray, q: np.ndarray, *, seed: int, restarts: int = 1) -> float:
    """MAUVE of two samples of vectors, for one seed of k-means.

    Args:
        p: Real vectors, shape (n, size).
        q: Vectors to judge, shape (m, size).
        seed: For k-means.
        restarts: As in `Mauve`.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - comes with scikit-learn

    clusters = max(2, round(min(len(p), len(q)) / TABLES_A_CLUSTER))
    with threadpool_limits(1):  # more threads would round otherwise, and stall a busy machine
        joint = _projected(np.concatenate((p, q)))
        if joint is None:
            return 1.0
        labels = _clustered(joint, clusters, seed, restarts)
    shares = [
        np.bincount(side, minlength=clusters) / len(side)
        for side in (labels[: len(p)], labels[len(p) :])
    ]
    return area(*shares)


def area(p: np.ndarray, q: np.ndarray) -> float:
    """The area under the divergence curve of two distributions over clusters.

    >>> area(np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    1.0
    """
    x, y = [1.0], [0.0]
    for weight in np.linspace(_EDGE, 1.0 - _EDGE, MIXTURES):
        mixture = weight * p + (1.0 - weight) * q
        x.append(np.exp(-SCALING * _divergence(q, mixture)))
        y.append(np.exp(-SCALING * _divergence(p, mixture)))
    x.append(0.0)
    y.append(1.0)
    total = float(np.sum(-np.diff(x) * (np.array(y[1:]) + np.array(y[:-1])) / 2))
    return min(max(total, 0.0), 1.0)


def _divergence(a: np.ndarray, b: np.ndarray) -> float:
    some = a > 0
    return max(float(np.sum(a[some] * np.log(a[some] / b[some]))), 0.0)


def _projected(vectors: np.ndarray) -> np.ndarray | None:
    """Unit vectors on the components with 90 % of their variance; None where all are equal."""
    from sklearn.decomposition import PCA  # noqa: PLC0415 - takes a second to import

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1.0)
    if np.allclose(unit, unit[0], rtol=0.0, atol=1e-12):
        return None
    analysis = PCA(svd_solver="full" if len(unit) <= unit.shape[1] else "covariance_eigh")
    projected = analysis.fit_transform(unit)
    kept = np.searchsorted(np.cumsum(analysis.explained_variance_ratio_), VARIANCE) + 1
    result: np.ndarray = projected[:, :kept]
    return result


def _clustered(points: np.ndarray, clusters: int, seed: int, restarts: int) -> np.ndarray:
    from sklearn.cluster import KMeans  # noqa: PLC0415 - takes a second to import
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - the same

    model = KMeans(n_clusters=clusters, n_init=restarts, max_iter=500, random_state=seed)
    with warnings.catch_warnings():
        # fewer distinct tables than clusters: the empty ones add nothing
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels: np.ndarray = model.fit_predict(points.astype(np.float32))
    return labels
