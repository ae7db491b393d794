"""How far estimates of the state are from the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import (
    SENSOR_STREAMS,
    DataError,
    Estimates,
    Metric,
    Scale,
    Score,
    SensorStreams,
    Split,
)
from panelbench_metrics.samples import finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from panelbench import Dataset, Release


@dataclass(frozen=True, kw_only=True)
class Mse(Metric):
    """Mean squared error of the estimates over draws, test episodes and steps.

    `rmse` is its root, in the unit of the state. `nmse` divides it by the error of the constant
    that is the mean of the state over all training episodes and steps; below 1 is better than
    knowing nothing. It is left out where that error is 0 or there is no training episode. The
    detail of `mse` has one value a step. Squares too large for a float are scored as the largest
    float.
    """

    name: ClassVar[str] = "mse"
    kind: ClassVar[str] = SENSOR_STREAMS
    components: ClassVar[Mapping[str, Scale]] = {"mse": Scale(), "rmse": Scale(), "nmse": Scale()}

    def score(
        self,
        reference: Dataset,
        release: Release,
        *,
        rng: np.random.Generator,  # noqa: ARG002 - nothing is random here
    ) -> Iterator[Score]:
        """Compare `release.estimate` with the state of the test episodes."""
        if not isinstance(reference, SensorStreams) or not isinstance(release, Estimates):
            raise DataError(f"mse scores estimates, got {reference.kind} and {release.kind}.")
        truth = reference.state[reference.episodes(Split.TEST)]
        if release.estimate.shape[1:] != truth.shape:
            raise DataError(
                f"Estimates must cover the test episodes and steps {truth.shape}, "
                f"got {release.estimate.shape[1:]}."
            )
        if not release.estimate.size:
            raise DataError("There is no test episode or no draw to score.")
        with np.errstate(over="ignore"):
            by_step = np.mean((release.estimate - truth) ** 2, axis=(0, 1))
            mse = finite(np.mean(by_step))
        unit = reference.schema.state.unit if reference.schema.state else ""
        yield Score(
            component="mse",
            value=mse,
            unit=f"({unit})^2" if unit else "",
            detail={f"step {k}": finite(value) for k, value in enumerate(by_step, start=1)},
        )
        yield Score(component="rmse", value=math.sqrt(mse), unit=unit)
        known = reference.state[reference.episodes(Split.TRAIN)]
        prior = float(np.mean((truth - np.mean(known)) ** 2)) if known.size else 0.0
        if prior > 0:
            yield Score(component="nmse", value=finite(mse / prior))
