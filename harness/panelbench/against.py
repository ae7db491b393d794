"""Every entry of a board against one of them: paired differences with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from panelbench.errors import GridError, unknown
from panelbench.extension import Role
from panelbench.plot import AXES
from panelbench.statistics import difference
from panelbench.table import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from panelbench.board import Board, Row
    from panelbench.statistics import Interval

    Sample = Mapping[int, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Versus:
    """One row and how it differs from the chosen entry at the same budget.

    Attributes:
        row: Of the other entry.
        label: Its name for people.
        by: Row less chosen entry, paired over shared repeats and cases.
        share: The difference over the chosen entry's mean.
    """

    row: Row
    label: str
    by: Interval
    share: float


def against(board: Board, chosen: str) -> list[Versus]:
    """All rows that can be paired with the chosen entry.

    Entries without a budget are paired with it at every budget.

    Args:
        board: The board.
        chosen: Label or full name of an entry.

    Raises:
        GridError: Where no entry is called so.
    """
    names = {label: key for key, label in board.labels.items()}
    names |= {key[0]: key for key in board.labels if key[0] not in names}
    if chosen not in names:
        raise GridError(unknown("entry", chosen, names))
    column = AXES[board.notion][0]
    known: dict[tuple[object, ...], tuple[Row, Sample]] = {}
    for row, sample in zip(board.rows, board.samples, strict=True):
        if (row.mechanism, row.params) == names[chosen] and sample:
            known[_where(row, column)] = (row, sample)
            known.setdefault((*_where(row, column)[:3], None, None), (row, sample))
    found = []
    for row, sample in zip(board.rows, board.samples, strict=True):
        place = _where(row, column)
        other = known.get(place) or known.get((*place[:3], None, None))
        own = (row.mechanism, row.params) == names[chosen]
        if other is None or own or not sample:
            continue
        if other[0].role == Role.PRIVATE and place not in known:
            continue  # the chosen entry has other budgets
        by = difference(sample, other[1])
        base = other[0].mean
        if by is not None and base is not None:
            share = by.mean / abs(base) if base else math.inf
            label = board.labels[row.mechanism, row.params]
            found.append(Versus(row=row, label=label, by=by, share=share))
    return found


def _where(row: Row, column: str) -> tuple[object, ...]:
    """What must be the same: data, metric, and the budget where there is one."""
    place: tuple[object, ...] = (row.dataset, row.metric, row.component)
    if row.role == Role.PRIVATE:
        return (*place, row.neighboring_relation, getattr(row, column))
    return (*place, None, None)


def render(board: Board, chosen: str, *, every_component: bool = False) -> Iterator[str]:
    """The differences as text, one line a row."""
    headline: dict[tuple[str, str], str] = {}
    title: tuple[str, ...] = ()
    for versus in against(board, chosen):
        row, by = versus.row, versus.by
        first = headline.setdefault((row.dataset, row.metric), row.component)
        if not every_component and row.component != first:
            continue
        if title != (row.dataset, row.metric, row.component):
            title = (row.dataset, row.metric, row.component)
            unit = f" [{row.unit}]" if row.unit else ""
            yield f"\n{row.dataset} | {row.metric} {row.component}{unit}, less {chosen}"
        at = ""
        if row.role == Role.PRIVATE:
            at = f"B_G {number(row.b_g)} eps {number(row.epsilon)} {row.neighboring_relation}"
        spread = "" if by.lower is None else f" [{number(by.lower)}, {number(by.upper)}]"
        sure = "" if by.lower is None or by.upper is None or by.lower <= 0 <= by.upper else " *"
        yield f"  {versus.label:24}  {at:44}  {number(by.mean)}{spread} ({versus.share:+.1%}){sure}"
    yield "\nPaired over shared repeats (and test windows); 95 % intervals, each alone. *: not 0."
