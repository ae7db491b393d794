"""User tables from a hidden Markov model whose parameters are published and fixed.

The construction is "hmm-v1": four hidden states, five numeric columns with one full covariance a
state, one categorical column. The column names are those of the HMM data in Rosenblatt, Liu,
McKenna and Ponomareva, "Privately Fine-Tuned LLMs Preserve Temporal Dynamics in Tabular Data"
(arXiv:2602.02766); that paper does not publish its own parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from panelbench import (
    USER_TABLES,
    Column,
    ColumnKind,
    DatasetSource,
    PrivacyUnit,
    Schema,
    UserTables,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMERIC = ("Glomozole", "Crirodex", "Criphecor", "Zolsidex", "Zolphephine")
CATEGORICAL = "Zolronide"
LEVELS = ("none", "low", "medium", "high")
STATES = len(LEVELS)
POPULATION_SEED = 20260202
STAY = 0.85
OWN_LEVEL = 0.7
SPACING = 2.5
BOUND_STDDEVS = 6.0


@dataclass(frozen=True, kw_only=True)
class Population:
    """True parameters of a mixture of hidden Markov models that share their emissions.

    Attributes:
        weights: Shape (types,), share of each user type.
        initial: Shape (types, states), distribution of the first state.
        transition: Shape (types, states, states), rows sum to 1.
        means: Shape (states, numeric columns).
        covariances: Shape (states, numeric columns, numeric columns).
        emission: Shape (states, levels), distribution of the categorical column.
    """

    weights: np.ndarray
    initial: np.ndarray
    transition: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    emission: np.ndarray

    def bounds(self) -> list[tuple[float, float]]:
        """Public bounds of the numeric columns: six standard deviations around every mean."""
        stddev = np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2))
        lower = np.floor((self.means - BOUND_STDDEVS * stddev).min(axis=0))
        upper = np.ceil((self.means + BOUND_STDDEVS * stddev).max(axis=0))
        return list(zip(lower.tolist(), upper.tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """The parameters as lists, with the names of columns and levels."""
        return {
            "numeric": list(NUMERIC),
            "categorical": CATEGORICAL,
            "levels": list(LEVELS),
            "weights": self.weights.tolist(),
            "initial": self.initial.tolist(),
            "transition": self.transition.tolist(),
            "means": self.means.tolist(),
            "covariances": self.covariances.tolist(),
            "emission": self.emission.tolist(),
        }


def _covariance(stream: np.random.RandomState) -> np.ndarray:
    """A full covariance with unit mean variance and a condition number of at most 10."""
    orthogonal, _ = np.linalg.qr(stream.standard_normal((len(NUMERIC), len(NUMERIC))))
    eigenvalues = np.exp(stream.uniform(0, np.log(8), len(NUMERIC)))
    matrix = (orthogonal * (eigenvalues / eigenvalues.mean())) @ orthogonal.T
    symmetric: np.ndarray = np.round((matrix + matrix.T) / 2, 4)
    return symmetric


def _sticky(others: np.ndarray) -> np.ndarray:
    """A transition matrix that stays with probability 0.85 and leaves by the rows of `others`."""
    matrix = np.zeros((STATES, STATES))
    for state in range(STATES):
        rest = [other for other in range(STATES) if other != state]
        matrix[state, rest] = np.round((1 - STAY) * others[state] / others[state].sum(), 4)
        matrix[state, state] = 1 - matrix[state, rest].sum()
    return matrix


@lru_cache(maxsize=2)
def population(*, types: bool) -> Population:
    """The published parameters; the same on every machine and for every run.

    Args:
        types: Whether there are two user types instead of one. The first mostly starts in state 0
            and walks 0 -> 1 -> 2 -> 3, the second mostly starts in state 3 and walks back, so the
            first row says something about the whole table that no chain of adjacent rows holds.
    """
    # The legacy generator, because NEP 19 freezes its stream for good and not the newer one's.
    stream = np.random.RandomState(POPULATION_SEED)
    corners = np.array([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [1, 0, 1, 0, 1]])
    covariances = np.stack([_covariance(stream) for _ in range(STATES)])
    inverse = np.linalg.inv(covariances.mean(axis=0))
    apart = corners[:, None] - corners[None]
    distance = np.sqrt(np.einsum("ijk,kl,ijl->ij", apart, inverse, apart))
    nearest = np.where(np.eye(STATES, dtype=bool), np.inf, distance).min(axis=1)
    scale = SPACING / nearest.mean()
    uneven = stream.dirichlet(np.ones(STATES - 1), STATES)
    emission = np.full((STATES, STATES), (1 - OWN_LEVEL) / (STATES - 1))
    np.fill_diagonal(emission, OWN_LEVEL)
    if types:
        forward = np.array([[8.0, 1, 1], [1, 8, 1], [1, 1, 8], [8, 1, 1]])
        backward = np.array([[1.0, 1, 8], [8, 1, 1], [1, 8, 1], [1, 1, 8]])
        weights = np.array([0.5, 0.5])
        initial = np.array([[0.97, 0.01, 0.01, 0.01], [0.01, 0.01, 0.01, 0.97]])
        transition = np.stack([_sticky(forward), _sticky(backward)])
    else:
        weights = np.array([1.0])
        initial = np.full((1, STATES), 1 / STATES)
        transition = _sticky(uneven)[None]
    return Population(
        weights=weights,
        initial=initial,
        transition=transition,
        means=np.round(10 + scale * corners, 4),
        covariances=covariances,
        emission=emission,
    )


def _draw(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One index for each row of `probabilities`, by inversion."""
    cumulative = probabilities.cumsum(axis=1)
    # The last cumulative sum may fall short of 1 by a rounding error, so it is not compared with.
    picks: np.ndarray = (rng.random(len(probabilities))[:, None] >= cumulative[:, :-1]).sum(axis=1)
    return picks


