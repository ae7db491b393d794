"""How well classifiers tell synthetic tables from real ones."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from panelbench import USER_TABLES, ColumnKind, Metric, Scale, Score
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

    from panelbench import Dataset, Release, Schema

CLASSIFIERS = ("logistic-regression", "random-forest", "gradient-boosting")
HELD_OUT = 0.3
WORST = 0.5
FEWEST = 4
MOST_CATEGORIES = 50
MOST_A_TREE = 5000
_FAR = 1e30  # values beyond are cut to it: trees count in float32


@dataclass(frozen=True, kw_only=True)
class ClassifierTwoSample(Metric):
    """Distance of a classifier's AUC from 0.5, which is where it can tell nothing (path.md 3.6).

    As many test users as synthetic tables, 70 % of each to fit and 30 % to judge, by logistic
    regression (on standardised values), a random forest of 100 trees (each on at most 5,000
    tables) and histogram gradient boosting (Rosenblatt et al. 2026, arXiv:2602.02766). Each reads
    the embedding of a table (blind to the order of rows) and, apart from it, handcrafted features:
    of a numeric column mean, standard deviation, smallest, largest, median and last minus first
    known value and the share missing, of a categorical one the shares of its first 50 categories
    and of missing values, and the number of rows. 0 is perfect, 0.5 the worst; AUCs below 0.5 are
    as telling as those above.

    - `embedding`: the mean over classifiers, on embeddings; `handcrafted`: on the features.
    - the same for each classifier, "random-forest handcrafted" and so on, with its AUC as detail.

    A release of fewer than four tables cannot be judged and scores the worst.

    Attributes:
        embedder: "hashed", or "minilm", which needs 'panelbench-metrics[minilm]'.
        max_tables: How many synthetic and how many test tables are used at most, chosen at random;
            the same places of both, so that the reference against itself stays at 0.
        rows: Cut every table to its first so many rows and drop shorter ones; None for whole
            tables.
    """

    name: ClassVar[str] = "classifier-two-sample"
    kind: ClassVar[str] = USER_TABLES
    components: ClassVar[Mapping[str, Scale]] = {
        name: Scale(upper=WORST)
        for name in (
            "embedding",
            "handcrafted",
            *(f"{c} {kind}" for kind in ("embedding", "handcrafted") for c in CLASSIFIERS),
        )
    }

    embedder: str = HASHED
    max_tables: int = 2000
    rows: int | None = None

    def __post_init__(self) -> None:
        check_embedder(self.embedder)
        check_rows(self.rows)
        if self.max_tables < FEWEST:
            raise ValueError(f"max_tables must be at least {FEWEST}, got {self.max_tables}.")

    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterator[Score]:
        """Compare the release with the test users."""
        tables, synthetic = tables_of(reference, release, rows=self.rows)
        train = remaining_train(tables, synthetic)
        sample = floor_sample(tables, synthetic, rng)
        seed = int(rng.integers(2**31))
        aucs = self._aucs(tables.test, synthetic.frame, tables.schema, train, seed)
        floors = None
        if sample is not None:
            floors = self._aucs(tables.test, sample, tables.schema, train, seed)
        for kind in ("embedding", "handcrafted"):
            names = [f"{classifier} {kind}" for classifier in CLASSIFIERS]
            yield Score(
                component=kind,
                value=_distance(aucs, names),
                detail={f"AUC {name}": aucs[name] for name in names},
                floor=None if floors is None else _distance(floors, names),
            )
            for name in names:
                yield Score(
                    component=name,
                    value=_distance(aucs, [name]),
                    detail={"AUC": aucs[name]},
                    floor=None if floors is None else _distance(floors, [name]),
                )

    def _aucs(
        self,
        real: pd.DataFrame,
        other: pd.DataFrame,
        schema: Schema,
        train: pd.DataFrame,
        seed: int,
    ) -> dict[str, float]:
        """AUC by component."""
        size = min(real["user"].nunique(), other["user"].nunique(), self.max_tables)
        sides = [f[f["user"].isin(some_users(f, size, seed))] for f in (real, other)]
        features = {
            "embedding": embed(self.embedder, sides, schema, train),
            "handcrafted": [handcrafted(side, schema) for side in sides],
        }
        return {
            f"{classifier} {kind}": auc_of(classifier, *values, seed=seed)
            for kind, values in features.items()
            for classifier in CLASSIFIERS
        }


def _distance(aucs: dict[str, float], names: list[str]) -> float:
    return float(np.mean([abs(aucs[name] - 0.5) for name in names]))


def auc_of(classifier: str, real: np.ndarray, other: np.ndarray, *, seed: int) -> float:
    """The AUC of a classifier fitted on 70 % of two samples of one size, on the rest.

    The same places of both are held out, so two equal samples get 0.5 exactly: every vector is
    there once with each label. Samples of fewer than four vectors get 1.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - comes with scikit-learn

    count = len(real)
    if count < FEWEST:
        return 1.0
    order = np.random.default_rng(seed).permutation(count)
    held_out = order[: max(1, round(HELD_OUT * count))]
    fitted = order[len(held_out) :]
    model = _model(classifier, seed, 2 * len(fitted))
    # more threads would round otherwise, and wait for each other on a busy machine
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # a separable sample has no optimum to converge to
        model.fit(
            np.concatenate((real[fitted], other[fitted])),
            np.repeat([0, 1], len(fitted)),
        )
    scores = model.predict_proba(np.concatenate((real[held_out], other[held_out])))[:, 1]
    return area_under_curve(scores[: len(held_out)], scores[len(held_out) :])


def area_under_curve(negative: np.ndarray, positive: np.ndarray) -> float:
    """Probability that a positive score is above a negative one, ties counting half.

    >>> area_under_curve(np.array([0.1, 0.5]), np.array([0.5, 0.9]))
    0.875
    """
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, side="left").sum()
    tied = np.searchsorted(ordered, positive, side="right").sum() - below
    return float((2 * below + tied) / (2 * len(negative) * len(positive)))


def _model(classifier: str, seed: int, rows: int) -> Any:  # noqa: ANN401 - scikit-learn ships no types
    # it takes a second to import, which the other metrics need not pay
    from sklearn.ensemble import (  # noqa: PLC0415
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    if classifier == "random-forest":
        most = MOST_A_TREE if rows > MOST_A_TREE else None
        return RandomForestClassifier(n_estimators=100, max_samples=most, random_state=seed)
    if classifier == "gradient-boosting":
        return HistGradientBoostingClassifier(random_state=seed)
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def handcrafted(frame: pd.DataFrame, schema: Schema) -> np.ndarray:
    """Features of each table, shape (tables, features); what is undefined is 0."""
    users = frame["user"]
    features: dict[str, pd.Series[Any]] = {"rows": frame.groupby("user").size().astype(np.float64)}
    for column in schema.columns:
        name = column.name
        missing = frame[name].isna().groupby(users).mean()
        if column.nullable:
            features[f"{name} missing"] = missing
        if column.kind is ColumnKind.CATEGORICAL:
            for category in column.categories[:MOST_CATEGORIES]:
                share = (frame[name] == category).groupby(users).mean()
                features[f"{name} {category}"] = share
            continue
        values = frame[name].clip(-_FAR, _FAR).groupby(users)
        for statistic in ("mean", "std", "min", "max", "median"):
            features[f"{name} {statistic}"] = values.agg(statistic)
        features[f"{name} trend"] = values.last() - values.first()
    matrix = pd.DataFrame(features).fillna(0.0).to_numpy(dtype=np.float64)
    clipped: np.ndarray = np.clip(matrix, -_FAR, _FAR)
    return clipped
