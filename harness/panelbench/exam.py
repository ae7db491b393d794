"""What every plugin is asked, ours and a stranger's, on the panels of `panels`."""

from __future__ import annotations

import dataclasses
import inspect
import math
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from panelbench import accounting
from panelbench.data import Dataset, SensorStreams, Split, UserTables
from panelbench.extension import DatasetSource, Mechanism, Metric, Role
from panelbench.panels import tiny, tiny_streams, tiny_tables, tiny_visits
from panelbench.privacy import Budget, Established, Guarantee, NeighboringRelation, PrivacyUnit
from panelbench.release import Estimates, Release, SyntheticTables
from panelbench.schema import TIME, USER
from panelbench.score import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNPROTECTED = Guarantee(
    established=Established.NONE,
    unit=PrivacyUnit.USER,
    relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
)


def questions(cls: Any) -> Iterator[tuple[str, Callable[[], str | None]]]:  # noqa: ANN401
    """Each fact that should hold of a component, with a function that says why it does not."""
    name = cls.name
    yield f"{name} says what it does, and documents each parameter.", lambda: _documented(cls)
    if issubclass(cls, DatasetSource):
        yield f"{name} gives the same data for the same seed.", lambda: _same_data(cls())
    elif issubclass(cls, Mechanism):
        for relation in NeighboringRelation:
            if cls.role is not Role.PRIVATE and relation is not next(iter(NeighboringRelation)):
                continue
            yield (
                f"{name} keeps within its budget under {relation}.",
                lambda relation=relation: _within_budget(cls, relation),  # type: ignore[misc]
            )
        yield f"{name} runs on a tiny panel.", lambda: _runs(cls)
        yield f"{name} gives the same release for the same seed.", lambda: _same_release(cls)
        yield f"{name} leaves its input as it was.", lambda: _input_untouched(cls)
        yield f"{name} charges the same ledger for neighboring data.", lambda: _same_ledger(cls)
    elif issubclass(cls, Metric):
        yield f"{name} gives its perfect value for the reference itself.", lambda: _perfect(cls())
        yield f"{name} never prefers a more damaged copy.", lambda: _monotone(cls())


def _documented(cls: Any) -> str | None:  # noqa: ANN401 - a component class
    doc = inspect.getdoc(cls) or ""
    if not doc:
        return f"Give the class {cls.__name__} a docstring."
    inherited = "".join(inspect.getdoc(base) or "" for base in cls.__mro__)
    for field in dataclasses.fields(cls):
        if field.init and f"{field.name}:" not in inherited:
            return f"Describe '{field.name}' under 'Attributes:' in {cls.__name__}'s docstring."
    if (
        issubclass(cls, Mechanism)
        and cls.role is not Role.REFERENCE
        and "formal guarantee" not in doc.lower()
    ):
        return f"Add a section 'Formal guarantee' to {cls.__name__}'s docstring."
    return None