def simulate(truth: Population, lengths: np.ndarray, rng: np.random.Generator) -> pd.DataFrame:
    """Tables of the given lengths as one long frame with users 0, 1, 2, ..."""
    users = len(lengths)
    kinds = _draw(np.broadcast_to(truth.weights, (users, len(truth.weights))), rng)
    states = np.zeros((users, int(lengths.max())), dtype=np.int64)
    states[:, 0] = _draw(truth.initial[kinds], rng)
    for step in range(1, states.shape[1]):
        states[:, step] = _draw(truth.transition[kinds, states[:, step - 1]], rng)
    inside = np.arange(states.shape[1]) < lengths[:, None]
    user, time = np.nonzero(inside)
    state = states[inside]
    roots = np.linalg.cholesky(truth.covariances)
    noise = rng.standard_normal((len(state), truth.means.shape[1]))
    values = truth.means[state] + np.einsum("nij,nj->ni", roots[state], noise)
    frame = pd.DataFrame({"user": user, "time": time.astype(np.float64)})
    for index, (name, (lower, upper)) in enumerate(zip(NUMERIC, truth.bounds(), strict=True)):
        frame[name] = np.clip(values[:, index], lower, upper)
    frame[CATEGORICAL] = pd.Categorical.from_codes(
        _draw(truth.emission[state], rng).tolist(), categories=pd.Index(LEVELS)
    )
    return frame


@dataclass(frozen=True, kw_only=True)
class Hmm(DatasetSource):
    """Hidden Markov model "hmm-v1": 4 states, 5 numeric columns, 1 categorical, 4 to 50 rows.

    The state stays with probability 0.85; neighboring means are 2.5 standard deviations apart.
    A table has min_rows + Poisson(mean_rows - min_rows) rows, at most max_rows. The random stream
    draws users; the population's parameters never change and are kept in `extra["hmm"]`, shaped
    as in `Population`. Bounds are six standard deviations around every mean; the one value in
    10^9 that falls outside is clipped to them.

    Attributes:
        users: Users in train.
        test_users: Users in test.
        min_rows: Fewest rows of a table.
        mean_rows: Mean rows of a table, before the cut at max_rows; min_rows gives equal lengths.
        max_rows: Most rows of a table.
    """

    name: ClassVar[str] = "hmm"
    kind: ClassVar[str] = USER_TABLES
    two_types: ClassVar[bool] = False

    users: int = 20_000
    test_users: int = 2_000
    min_rows: int = 4
    mean_rows: float = 12.0
    max_rows: int = 50

    def __post_init__(self) -> None:
        if self.users < 1 or self.test_users < 1:
            raise ValueError(
                f"users and test_users must be at least 1, got {self.users}, {self.test_users}."
            )
        if not 1 <= self.min_rows <= self.mean_rows <= self.max_rows:
            raise ValueError(
                f"Give 1 <= min_rows <= mean_rows <= max_rows, got "
                f"{self.min_rows}, {self.mean_rows}, {self.max_rows}."
            )

    def load(self, *, rng: np.random.Generator) -> UserTables:
        """Simulate users; shapes as in `UserTables`, users 0, 1, 2, ... with test users last."""
        truth = population(types=self.two_types)
        total = self.users + self.test_users
        drawn = self.min_rows + rng.poisson(self.mean_rows - self.min_rows, total)
        frame = simulate(truth, np.minimum(drawn, self.max_rows), rng)
        numeric: Sequence[Column] = [
            Column(name=name, lower=lower, upper=upper)
            for name, (lower, upper) in zip(NUMERIC, truth.bounds(), strict=True)
        ]
        level = Column(name=CATEGORICAL, kind=ColumnKind.CATEGORICAL, categories=LEVELS)
        schema = Schema(
            columns=(*numeric, level),
            unit=PrivacyUnit.USER,
            min_rows=self.min_rows,
            max_rows=self.max_rows,
            nominal_users=self.users,
            title="Hidden Markov model with two user types"
            if self.two_types
            else "Hidden Markov model",
        )
        train = frame["user"] < self.users
        return UserTables(
            schema=schema,
            train=frame[train],
            test=frame[~train],
            extra={"hmm": truth.to_json()},
        )


@dataclass(frozen=True, kw_only=True)
class HmmTypes(Hmm):
    """As `hmm`, with two user types: other transitions and another first state.

    The type is drawn once for each user and never shown. It links the first row to the last, which
    marginals of adjacent rows cannot hold.

    Attributes:
        users: Users in train.
        test_users: Users in test.
        min_rows: Fewest rows of a table.
        mean_rows: Mean rows of a table, before the cut at max_rows; min_rows gives equal lengths.
        max_rows: Most rows of a table.
    """

    name: ClassVar[str] = "hmm-types"
    two_types: ClassVar[bool] = True
