"""A leaderboard as text for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench.extension import Role
from panelbench.leaderboard import RANKED, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.extension import Role
from panelbench.leaderboard import Board, Row

HEADINGS = {
    Section.SETTLED: "private, guarantee recomputed by the harness",
    Section.DECLARED: "private, guarantee declared by a library only",
    Section.BASELINE: "baselines that read no protected data",
    Section.REFERENCE: "references that are not private (not ranked)",
    Section.INCOMPLETE: "incomplete (not ranked)",
}


def number(value: float | None) -> str:
    """Four significant digits."""
    return "" if value is None else f"{value:.4g}"


def entry_text(row: Row) -> str:
    """Mean, half-width of the interval, and the tie group of the best as a star."""
    if row.mean is None:
        return f"- ({row.n_ok}/{row.n_planned})"
    text = number(row.mean)
    if row.lower is not None and row.upper is not None:
        text += f" ±{(row.upper - row.lower) / 2:.2g}"
    if row.section not in RANKED and row.n_ok < row.n_planned:
        text += f" ({row.n_ok}/{row.n_planned})"
    return text + ("*" if row.tie_group == 1 and row.role == Role.PRIVATE else "")


def render(board: Board, *, every_component: bool = False) -> str:
    """All headline tables of a board: one for each dataset and metric, budgets across."""
    lines = [f"Leaderboard {board.name}" + (f": {board.title}" if board.title else "")]
    tables: dict[tuple[str, ...], list[Row]] = {}
    headline: dict[tuple[str, str], str] = {}
    for row in board.rows:
        first = headline.setdefault((row.dataset, row.metric), row.component)
        if every_component or row.component == first:
            key = (row.dataset, row.metric, row.component)
            tables.setdefault(key, []).append(row)
    for (dataset, metric, component), rows in tables.items():
        unit = next((row.unit for row in rows if row.unit), "")
        direction = next((row.direction for row in rows if row.direction), "")
        lines += ["", f"{dataset} | {metric} {component}" + (f" [{unit}]" if unit else "")]
        lines[-1] += f", {direction} is better" if direction else ""
        lines.extend(_table(rows, board))
    lines += ["", "±: half-width of the 95 % interval over repeats. *: not separated from the best"]
    lines[-1] += " entry of its column (Holm, 5 %)."
    lines += [
        f"Quarantined: {bad.mechanism} on {bad.dataset} at {bad.budget}: {bad.reason}"
        for bad in board.quarantined
    ]
    if board.failures:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(board.failures.items()))
        lines.append(f"Cells that did not end well: {counts}; `panelbench status` lists them.")
    return "\n".join(lines)


def _budget_of(row: Row) -> tuple[str, float] | None:
    if row.role != "private" or row.epsilon is None or row.b_g is None:
        return None
    return row.neighboring_relation, row.b_g if row.epsilon is None else row.epsilon


def _table(rows: list[Row], board: Board) -> Iterator[str]:
    budgets = sorted({b for row in rows if (b := _budget_of(row)) is not None})
    relations = {relation for relation, _ in budgets}
    heads = []
    for relation, epsilon in budgets:
        row = next(r for r in rows if _budget_of(r) == (relation, epsilon))
        head = f"eps {number(epsilon)} (B_G {number(row.b_g)})"
        heads.append(head + (f" {relation}" if len(relations) > 1 else ""))
    entries: dict[tuple[str, str], dict[str, str]] = {}
    sections: dict[tuple[str, str], str] = {}
    for row in rows:
        name = (row.mechanism, row.params)
        budget = _budget_of(row)
        where = heads[budgets.index(budget)] if budget in budgets else ""
        entries.setdefault(name, {})[where] = entry_text(row)
        if row.section in RANKED or name not in sections:
            sections[name] = row.section
    width = max(len(board.labels[name]) for name in entries)
    columns = [max(len(h), *(len(e.get(h, "")) for e in entries.values())) for h in heads]
    if heads:
        cells = "  ".join(h.rjust(w) for h, w in zip(heads, columns, strict=True))
        yield f"  {'':{width}}  {cells}"
    for section, heading in HEADINGS.items():
        members = [name for name in entries if sections[name] == section]
        if not members:
            continue
        yield f" {heading}"
        for name in members:
            label = f"  {board.labels[name]:{width}}  "
            if "" in entries[name]:
                yield label + entries[name][""]
            else:
                pairs = zip(heads, columns, strict=True)
                yield label + "  ".join(entries[name].get(h, "").rjust(w) for h, w in pairs)
