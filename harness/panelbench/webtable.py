"""The tables of the page: entries by budget, and every number of every row."""

from __future__ import annotations

import html
from collections import Counter
from typing import TYPE_CHECKING

from panelbench.extension import Role
from panelbench.table import HEADINGS, half_width, heading_of, near_best, number, pivot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.board import Board, Claim, Row

    Pairs = list[tuple[Row, Claim]]


HEADS = ("entry", "relation", "epsilon", "B_G", "mean", "95 % interval", "n", "floor", "to best")
_FEW = 2
MORE = ("rank", "guarantee", "audit", "seconds", "MB")


def leaders(pairs: Pairs, board: Board, name: str) -> Iterator[str]:
    """Entries down, budgets across; shaded where not separated from the best.

    Args:
        pairs: Rows of one dataset, metric and component, with their claims.
        board: The board they are of.
        name: What is measured, for those who hear the page.
    """
    found = pivot(pairs, board.notion)
    budgets: list[tuple[str, float] | None] = [*found.budgets] or [None]
    heads = found.heads or ["mean"]
    yield from _open(name, [("entry", ""), *zip(heads, found.below or [""], strict=True)])
    for heading, members in found.groups:
        yield _section(heading, 1 + len(budgets))
        for entry, by in members:
            level = by.get(None)
            cells = [
                _mean(by[budget]) if budget in by else _mean(level, level=budget is not None)
                for budget in budgets
            ]
            yield _line(board.labels[entry], entry[1], cells)
        yield "</tbody>"
    yield "</table></div>"


def overview(measures: list[tuple[str, str, list[Row]]], board: Board, name: str) -> Iterator[str]:
    """Measures down, private entries across: the mean rank, and how often it is near the best.

    Args:
        measures: For each measure the id of its heading, its name and its rows.
        board: The board they are of.
        name: Of the dataset.
    """
    private = [row for _, _, rows in measures for row in rows if row.role == Role.PRIVATE]
    ranked = [row for row in private if row.rank is not None]
    entries = list(dict.fromkeys((row.mechanism, row.params) for row in ranked))
    if len(measures) < _FEW or len(entries) < _FEW:
        return
    counts = Counter((r.mechanism, r.params, r.metric, r.component) for r in ranked)
    own = {e: max(n for key, n in counts.items() if key[:2] == e) for e in entries}
    most = max(own.values())
    yield (
        '<p class="soft">Mean rank over the budgets of an entry, among those under its heading '
        "(1 is best), and at how many budgets it is not separated from the best there; shaded "
        "where at every budget of the grid. Few repeats separate little, and one repeat nothing. "
        "Ranks of an entry with fewer budgets are among others than those of the rest.</p>"
    )
    heads = [("measure", "")]
    for entry in entries:
        few = f"{own[entry]} of {most} budgets" if own[entry] < most else ""
        heads.append((board.labels[entry], few))
    yield from _open(f"{name} at a glance", heads)
    yield "<tbody>"
    for anchor, measure, rows in measures:
        link = f'<a href="#{anchor}">{html.escape(measure)}</a>'
        cells = (_rank([r for r in rows if (r.mechanism, r.params) == e], most) for e in entries)
        yield f'<tr class="measure"><th scope="row">{link}</th>{"".join(cells)}</tr>'
    yield "</tbody></table></div>"


def _rank(rows: list[Row], most: int) -> str:
    """The mean rank over budgets, and at how many of them it is not separated from the best."""
    ranked = [row for row in rows if row.rank is not None]
    if not ranked:
        return "<td></td>"
    tested = [row for row in ranked if row.lower is not None]
    near = sum(near_best(row) for row in tested)
    mean = sum(row.rank or 0 for row in ranked) / len(ranked)
    kind = ' class="best"' if near == most else ""
    below = f"<small>{near} of {len(tested)}</small>" if tested else ""
    return f'<td data-value="{mean}"{kind}>{number(mean)}{below}</td>'


def numbers(pairs: Pairs, board: Board, name: str) -> Iterator[str]:
    """Every row in full, behind a summary."""
    yield "<details><summary>Intervals, floors, differences, ranks and costs: "
    yield f"{html.escape(name)}</summary>"
    yield from _open(f"{name} in full", [(head, "") for head in HEADS + MORE])
    for section in HEADINGS:
        members = [(row, claim) for row, claim in pairs if row.section == section]
        for heading in dict.fromkeys(heading_of(section, claim) for _, claim in members):
            yield _section(heading, len(HEADS + MORE))
            for row, claim in members:
                if heading_of(section, claim) == heading:
                    label = board.labels[row.mechanism, row.params]
                    yield _line(label, f"{row.params} {claim.note}".strip(), _in_full(row))
            yield "</tbody>"
    yield "</table></div></details>"


