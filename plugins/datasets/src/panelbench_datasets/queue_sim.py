"""A count whose second moments are known exactly: arrivals and departures without memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from panelbench import (
    SENSOR_STREAMS,
    Column,
    ColumnKind,
    DatasetSource,
    PrivacyUnit,
    Schema,
    SensorStreams,
    Split,
)
from panelbench_datasets.windows import STEP_SECONDS


@dataclass(frozen=True, kw_only=True)
class QueueSim(DatasetSource):
    """People who come and go independently (M/M/infinity), counted in every step.

    In each step a person who is there stays with probability `stay`, and Poisson arrivals replace
    those who left, so the count is stationary, Poisson with mean V = `people`, and its covariance
    is V stay^|i - j| exactly (an INAR(1) process). For V around 100 it is close to Gaussian: the
    test model on which bounds for linear fusion hold. The state is the count itself; a report says
    only that its sender is there. Windows are independent, so no person is in two.

    `extra["moments"]` has "mean" V and "autocovariance", that of the count by lag in steps.

    Attributes:
        people: Mean number of people present, V.
        stay: Probability that a person stays for one step more.
        train: Training windows.
        validation: Validation windows.
        test: Test windows.
        steps: Steps of 0.2 s in a window.
    """

    name: ClassVar[str] = "queue-sim"
    kind: ClassVar[str] = SENSOR_STREAMS

    people: float = 100.0
    stay: float = 0.9975
    train: int = 600
    validation: int = 40
    test: int = 200
    steps: int = 100

    def __post_init__(self) -> None:
        if not self.people > 0:
            raise ValueError(f"people must be positive, got {self.people}.")
        if not 0 < self.stay < 1:
            raise ValueError(f"stay must lie strictly between 0 and 1, got {self.stay}.")
        for name in ("train", "validation", "test", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")

    def load(self, *, rng: np.random.Generator) -> SensorStreams:
        """Simulate every window by itself, from the stationary distribution."""
        sizes = {Split.TRAIN: self.train, Split.VALIDATION: self.validation, Split.TEST: self.test}
        split = np.repeat(np.array(list(sizes)), list(sizes.values()))
        windows = [self._window(rng) for _ in split]
        sensors = max(1, *(window.shape[1] for window in windows))
        present = np.zeros((len(split), self.steps, sensors), dtype=bool)
        for index, window in enumerate(windows):
            present[index, :, : window.shape[1]] = window
        lags = np.arange(self.steps)
        return SensorStreams(
            schema=self._schema(),
            observations=np.where(present, 0.0, np.nan)[..., None],
            present=present,
            state=present.sum(axis=-1).astype(np.float64),
            split=split,
            step_seconds=STEP_SECONDS,
            extra={
                "moments": {
                    "mean": self.people,
                    "autocovariance": (self.people * self.stay**lags).tolist(),
                }
            },
        )

    def _window(self, rng: np.random.Generator) -> np.ndarray:
        """Who is there, shape (steps, people of this window)."""
        arrivals = rng.poisson(self.people * (1 - self.stay), self.steps)
        arrivals[0] = rng.poisson(self.people)
        first = np.repeat(np.arange(self.steps), arrivals)
        last = first + rng.geometric(1 - self.stay, len(first))
        step = np.arange(self.steps)[:, None]
        present: np.ndarray = (first <= step) & (step < last)
        return present

    def _schema(self) -> Schema:
        return Schema(
            columns=(Column(name="report", kind=ColumnKind.CATEGORICAL, categories=("here",)),),
            unit=PrivacyUnit.SENSOR_TRAJECTORY,
            min_rows=self.steps,
            max_rows=self.steps,
            state=Column(
                name="count",
                unit="people",
                lower=0.0,
                upper=self.people + 20 * math.sqrt(self.people),
                description="Number of people present.",
            ),
            title="Arrivals and departures without memory, second moments known",
        )
