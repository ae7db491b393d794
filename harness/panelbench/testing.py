"""The exam every plugin takes, ours and a stranger's, and the tiny panels it is taken on.

`panelbench check PLUGIN` runs `examine` and prints the findings. In a plugin's own tests:

    @pytest.mark.parametrize("finding", examine(plugin), ids=str)
    def test_the_plugin_passes_the_exam(finding):
        assert finding.passed, finding.why
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from panelbench import accounting, loader
from panelbench.data import Dataset, SensorStreams, Split, UserTables
from panelbench.errors import PanelbenchError
from panelbench.extension import DatasetSource, Mechanism, Metric, Role
from panelbench.privacy import Budget, Established, Guarantee, NeighboringRelation, PrivacyUnit
from panelbench.release import Estimates, Release, SyntheticTables
from panelbench.schema import TIME, USER, Column, ColumnKind, Schema
from panelbench.score import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNPROTECTED = Guarantee(
    established=Established.NONE,
    unit=PrivacyUnit.USER,
    relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One question of the exam and its answer.

    Attributes:
        fact: What should be true, one sentence.
        passed: Whether it is.
        why: What was found instead and what to change, where it is not.
    """

    fact: str
    passed: bool
    why: str = ""

    def __str__(self) -> str:
        return self.fact


def tiny_tables(users: int = 120, seed: int = 0) -> UserTables:
    """User tables with numeric, integer, nullable and categorical columns, 4 to 12 rows each.

    >>> tiny_tables().train[USER].nunique()
    60
    """
    rng = np.random.default_rng(seed)
    schema = Schema(
        columns=(
            Column(name="level", lower=-10.0, upper=10.0, unit="m"),
            Column(name="count", lower=0.0, upper=20.0, integer=True, nullable=True),
            Column(name="state", kind=ColumnKind.CATEGORICAL, categories=("calm", "busy", "full")),
        ),
        unit=PrivacyUnit.USER,
        min_rows=4,
        max_rows=12,
        nominal_users=users // 2,
        title="tiny tables",
    )
    tables = []
    for user in range(users):
        rows = int(rng.integers(4, 13))
        level = np.clip(np.cumsum(rng.normal(size=rows)) + rng.normal(0, 2), -10, 10)
        count = rng.poisson(5, rows).clip(0, 20).astype(float)
        count[rng.random(rows) < 0.1] = np.nan
        state = np.array(schema["state"].categories)[np.digitize(level, (-1.0, 1.0))]
        times = {USER: user, TIME: np.arange(rows, dtype=float)}
        tables.append(pd.DataFrame({**times, "level": level, "count": count, "state": state}))
    frame = pd.concat(tables, ignore_index=True)
    first = frame[USER] < users // 2
    return UserTables(schema=schema, train=frame[first], test=frame[~first])


