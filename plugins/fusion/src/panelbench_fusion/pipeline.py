"""From a dataset to windows, a feature and a fitted filter: what all fusion mechanisms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from panelbench import DataError, SensorStreams, Split
from panelbench_fusion.estimator import Fit, Windows, fit
from panelbench_fusion.feature import Feature

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from panelbench import Dataset

COUNT_WEIGHTS = (0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is fixed before a protected report is read.

    Attributes:
        feature: The feature.
        gains: Shape (steps,).
        fit: The filter.
    """

    feature: Feature
    gains: np.ndarray
    fit: Fit


def streams(dataset: Dataset) -> SensorStreams:
    """`dataset`, which must be sensor streams with windows to fit on."""
    if not isinstance(dataset, SensorStreams):
        raise DataError(f"Fusion needs sensor streams, got {dataset.kind}.")
    for split, least in ((Split.TRAIN, 2), (Split.VALIDATION, 1), (Split.TEST, 1)):
        found = len(dataset.episodes(split))
        if found < least:
            raise DataError(
                f"Fusion needs at least {least} {split.name.lower()} windows, got {found}."
            )
    return dataset


def check_weight(count_weight: float | None) -> None:
    """Refuse a weight that is no weight."""
    if count_weight is not None and not 0 < count_weight <= 1:
        raise ValueError(f"count_weight must lie in (0, 1] or be unset, got {count_weight}.")


def windows(data: SensorStreams, feature: Feature, split: Split) -> Windows:
    """State and sums of the training or validation windows."""
    if split is Split.TEST:
        raise ValueError("Test windows are protected; their sums leave only through the channel.")
    chosen = data.episodes(split)
    return Windows(
        state=data.state[chosen],
        sums=feature.sums(data.observations[chosen], data.present[chosen]),
    )


def plan(
    data: SensorStreams,
    *,
    count_weight: float | None,
    values: tuple[str, ...],
    gains_of: Callable[[Feature], np.ndarray],
    noise_variance: float,
) -> Plan:
    """Choose the feature's weights and fit the filter, on training and validation windows only."""
    weights = (1.0,) if not values else COUNT_WEIGHTS if count_weight is None else (count_weight,)
    plans = []
    for weight in weights:
        feature = Feature.of(data.schema, count_weight=weight, values=values)
        gains = gains_of(feature)
        found = fit(
            windows(data, feature, Split.TRAIN),
            windows(data, feature, Split.VALIDATION),
            gains,
            noise_variance=noise_variance,
        )
        plans.append(Plan(feature=feature, gains=gains, fit=found))
    return min(plans, key=lambda one: one.fit.validation_mse)
