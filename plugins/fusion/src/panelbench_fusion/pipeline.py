"""From a dataset to windows, a feature and a fitted filter: what all fusion mechanisms share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from panelbench import DataError, NeighboringRelation, SensorStreams, Split
from panelbench_fusion.estimator import (
    CANDIDATES,
    USUAL,
    CausalFilter,
    Evidence,
    Moments,
    Regularisation,
    Windows,
)
from panelbench_fusion.feature import Feature

if TYPE_CHECKING:
    from collections.abc import Callable

    from panelbench import Dataset

COUNT_WEIGHTS = (0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is fixed before a protected report is read.

    Attributes:
        feature: The feature.
        gains: Shape (steps,).
        moments: Of the state and the sums of the feature, over all known windows.
        filter: The filter.
        how: How the filter is regularised.
        held_out_mse: Its expected error on windows that were held out from the fit.
    """

    feature: Feature
    gains: np.ndarray
    moments: Moments
    filter: CausalFilter
    how: Regularisation
    held_out_mse: float


def streams(dataset: Dataset) -> SensorStreams:
    """`dataset`, which must be sensor streams with windows to fit on and to fuse."""
    if not isinstance(dataset, SensorStreams):
        raise DataError(f"Fusion needs sensor streams, got {dataset.kind}.")
    for split, least in ((Split.TRAIN, 2), (Split.TEST, 1)):
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


def known_feature(
    data: SensorStreams,
    *,
    values: tuple[str, ...],
    count_weight: float,
    relation: NeighboringRelation,
) -> Feature:
    """The feature, its values scaled over the band of training and validation windows.

    Values are centred under add-or-remove-one, where that costs nothing.
    """
    known = np.flatnonzero(data.split != Split.TEST)
    feature = Feature.of(data.schema, count_weight=count_weight, values=values)
    return replace(
        feature.narrowed(data.observations[known], data.present[known]),
        centred=relation is NeighboringRelation.ADD_OR_REMOVE_ONE,
    )


def known_windows(data: SensorStreams, feature: Feature, *, unit: bool = False) -> Windows:
    """State and sums of training and validation windows; test windows are protected.

    Args:
        data: The dataset.
        feature: The feature.
        unit: Sums before weighing (`Feature.unit_sums`).
    """
    known = np.flatnonzero(data.split != Split.TEST)
    seen, there = data.observations[known], data.present[known]
    return Windows(
        state=data.state[known],
        sums=feature.unit_sums(seen, there) if unit else feature.sums(seen, there),
    )


def plan(
    data: SensorStreams,
    *,
    count_weight: float | None,
    values: tuple[str, ...],
    gains_of: Callable[[Feature], np.ndarray],
    noise_variance: float,
    relation: NeighboringRelation = NeighboringRelation.REPLACE_ONE,
) -> Plan:
    """Choose the feature's weights and fit the filter, on training and validation windows only.

    Weights are compared under the usual regularisation, regularisations under the chosen weight,
    by the error on windows that are held out in turn. A few validation windows alone are too few
    to choose by, and the final fit uses all. A feature for replace-one serves both relations.
    """
    weights = (1.0,) if not values else COUNT_WEIGHTS if count_weight is None else (count_weight,)
    first = known_feature(data, count_weight=weights[0], values=values, relation=relation)
    features = [replace(first, count_weight=one) for one in weights]
    evidence = Evidence(known_windows(data, features[0], unit=True))
    found = []
    for feature in features:
        gains = gains_of(feature)
        channel = np.diag(np.outer(gains, feature.weights).ravel())
        error = 0.0
        if len(weights) > 1:
            (error,) = evidence.held_out_mse(
                channel, noise_variance=noise_variance, candidates=(USUAL,)
            )
        found.append((error, feature, gains, channel))
    _, feature, gains, channel = min(found, key=lambda one: one[0])
    errors = evidence.held_out_mse(channel, noise_variance=noise_variance, candidates=CANDIDATES)
    best = int(np.argmin(errors))
    return Plan(
        feature=feature,
        gains=gains,
        moments=evidence.moments(CANDIDATES[best].shrinkage).weighted(feature.weights),
        filter=evidence.fit(channel, noise_variance=noise_variance, how=CANDIDATES[best]),
        how=CANDIDATES[best],
        held_out_mse=errors[best],
    )
