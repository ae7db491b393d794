"""What a leaderboard is: rows, sections, and the CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import Counter


class Section(StrEnum):
    """Where a row is shown; ranks exist in the first three only."""

    SETTLED = "private-settled"
    DECLARED = "private-declared"
    BASELINE = "data-independent-baseline"
    REFERENCE = "non-private-reference"
    QUARANTINED = "quarantined"
    INCOMPLETE = "incomplete"


RANKED = (Section.SETTLED, Section.DECLARED, Section.BASELINE)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One entry, metric and budget; the fields are the CSV's columns, in order."""

    dataset: str
    mechanism: str
    params: str
    role: str
    privacy_unit: str = ""
    neighboring_relation: str = ""
    epsilon: float | None = None
    delta: float | None = None
    alpha: float | None = None
    b_g: float | None = None
    rho: float | None = None
    metric: str
    component: str
    unit: str = ""
    direction: str = ""
    mean: float | None = None
    lower: float | None = None
    upper: float | None = None
    n_ok: int
    n_planned: int
    floor: float | None = None
    difference_to_best: float | None = None
    difference_lower: float | None = None
    difference_upper: float | None = None
    tie_group: int | None = None
    rank: int | None = None
    rank_lower: int | None = None
    rank_upper: int | None = None
    accounting: str = ""
    audit_epsilon_lower: float | None = None
    section: str
    seconds: float | None = None
    peak_mb: float | None = None
    plugin: str
    version: str


COLUMNS = tuple(column.name for column in dataclasses.fields(Row))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a row's guarantee says beyond its numbers.

    Attributes:
        public: What is assumed public beyond the schema; rows are ranked only among equals.
        note: One sentence from the mechanism.
    """

    public: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """An entry at one budget whose guarantee did not hold.

    Where the guarantee exceeded the budget it has no row; where an audit contradicts the guarantee
    its rows are in the section for that.
    """

    dataset: str
    mechanism: str
    budget: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Board:
    """A leaderboard.

    Attributes:
        name: Of the grid.
        title: Of the grid.
        notion: In which the grid states its budgets.
        rows: In the order of the grid, metrics inside entries.
        details: For each row the detail of its score, mean over repeats.
        panels: For each row the panels of its score by title, as records have them, of the first
            repeat.
        samples: For each row its values by repeat, and by case where the score has cases.
        claims: For each row what its guarantee says beyond the numbers.
        quarantined: Entries whose claim exceeded the budget, or is contradicted by an audit.
        remarks: What a reader should ask about; sentences.
        failures: How many planned cells ended in each status that is not ok.
        labels: Name for people of each (mechanism, params).
    """

    name: str
    title: str
    notion: str
    rows: list[Row]
    details: list[dict[str, float]]
    panels: list[dict[str, dict[str, Any]]]
    samples: list[dict[int, tuple[float, ...]]]
    claims: list[Claim]
    quarantined: list[Excluded]
    remarks: list[str]
    failures: Counter[str]
    labels: dict[tuple[str, str], str]


def to_csv(board: Board) -> str:
    """The board as CSV, byte for byte the same from the same records."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(getattr(row, name)) for name in COLUMNS] for row in board.rows)
    return stream.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return format(value, ".10g") if isinstance(value, float) else str(value)
