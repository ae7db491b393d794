"""A leaderboard as text for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from panelbench.board import RANKED, Section
from panelbench.extension import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.board import Board, Claim, Row

HEADINGS = {
    Section.SETTLED: "private, guarantee recomputed by the harness",
    Section.DECLARED: "private, guarantee declared by a library only",
    Section.BASELINE: "baselines that claim to read no protected data",
    Section.REFERENCE: "references that are not private (not ranked)",
    Section.QUARANTINED: "quarantined: an audit contradicts the guarantee (not ranked)",
    Section.INCOMPLETE: "incomplete (not ranked)",
}


def number(value: float | None) -> str:
    """Four significant digits."""
    return "" if value is None else f"{value:.4g}"


def half_width(row: Row) -> str:
    """Half the width of the interval, two significant digits; empty where there is none."""
    if row.lower is None or row.upper is None:
        return ""
    return f"{float(f'{(row.upper - row.lower) / 2:.2g}'):g}"


def entry_text(row: Row) -> str:
    """Mean, half-width of the interval, and the tie group of the best as a star."""
    if row.mean is None:
        return f"- ({row.n_ok}/{row.n_planned})"
    text = number(row.mean)
    if half_width(row):
        text += f" ±{half_width(row)}"
    if row.section not in RANKED and row.n_ok < row.n_planned:
        text += f" ({row.n_ok}/{row.n_planned})"
    return text + ("*" if near_best(row) else "")


def near_best(row: Row) -> bool:
    """Whether a private row is not separated from the best; False where there is no interval."""
    return row.tie_group == 1 and row.role == Role.PRIVATE and row.lower is not None


def render(board: Board, *, every_component: bool = False) -> str:
    """All headline tables of a board: one for each dataset and metric, budgets across."""
    lines = [f"Leaderboard {board.name}" + (f": {board.title}" if board.title else "")]
    tables: dict[tuple[str, ...], list[tuple[Row, Claim]]] = {}
    headline: dict[tuple[str, str], str] = {}
    for row, claim in zip(board.rows, board.claims, strict=True):
        first = headline.setdefault((row.dataset, row.metric), row.component)
        if every_component or row.component == first:
            key = (row.dataset, row.metric, row.component)
            tables.setdefault(key, []).append((row, claim))
    for (dataset, metric, component), pairs in tables.items():
        rows = [row for row, _ in pairs]
        unit = next((row.unit for row in rows if row.unit), "")
        direction = next((row.direction for row in rows if row.direction), "")
        lines += ["", f"{dataset} | {metric} {component}" + (f" [{unit}]" if unit else "")]
        lines[-1] += f", {direction} is better" if direction else ""
        lines.extend(_table(pairs, board))
    lines += [
        "",
        "±: half-width of the 95 % interval over repeats (and test windows, where a score is a",
    ]
    lines += ["mean over them). *: not separated from the best"]
    lines[-1] += " of its column and heading (Holm, 5 %)."
    if any(row.rank is not None and row.lower is None for row in board.rows):
        lines += ["One repeat gives no interval: there, nothing is separated and nothing starred."]
    lines += [
        f"Quarantined: {bad.mechanism} on {bad.dataset} at {bad.budget}: {bad.reason}"
        for bad in board.quarantined
    ]
    lines += [f"Note: {remark}" for remark in board.remarks]
    if board.failures:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(board.failures.items()))
        lines.append(f"Cells that did not end well: {counts}; `panelbench status` lists them.")
    return "\n".join(lines)


_STATED = {"dp": ("eps", "epsilon"), "rdp": ("B_G", "b_g"), "zcdp": ("rho", "rho")}


def _budget_of(row: Row, field: str) -> tuple[str, float] | None:
    level = getattr(row, field)
    return None if row.role != Role.PRIVATE or level is None else (row.neighboring_relation, level)


def heading_of(section: str, claim: Claim) -> str:
    """What rows that may be compared have in common."""
    heading = HEADINGS[Section(section)]
    return heading + (f"; assumed: {'; '.join(claim.public)}" if claim.public else "")


@dataclass(frozen=True, kw_only=True)
class Pivot:
    """Rows of one dataset, metric and component: entries down, budgets across.

    Attributes:
        budgets: Relation and level of each column.
        heads: Name of each column, in the notion of the grid.
        below: The other notion's figure, and the relation where there are several.
        groups: For each heading its entries: name, and row by budget; None for one without.
    """

    budgets: list[tuple[str, float]]
    heads: list[str]
    below: list[str]
    groups: list[tuple[str, list[tuple[tuple[str, str], dict[tuple[str, float] | None, Row]]]]]


def pivot(pairs: list[tuple[Row, Claim]], notion: str) -> Pivot:
    """Arrange rows of one dataset, metric and component, with their claims.

    Args:
        pairs: The rows.
        notion: In which the grid states its budgets.
    """
    rows = [row for row, _ in pairs]
    word, field = _STATED[notion]
    also, other = ("B_G", "b_g") if field == "epsilon" else ("eps", "epsilon")
    budgets = sorted({b for row in rows if (b := _budget_of(row, field)) is not None})
    several = len({relation for relation, _ in budgets}) > 1
    heads, below = [], []
    for budget in budgets:
        heads.append(f"{word} {number(budget[1])}")
        figures = [getattr(r, other) for r in rows if _budget_of(r, field) == budget]
        known = sorted(figure for figure in figures if figure is not None)
        told = f"{also} {known[0]:.3g} " if known else ""
        if known and f"{known[0]:.3g}" != f"{known[-1]:.3g}":  # not Gaussian noise all
            told = f"{also} {known[0]:.3g} to {known[-1]:.3g} "
        below.append((told + (budget[0] if several else "")).strip())
    entries: dict[tuple[str, str], dict[tuple[str, float] | None, Row]] = {}
    headings: dict[tuple[str, str], str] = {}
    for row, claim in pairs:
        name = (row.mechanism, row.params)
        entries.setdefault(name, {})[_budget_of(row, field)] = row
        if row.section in RANKED or name not in headings:
            headings[name] = heading_of(row.section, claim)
    order = list(HEADINGS.values())
    groups = [
        (heading, [(name, entries[name]) for name in entries if headings[name] == heading])
        for heading in sorted(
            set(headings.values()), key=lambda text: (order.index(text.split("; assumed")[0]), text)
        )
    ]
    return Pivot(budgets=budgets, heads=heads, below=below, groups=groups)


def _table(pairs: list[tuple[Row, Claim]], board: Board) -> Iterator[str]:
    found = pivot(pairs, board.notion)
    budgets = found.budgets
    entries = [entry for _, members in found.groups for entry in members]
    width = max(len(board.labels[name]) for name, _ in entries)
    texts = {
        name: [entry_text(by[budget]) if budget in by else "" for budget in budgets]
        for name, by in entries
    }
    columns = [
        max(len(head), len(under), *(len(texts[name][k]) for name, _ in entries))
        for k, (head, under) in enumerate(zip(found.heads, found.below, strict=True))
    ]

    def line(label: str, texts: list[str]) -> str:
        cells = (text.rjust(size) for text, size in zip(texts, columns, strict=True))
        return f"  {label:{width}}  " + "  ".join(cells)

    if budgets:
        yield line("", found.heads)
        yield line("", found.below)
    for heading, members in found.groups:
        yield f" {heading}"
        for name, by in members:
            yield (
                line(board.labels[name], texts[name])
                if any(texts[name])
                else (f"  {board.labels[name]:{width}}  {entry_text(by[None])}")
            )