def tiny_streams(episodes: int = 24, steps: int = 20, seed: int = 0) -> SensorStreams:
    """Episodes of up to thirty vehicles that come and go on a short road."""
    rng = np.random.default_rng(seed)
    sensors = 30
    start = rng.integers(-steps, steps, (episodes, sensors))
    stay = rng.integers(5, 2 * steps, (episodes, sensors))
    step = np.arange(steps)[None, :, None]
    present = (step >= start[:, None]) & (step < (start + stay)[:, None])
    speed = 20 - 0.5 * present.sum(axis=2, keepdims=True) + rng.normal(0, 1, present.shape)
    position = np.clip((step - start[:, None]) / stay[:, None] * 400, 0, 400) + 0.0 * speed
    observations = np.stack([position, np.clip(speed, 0, 45)], axis=-1)
    observations[~present] = np.nan
    return SensorStreams(
        schema=Schema(
            columns=(
                Column(name="position", unit="m", lower=0.0, upper=400.0),
                Column(name="speed", unit="m/s", lower=0.0, upper=45.0),
            ),
            unit=PrivacyUnit.SENSOR_TRAJECTORY,
            min_rows=steps,
            max_rows=steps,
            state=Column(name="density", unit="veh/km", lower=0.0),
            title="tiny streams",
        ),
        observations=observations,
        present=present,
        state=present.sum(axis=2) / 0.4,
        split=np.repeat(list(Split), [episodes // 2, episodes // 4, episodes - 3 * episodes // 4]),
        step_seconds=0.2,
    )


def tiny(kind: str) -> Dataset:
    """The tiny panel of a kind of dataset."""
    return tiny_tables() if kind == UserTables.kind else tiny_streams()


def examine_apart(plugin: loader.Plugin, *, seconds: float = 900) -> list[Finding]:
    """Put one plugin through the exam in a process of its own, whatever it does there."""
    fact = "The exam ends by itself."
    try:
        child = subprocess.run(
            [sys.executable, "-m", "panelbench.testing"],
            input=json.dumps(dataclasses.asdict(plugin)),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Finding(fact=fact, passed=False, why=f"It ran past {seconds:g} seconds.")]
    try:
        return [Finding(**finding) for finding in json.loads(child.stdout)]
    except ValueError:
        last = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        return [Finding(fact=fact, passed=False, why=f"The plugin ended the process: {last[0]}")]


def examine(plugin: loader.Plugin) -> list[Finding]:
    """Put one plugin through the exam; imports it into this process."""
    try:
        components = loader.load(plugin)
    except PanelbenchError as error:
        return [Finding(fact="The plugin loads.", passed=False, why=str(error))]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an import can raise anything
        where = loader.last_frame(error, plugin)
        why = f"{type(error).__name__} at {where}: {error}"
        return [Finding(fact="The plugin loads.", passed=False, why=why)]
    findings = [Finding(fact="The plugin loads.", passed=True)]
    for cls in components.values():
        findings.extend(examine_component(cls))
    return findings


def examine_component(cls: type) -> list[Finding]:
    """Put one component through the questions for its kind."""
    findings = []
    for fact, question in questions(cls):
        try:
            why = question() or ""
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the exam reports it all
            why = f"{type(error).__name__}: {error}"
        findings.append(Finding(fact=fact, passed=not why, why=why))
    return findings


def questions(cls: Any) -> Iterator[tuple[str, Callable[[], str | None]]]:  # noqa: ANN401
    """Each fact that should hold of a component, with a function that says why it does not."""
    name = cls.name
    yield f"{name} says what it does, and documents each parameter.", lambda: _documented(cls)
    if issubclass(cls, DatasetSource):
        if not cls().files():
            yield f"{name} gives the same data for the same seed.", lambda: _same_data(cls())
    elif issubclass(cls, Mechanism):
        for relation in NeighboringRelation:
            if cls().role is not Role.PRIVATE and relation is not next(iter(NeighboringRelation)):
                continue
            budget = _budget(cls(), relation)
            yield (
                f"{name} keeps within its budget under {relation}.",
                lambda budget=budget: _within_budget(cls(), budget),  # type: ignore[misc]
            )
        yield f"{name} runs on a tiny panel.", lambda: _runs(cls())
        yield f"{name} gives the same release for the same seed.", lambda: _same_release(cls())
        yield f"{name} leaves its input as it was.", lambda: _input_untouched(cls())
        yield (
            f"{name} charges the same ledger for neighboring data.",
            lambda: _same_ledger(cls()),
        )
    elif issubclass(cls, Metric):
        yield f"{name} gives its perfect value for the reference itself.", lambda: _perfect(cls())
        yield f"{name} never prefers a more damaged copy.", lambda: _monotone(cls())


def _documented(cls: Any) -> str | None:  # noqa: ANN401 - a component class
    doc = inspect.getdoc(cls) or ""
    if not doc:
        return f"Give the class {cls.__name__} a docstring."
    for field in dataclasses.fields(cls):
        if field.init and f"{field.name}:" not in doc:
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


def _runs(mechanism: Mechanism) -> str | None:
    refusals = []
    for relation in NeighboringRelation:
        release: object = _run(mechanism, _budget(mechanism, relation), tiny(mechanism.kind))
        if isinstance(release, SyntheticTables | Estimates):
            return None
        if not isinstance(release, str):
            return f"release() returned {type(release).__name__}, not a release."
        refusals.append(release)
    return f"It refuses under every relation: {refusals[0]}"


def _within_budget(mechanism: Mechanism, budget: Budget) -> str | None:
    dataset = tiny(mechanism.kind)
    release = _run(mechanism, budget, dataset)
    if isinstance(release, str):
        return None if release else "supports() must give a reason, not an empty text."
    if release.kind != dataset.kind:
        return f"It returned {type(release).__name__} for {dataset.kind}."
    return accounting.excess(release.guarantee, budget, unit=dataset.schema.unit)


def _same_release(mechanism: Mechanism) -> str | None:
    budget = _budget(mechanism, NeighboringRelation.ADD_OR_REMOVE_ONE)
    first, second = (_run(mechanism, budget, tiny(mechanism.kind)) for _ in range(2))
    if isinstance(first, str) or isinstance(second, str):
        return None
    return _arrays_differ(first.to_arrays()[0], second.to_arrays()[0])


def _input_untouched(mechanism: Mechanism) -> str | None:
    dataset = tiny(mechanism.kind)
    _run(mechanism, _budget(mechanism, NeighboringRelation.ADD_OR_REMOVE_ONE), dataset)
    return _arrays_differ(dataset.to_arrays()[0], tiny(mechanism.kind).to_arrays()[0])


def _neighbor(dataset: Dataset) -> Dataset:
    if isinstance(dataset, UserTables):
        gone = dataset.train[USER].iloc[0]
        return dataclasses.replace(dataset, train=dataset.train[dataset.train[USER] != gone])
    present = dataset.present.copy()
    present[dataset.episodes(Split.TEST), :, 0] = False
    observations = np.where(present[..., None], dataset.observations, np.nan)
    return dataclasses.replace(dataset, present=present, observations=observations)


def _same_ledger(mechanism: Mechanism) -> str | None:
    budget = _budget(mechanism, NeighboringRelation.ADD_OR_REMOVE_ONE)
    dataset = tiny(mechanism.kind)
    first, second = (_run(mechanism, budget, d) for d in (dataset, _neighbor(dataset)))
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
    for column in dataset.schema.numeric:
        if column.upper is not None:
            frame.loc[wrong, column.name] = column.upper
    if damage:
        frame = frame[frame.groupby(USER).cumcount() < max(4, round(12 - 8 * damage))]
    return SyntheticTables(schema=dataset.schema, frame=frame, guarantee=_UNPROTECTED)


def _values(metric: Metric, damage: float) -> dict[str, float]:
    dataset = tiny(metric.kind)
    rng = np.random.default_rng(7)
    scores = list(metric.score(dataset, _as_release(dataset, damage), rng=rng))
    return {score.component: score.value for score in scores}


def _perfect(metric: Metric) -> str | None:
    values = _values(metric, 0.0)
    for component, value in values.items():
        if component not in metric.components:
            return f"Declare '{component}' in components, with its Scale."
        expected = metric.components[component].perfect
        if not math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-9):
            return f"'{component}' is {value} for the reference itself, declared is {expected}."
    return None if values else "It gave no score at all."


def _monotone(metric: Metric) -> str | None:
    series = [_values(metric, damage) for damage in (0.0, 0.2, 0.5, 1.0)]
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


def main() -> None:
    """Examine the plugin described on standard input; findings go to the real standard output."""
    channel = os.dup(1)
    os.dup2(2, 1)  # what a plugin prints must not mix with the findings
    findings = examine(loader.Plugin(**json.load(sys.stdin)))
    with os.fdopen(channel, "w", encoding="utf-8") as stream:
        json.dump([vars(finding) for finding in findings], stream)


if __name__ == "__main__":
    main()
