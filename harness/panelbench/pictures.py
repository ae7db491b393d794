"""Pictures beside the scores of a board: what each entry did at one budget."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from panelbench.extension import Role
from panelbench.plot import AXES, Line, draw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.board import Row

    Panels = dict[str, dict[str, Any]]


def panels(
    pairs: list[tuple[Row, Panels]], labels: dict[tuple[str, str], str], notion: str
) -> Iterator[str]:
    """One figure for each title that panels of these rows have, at the middle budget.

    The two best private entries and the first of the grid are shown, the others when their name in
    the legend is chosen.

    Args:
        pairs: Rows of one dataset, metric, component and relation, with their panels.
        labels: Names for people.
        notion: In which the grid states its budgets.
    """
    column, word = AXES[notion]
    private = [row for row, _ in pairs if row.role == Role.PRIVATE and row.mean is not None]
    budgets = sorted({v for row in private if (v := getattr(row, column)) is not None})
    at = budgets[len(budgets) // 2] if budgets else None
    chosen = [
        (row, found)
        for row, found in pairs
        if found and (row.role != Role.PRIVATE or getattr(row, column) == at)
    ]
    own = [row for row, _ in chosen if row.role == Role.PRIVATE and row.mean is not None]
    sign = -1.0 if any(row.direction == "higher" for row in own) else 1.0
    best = sorted(own, key=lambda row: sign * (row.mean or 0.0))[:2]
    shown = [id(row) for row in (*best, *own[:1])] or [id(row) for row, _ in chosen]
    for title in dict.fromkeys(title for _, found in chosen for title in found):
        members = [(row, found[title]) for row, found in chosen if title in found]
        first = members[0][1]
        lines = [
            Line(
                label=labels[row.mechanism, row.params],
                x=panel["x"],
                y=panel["lines"]["value"],
                lower=panel["lines"].get("lower", ()),
                upper=panel["lines"].get("upper", ()),
                hidden=id(row) not in shown,
                strong=id(row) in shown,
            )
            for row, panel in members
        ]
        known = [panel for _, panel in members if "truth" in panel["lines"]]
        if known:
            longest = max(known, key=lambda panel: len(panel["x"]))
            truth = Line(label="truth", x=longest["x"], y=longest["lines"]["truth"], truth=True)
            lines.insert(0, truth)
        where = f" at {word} {at:g}" if at is not None else ""
        yield f"<figure><figcaption>{html.escape(title + where)}, first repeat. "
        yield "Choose a name in the legend to show or hide it.</figcaption>"
        yield draw(lines, across=first["across"], title=title, unit=first["unit"], time=True)
        yield "</figure>"