def _open(name: str, heads: list[tuple[str, str]]) -> Iterator[str]:
    yield f'<div class="wide" tabindex="0" role="region" aria-label="{html.escape(name)}"><table>'
    cells = (
        f'<th scope="col"><button>{html.escape(head)}</button>'
        + (f"<small>{html.escape(below)}</small></th>" if below else "</th>")
        for head, below in heads
    )
    yield f"<thead><tr>{''.join(cells)}</tr></thead>"


def _section(heading: str, columns: int) -> str:
    title = f'<th scope="rowgroup" colspan="{columns}"><span>{html.escape(heading)}</span></th>'
    return f'<tbody><tr class="section">{title}</tr>'


def _line(label: str, title: str, cells: list[str]) -> str:
    name = f'<th scope="row" title="{html.escape(title)}">{html.escape(label)}</th>'
    return f'<tr data-name="{html.escape(label.lower())}">{name}{"".join(cells)}</tr>'


def _mean(row: Row | None, *, level: bool = False) -> str:
    """One cell: the mean and the half-width of its interval; `level` for one without a budget."""
    if row is None:
        return "<td></td>"
    if row.mean is None:
        return f'<td data-value="">{row.n_ok} of {row.n_planned} ok</td>'
    kind = "best" if near_best(row) else "level" if level else ""
    text = number(row.mean)
    if half_width(row):
        text += f"<small>±{half_width(row)}</small>"
    if row.n_ok < row.n_planned:
        text += f"<small>{row.n_ok} of {row.n_planned}</small>"
    return f'<td data-value="{row.mean}"' + (f' class="{kind}">' if kind else ">") + f"{text}</td>"


def audits(rows: list[Row], board: Board, name: str) -> Iterator[str]:
    """What audits found of private entries, beside the budget; entries without one say so.

    Args:
        rows: Of private entries on one dataset.
        board: The board they are of.
        name: Of the dataset.
    """
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        entry = board.labels[row.mechanism, row.params], row.neighboring_relation, row.params
        at = found.setdefault(entry, [])
        if row.audit_epsilon_lower is not None and row.epsilon not in [r.epsilon for r in at]:
            at.append(row)
    if not any(found.values()):
        return
    yield "<details><summary>What audits found</summary>"
    yield (
        '<p class="soft">By attack, with 99 % confidence. An attack may find less than there is; '
        "one that finds more than the guarantee allows puts the entry into quarantine.</p>"
    )
    heads = ("entry", "relation", "epsilon of the budget", "epsilon is at least")
    yield from _open(f"audits on {name}", [(head, "") for head in heads])
    yield "<tbody>"
    for (label, relation, params), at in found.items():
        shown = [(number(row.epsilon), number(row.audit_epsilon_lower)) for row in at]
        for pair in shown or [("", "not audited")]:
            yield _line(label, params, [f"<td>{text}</td>" for text in (relation, *pair)])
    yield "</tbody></table></div></details>"


def _in_full(row: Row) -> list[str]:
    interval = "" if row.lower is None else f"{number(row.lower)} to {number(row.upper)}"
    gap = number(row.difference_to_best)
    if row.difference_lower is not None:
        gap += f" ({number(row.difference_lower)} to {number(row.difference_upper)})"
    ranks = "" if row.rank is None else f"{row.rank} ({row.rank_lower}-{row.rank_upper})"
    best = ' class="best"' if near_best(row) else ""

    def cell(value: float | None, text: str, attributes: str = "") -> str:
        return f'<td data-value="{"" if value is None else value}"{attributes}>{text}</td>'

    return [
        f"<td>{row.neighboring_relation if row.role == Role.PRIVATE else ''}</td>",
        *(cell(value, number(value)) for value in (row.epsilon, row.b_g)),
        cell(row.mean, number(row.mean), best),
        f"<td>{interval}</td>",
        f"<td>{row.n_ok} of {row.n_planned}</td>",
        cell(row.floor, number(row.floor)),
        cell(row.difference_to_best, gap),
        cell(row.rank, ranks),
        f"<td>{row.accounting}</td>",
        cell(row.audit_epsilon_lower, number(row.audit_epsilon_lower)),
        *(cell(value, number(value)) for value in (row.seconds, row.peak_mb)),
    ]
