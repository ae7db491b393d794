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
    Panel,
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

    Its cases are the test episodes, so intervals cover the draw of windows as well as the noise.

    `rmse` is its root, in the unit of the state. `nmse` divides it by the error of the constant
    that is the mean of the state over all training episodes and steps; below 1 is better than
    knowing nothing. It is left out where that error is 0 or there is no training episode. Squares
    too large for a float are scored as the largest float.

    Panels: the error at each step; what each step spent (mean and the band from the 10th to the
    90th percentile over draws and episodes); the first draw and the truth on one test episode, the
    one whose truth has the median standard deviation over its steps (the lower one of two).
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
            squares = (release.estimate - truth) ** 2
            mse = finite(np.mean(squares))
            by_case = [finite(value) for value in np.mean(squares, axis=(0, 2))]
            by_step = [finite(value) for value in np.mean(squares, axis=(0, 1))]
        unit = reference.schema.state.unit if reference.schema.state else ""
        yield Score(
            component="mse",
            value=mse,
            unit=f"({unit})^2" if unit else "",
            cases=tuple(by_case),
            panels=_panels(reference, release, truth, by_step, unit),
        )
        yield Score(component="rmse", value=math.sqrt(mse), unit=unit)
        known = reference.state[reference.episodes(Split.TRAIN)]
        prior = float(np.mean((truth - np.mean(known)) ** 2)) if known.size else 0.0
        if prior > 0:
            yield Score(component="nmse", value=finite(mse / prior))


def _panels(
    reference: SensorStreams,
    release: Estimates,
    truth: np.ndarray,
    by_step: list[float],
    unit: str,
) -> dict[str, Panel]:
    steps = truth.shape[-1]
    seconds = tuple(reference.step_seconds * (k + 1) for k in range(steps))
    across = "seconds from the start of the window"

    def panel(unit: str, **lines: np.ndarray) -> Panel:
        named = {name: tuple(line.tolist()) for name, line in lines.items()}
        return Panel(across=across, x=seconds, lines=named, unit=unit)

    order = np.argsort(np.std(truth, axis=1), kind="stable")
    median = order[(len(order) - 1) // 2]
    squared = f"({unit})^2" if unit else ""
    panels = {
        "squared error at each step": panel(squared, value=np.asarray(by_step)),
        "estimate and truth on the test window of median spread": panel(
            unit, value=release.estimate[0, median], truth=truth[median]
        ),
    }
    if release.spent.any() and np.isfinite(release.spent).all():
        spent = release.spent.reshape(-1, steps)
        low, high = np.quantile(spent, (0.1, 0.9), axis=0)
        panels["budget spent at each step, as mu^2"] = panel(
            "", value=np.mean(spent, axis=0), lower=low, upper=high
        )
    return panels