def _arrays_differ(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> str | None:
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            return f"'{name}' is in one of them only."
        if not np.array_equal(first[name], second[name], equal_nan=first[name].dtype.kind == "f"):
            return f"'{name}' differs; draw all randomness from `rng`."
    return None


def _same_data(source: DatasetSource) -> str | None:
    if source.files():
        return None  # what it reads need not be here
    first, second = (source.load(rng=np.random.default_rng(7)).to_arrays()[0] for _ in range(2))
    return _arrays_differ(first, second)


def _budget(mechanism: Mechanism, relation: NeighboringRelation) -> Budget:
    if mechanism.role is not Role.PRIVATE:
        return Budget.unlimited(relation=relation)
    return Budget.approximate_dp(1.0, 1e-5, relation=relation)


def _run(mechanism: Mechanism, budget: Budget, dataset: Dataset) -> Release | str:
    reason = mechanism.supports(dataset.schema, budget)
    if reason is not None:
        return reason
    return mechanism.release(dataset.for_mechanism(), budget, rng=np.random.default_rng(7))


@lru_cache(maxsize=8)
def _first(cls: type[Mechanism], relation: NeighboringRelation) -> Release | str:
    """The release on the tiny panel, or why there is none; several questions look at it."""
    return _run(cls(), _budget(cls(), relation), tiny(cls.kind))


@lru_cache(maxsize=4)
def _again(cls: type[Mechanism]) -> tuple[Release | str, Dataset]:
    """The same once more, and the panel afterwards."""
    dataset = tiny(cls.kind)
    budget = _budget(cls(), NeighboringRelation.ADD_OR_REMOVE_ONE)
    return _run(cls(), budget, dataset), dataset


def _runs(cls: type[Mechanism]) -> str | None:
    refusals = []
    for relation in NeighboringRelation:
        release: object = _first(cls, relation)
        if isinstance(release, SyntheticTables | Estimates):
            return None
        if not isinstance(release, str):
            return f"release() returned {type(release).__name__}, not a release."
        refusals.append(release)
    if cls.role is Role.REFERENCE:
        return None  # it may need what is not here, such as an endpoint
    return f"It refuses under every relation: {refusals[0]}"


def _within_budget(cls: type[Mechanism], relation: NeighboringRelation) -> str | None:
    dataset, release = tiny(cls.kind), _first(cls, relation)
    if isinstance(release, str):
        return None if release else "supports() must give a reason, not an empty text."
    if release.kind != dataset.kind:
        return f"It returned {type(release).__name__} for {dataset.kind}."
    return accounting.excess(release.guarantee, _budget(cls(), relation), unit=dataset.schema.unit)


def _same_release(cls: type[Mechanism]) -> str | None:
    first, (second, _) = _first(cls, NeighboringRelation.ADD_OR_REMOVE_ONE), _again(cls)
    if isinstance(first, str) or isinstance(second, str):
        return None
    return _arrays_differ(first.to_arrays()[0], second.to_arrays()[0])


def _input_untouched(cls: type[Mechanism]) -> str | None:
    _, dataset = _again(cls)
    return _arrays_differ(dataset.to_arrays()[0], tiny(cls.kind).to_arrays()[0])


def _neighbor(dataset: Dataset) -> Dataset:
    if isinstance(dataset, UserTables):
        gone = dataset.train[USER].iloc[0]
        return dataclasses.replace(dataset, train=dataset.train[dataset.train[USER] != gone])
    present = dataset.present.copy()
    present[dataset.episodes(Split.TEST), :, 0] = False
    observations = np.where(present[..., None], dataset.observations, np.nan)
    return dataclasses.replace(dataset, present=present, observations=observations)


def _same_ledger(cls: type[Mechanism]) -> str | None:
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    first = _first(cls, relation)
    second = _run(cls(), _budget(cls(), relation), _neighbor(tiny(cls.kind)))
    if isinstance(first, str) or isinstance(second, str):
        return None
    if first.guarantee != second.guarantee:
        return "The guarantee changed when one unit was removed; it must not depend on the data."
    silent = first.guarantee.established is Established.SETTLED and not first.guarantee.ledger
    if silent and _arrays_differ(first.to_arrays()[0], second.to_arrays()[0]):
        return "Its ledger is empty, but the release changed when one unit was removed; charge it."
    return None


def _as_release(dataset: Dataset, damage: float) -> Release:
    """The reference as a release, with a fraction of its values made wrong."""
    rng = np.random.default_rng(11)
    if isinstance(dataset, SensorStreams):
        truth = dataset.state[dataset.episodes(Split.TEST)]
        wrong = damage * 5 * np.abs(rng.normal(size=truth.shape))
        steps = np.zeros(truth.shape[-1])
        return Estimates(estimate=(truth + wrong)[None], spent=steps, guarantee=_UNPROTECTED)
    frame = dataset.test.copy()
    wrong = rng.random(len(frame)) < damage
    for column in dataset.schema.columns:
        worst = column.categories[0] if column.categories else column.upper
        if worst is not None:
            frame.loc[wrong, column.name] = worst
    if not dataset.schema.regular:
        frame[TIME] *= 1.0 - damage / 2
    if damage:
        frame = frame[frame.groupby(USER).cumcount() < max(4, round(12 - 8 * damage))]
    return SyntheticTables(schema=dataset.schema, frame=frame, guarantee=_UNPROTECTED)


def _values(metric: Metric, damage: float, dataset: Dataset) -> dict[str, float]:
    rng = np.random.default_rng(7)
    scores = list(metric.score(dataset, _as_release(dataset, damage), rng=rng))
    return {score.component: score.value for score in scores}


def _panels(metric: Metric) -> list[Dataset]:
    """Panels to score on: one metric needs places, a clock or a true model, another none."""
    return [tiny_tables(), tiny_visits()] if metric.kind == UserTables.kind else [tiny_streams()]


def _perfect(metric: Metric) -> str | None:
    scored = 0
    for dataset in _panels(metric):
        values = _values(metric, 0.0, dataset)
        scored += len(values)
        for component, value in values.items():
            if component not in metric.components:
                return f"Declare '{component}' in components, with its Scale."
            expected = metric.components[component].perfect
            if not math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-9):
                return f"'{component}' is {value} for the reference itself, declared is {expected}."
    if scored or metric.needs:
        return None
    return "It gave no score at all; say in `needs` what a dataset must bring for one."


def _monotone(metric: Metric) -> str | None:
    for dataset in _panels(metric):
        series = [_values(metric, damage, dataset) for damage in (0.0, 0.2, 0.5, 1.0)]
        for component, scale in metric.components.items():
            sign = 1.0 if scale.direction is Direction.LOWER else -1.0
            values = [found[component] for found in series if component in found]
            for value in values:
                if not scale.lower <= value <= scale.upper or not math.isfinite(value):
                    return f"'{component}' = {value} lies outside {scale.lower} to {scale.upper}."
            worse = [sign * value for value in values]
            if any(b < a - 1e-9 for a, b in pairwise(worse)):
                return f"'{component}' went {values} as the copy was damaged more."
    return None
