"""What changed between two boards: paired differences of the entries that both have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from panelbench.plot import AXES
from panelbench.statistics import Interval, difference, paired_p, separated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from panelbench.board import Board, Row


@dataclass(frozen=True, kw_only=True)
class Change:
    """One entry, metric and budget in two boards.

    Attributes:
        row: As the second board has it.
        before: Mean in the first board.
        by: Second less first, paired over shared repeats and cases, with its interval.
        sure: Whether they are separated (Holm over all changes, 5 %).
        worse: Whether the second is worse by its direction.
    """

    row: Row
    before: float
    by: Interval
    sure: bool
    worse: bool


def compare(first: Board, second: Board) -> tuple[list[Change], list[str]]:
    """Changes of all rows with values in both boards, and names of rows in one of them only.

    Entries are the same where dataset, mechanism, parameters, budget and relation are; versions
    and code may differ, which is what a comparison is for.
    """
    known = [_by_name(board) for board in (first, second)]
    shared = [name for name in known[1] if name in known[0]]
    p_values = {
        (str(index), "after"): paired_p(known[1][name][1], known[0][name][1])
        for index, name in enumerate(shared)
    }
    sure = separated(p_values)
    changes = []
    for index, name in enumerate(shared):
        (old, before), (row, after) = known[0][name], known[1][name]
        by = difference(after, before)
        if by is None or old.mean is None:
            continue
        worse = by.mean > 0 if row.direction == "lower" else by.mean < 0
        changes.append(
            Change(
                row=row,
                before=old.mean,
                by=by,
                sure=(str(index), "after") in sure,
                worse=worse,
            )
        )
    alone = [
        f"only in the {which}: {' '.join(part for part in name if part)}"
        for which, own, other in (("first", *known), ("second", *reversed(known)))
        for name in own
        if name not in other
    ]
    return changes, alone


def _by_name(
    board: Board,
) -> dict[tuple[str, ...], tuple[Row, Mapping[int, Sequence[float]]]]:
    found: dict[tuple[str, ...], tuple[Row, Mapping[int, Sequence[float]]]] = {}
    for row, sample in zip(board.rows, board.samples, strict=True):
        stated = getattr(row, AXES[board.notion][0])
        budget = "" if stated is None else f"{AXES[board.notion][1]} {stated:.6g}"
        name = (row.dataset, row.mechanism, row.params, row.neighboring_relation, budget)
        if sample:
            found[(*name, row.metric, row.component)] = (row, sample)
    return found
