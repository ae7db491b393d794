"""The three classes that plugin authors subclass.

Implementations are frozen keyword-only dataclasses; their fields are the hyper-parameters, with
defaults. A plugin registers the classes through the three hooks of `hookspecs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np

    from panelbench.data import DataFile, Dataset
    from panelbench.privacy import Budget
    from panelbench.release import Release
    from panelbench.schema import Schema
    from panelbench.score import Scale, Score


class Role(StrEnum):
    """What an entry is to a leaderboard."""

    PRIVATE = "private"
    """Reads private data and spends the budget."""
    BASELINE = "baseline"
    """Reads no private data: public metadata only, or people the guarantee does not protect."""
    REFERENCE = "reference"
    """Not private; the ceiling that others are read against."""


class DatasetSource(ABC):
    """Where a dataset comes from: a loader or a simulator.

    Attributes:
        name: Short name, unique among the plugin's datasets.
        kind: What `load` returns: `USER_TABLES` or `SENSOR_STREAMS`. A property may compute it
            from a field.
    """

    name: ClassVar[str]
    kind: ClassVar[str]

    def files(self) -> tuple[DataFile, ...]:
        """Files below the data directory that `load` reads; none for a simulator."""
        return ()

    @abstractmethod
    def load(self, *, rng: np.random.Generator) -> Dataset:
        """Read or simulate the data; called once a grid.

        Raises:
            panelbench.errors.DataError: On bad input, naming file, column and row.
        """


class Mechanism(ABC):
    """A whole randomised algorithm, preprocessing included.

    The docstring of an implementation has a section "Formal guarantee": privacy unit, neighboring
    relation, sensitivity with its norm, what is public, which theorem.

    Attributes:
        name: Short name, unique among the plugin's mechanisms.
        kind: What it reads: `USER_TABLES` or `SENSOR_STREAMS`.
        role: Private unless said otherwise. Baselines and references run once per dataset and
            repeat, with an unlimited budget.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    role: ClassVar[Role] = Role.PRIVATE

    def supports(self, schema: Schema, budget: Budget) -> str | None:  # noqa: ARG002 - default
        """None, or the reason why this mechanism cannot run on such data or budget.

        Sees public metadata only.
        """
        return None

    @abstractmethod
    def release(self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator) -> Release:
        """Run the mechanism once, within the budget.

        Args:
            dataset: The private data, without what metrics compare with (`for_mechanism`).
            budget: What may be spent, under which relation.
            rng: The only source of randomness.
        """


class Metric(ABC):
    """A comparison of a release with the data it stands for.

    Attributes:
        name: Short name, unique among the plugin's metrics.
        kind: Which releases it scores: `USER_TABLES` or `SENSOR_STREAMS`.
        components: The scale of each component, the headline first.
        needs: What a dataset must bring for any score, in words, where that is more than its kind;
            the exam's panels may lack it.
    """

    name: ClassVar[str]
    kind: ClassVar[str]
    components: ClassVar[Mapping[str, Scale]]
    needs: ClassVar[str] = ""

    @abstractmethod
    def score(
        self, reference: Dataset, release: Release, *, rng: np.random.Generator
    ) -> Iterable[Score]:
        """Score a release; yields at most one `Score` for each declared component.

        A component that does not apply to a release is left out; the entry then has no row in it.
        """
