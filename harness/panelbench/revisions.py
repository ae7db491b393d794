"""What a new publication of a board takes back or changes, for the line it must leave."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from panelbench.plot import AXES

if TYPE_CHECKING:
    from panelbench.board import Board, Row

FILE = "CHANGES.md"
_HEAD = "# Entries that were changed or withdrawn\n\nNewest last; new entries are not listed.\n"


def revised(before: Board, after: Board) -> list[str]:
    """Entries of the first board that the second has no more, or with other numbers.

    Returns:
        One line an entry, dataset and neighboring relation; empty where all stand as they were.
    """
    old, new = _values(before), _values(after)
    lost: Counter[tuple[str, ...]] = Counter()
    changed: Counter[tuple[str, ...]] = Counter()
    for name, value in old.items():
        entry = name[0]
        if name not in new:
            lost[entry] += 1
        elif new[name] != value:
            changed[entry] += 1
    total = Counter(name[0] for name in old)
    lines = []
    for entry in dict.fromkeys(name[0] for name in old):
        told = " ".join(part for part in entry if part)
        if lost[entry] == total[entry]:
            lines.append(f"withdrawn: {told}")
        elif lost[entry] or changed[entry]:
            parts = [
                f"{count} of {total[entry]} numbers {what}"
                for count, what in ((changed[entry], "changed"), (lost[entry], "withdrawn"))
                if count
            ]
            lines.append(f"{told}: {', '.join(parts)}")
    return lines


def noted(text: str, name: str, day: str, reason: str, lines: list[str]) -> str:
    """The file of changes with one more publication.

    Args:
        text: What it says so far; may be empty.
        name: Of the board.
        day: ISO 8601.
        reason: One sentence.
        lines: As `revised` gives them.
    """
    listed = "\n".join(f"- {line}" for line in lines)
    return f"{text or _HEAD}\n## {name}, {day}\n\n{reason.strip()}\n\n{listed}\n"


def _values(board: Board) -> dict[tuple[tuple[str, ...], tuple[object, ...]], object]:
    """Means and intervals by entry and by budget, metric and component."""
    return {
        (_entry(row, board), (getattr(row, AXES[board.notion][0]), row.metric, row.component)): (
            row.mean, row.lower, row.upper, row.n_ok, row.section,
        )
        for row in board.rows
    }  # fmt: skip


def _entry(row: Row, board: Board) -> tuple[str, ...]:
    label = board.labels[row.mechanism, row.params]
    named = label if label in row.mechanism else f"{label} ({row.mechanism})"
    return (named, "on", row.dataset, row.neighboring_relation)
