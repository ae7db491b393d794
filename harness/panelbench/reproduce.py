"""Compute one recorded cell again, apart, and say whether the same comes out."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from panelbench.errors import GridError, StoreError
from panelbench.grid import Choice, Grid
from panelbench.plan import make_plan, state_of
from panelbench.privacy import Budget, Notion
from panelbench.record import Record, Status, Store
from panelbench.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from panelbench.grid import Limits
    from panelbench.loader import Plugin
    from panelbench.parents import Parents
    from panelbench.progress import Progress

TOLERANCE = 1e-6
"""Relative difference of scores that rounding on another machine may make."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of computing a cell again.

    Attributes:
        verdict: "identical" (the same release), "within tolerance" (scores agree to 1e-6) or
            "different".
        changed: What the cell depends on and is not what it was: "code", "core", "lock", "data".
        scores: For each component its value as recorded and as computed now.
        error: How the new cell ended, where it did not end well.
    """

    verdict: str
    changed: list[str] = field(default_factory=list)
    scores: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    error: str = ""


def reproduce(
    record: Record,
    scores: Iterable[Record],
    plugins: dict[str, Plugin],
    store: Store,
    *,
    limits: Limits,
    parents: Parents,
    progress: Progress,
    say: Callable[[str], None],
) -> Answer:
    """Run the cell of `record` in an empty store and compare.

    Args:
        record: Of an ok cell.
        scores: Records of its scores.
        plugins: As found.
        store: An empty one.
        limits: Of the children.
        parents: Where children come from.
        progress: Told how it goes.
        say: Told what takes time.

    Raises:
        StoreError: Where the record is not one of a cell that ended well.
        GridError: Where a plugin, a component or a file is no longer there.
    """
    if record.what != "cell" or record.status is not Status.OK:
        raise StoreError(
            f"Only a cell that ended well can be computed again; '{record.key}' is a {record.what} "
            f"that ended as {record.status}."
        )
    known = [score for score in scores if score.status is Status.OK]
    subject = record.subject
    metrics = {score.key: Choice(**score.subject["metric"]) for score in known}
    if not metrics:
        raise StoreError(f"The cell '{record.key}' has no score to compare; score its grid first.")
    grid = Grid(
        name="reproduce", title="", seed=subject["seed"], repeats=1,
        notion=Notion.APPROXIMATE_DP, levels=(1.0,), delta=1e-5, alpha=2.0,
        relations=(Budget.from_json(subject["budget"]).relation,), limits=limits,
        datasets=(Choice(**subject["dataset"]),),
        mechanisms=(Choice(**subject["mechanism"]),),
        metrics=tuple(metrics.values()),
    )  # fmt: skip
    plan = make_plan(grid, plugins, store, parents=parents, say=say)
    if not plan.cells:
        raise GridError(f"The mechanism '{subject['mechanism']['name']}' no longer reads the data.")
    cell = dataclasses.replace(
        plan.cells[0], budget=Budget.from_json(subject["budget"]), repeat=subject["repeat"]
    )
    runner = Runner(plan, store, parents=parents, workers=1)
    runner.run(runner.todo([cell]), progress)
    state = state_of(plan, cell, store)
    changed = [name for name, value in cell.hashes.items() if subject["hashes"].get(name) != value]
    if state.record is None or state.record.status is not Status.OK:
        error = "it has no record" if state.record is None else state.record.error
        return Answer(verdict="different", changed=changed, error=error)
    now = _values(score for _, score in state.scores if score is not None)
    was = _values(known)
    both = {name: (was.get(name), now.get(name)) for name in sorted({*was, *now})}
    if state.record.release == record.release and was == now:
        verdict = "identical"
    elif all(_close(*pair) for pair in both.values()):
        verdict = "within tolerance"
    else:
        verdict = "different"
    return Answer(verdict=verdict, changed=changed, scores=both)


def _values(scores: Iterable[Record]) -> dict[str, float]:
    found: dict[str, Any] = {}
    for score in scores:
        metric = score.subject["metric"]
        for entry in score.scores:
            found[f"{metric['name']} {entry['component']}"] = entry["value"]
    return found


def _close(was: float | None, now: float | None) -> bool:
    if was is None or now is None:
        return False
    return math.isclose(was, now, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
