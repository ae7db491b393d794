"""From a board to one HTML page that opens from disk with the network off."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from panelbench.extension import Role
from panelbench.pictures import panels
from panelbench.plot import curve
from panelbench.table import number
from panelbench.webtable import audits, leaders, numbers, overview

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from panelbench.board import Board, Row


def to_html(board: Board, plan: dict[str, Any], *, more: Iterable[str] = ()) -> str:
    """The page: every dataset, metric and component, a figure and a table each, and provenance.

    Args:
        board: What it shows.
        plan: The plan of the grid.
        more: HTML to put before the provenance.
    """
    title = html.escape(board.title or board.name)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_part('style.css')}</style></head><body><main>",
        f"<h1>{title}</h1>",
        (
            "<p>Mean and 95 % interval over repeats on one dataset, and over test windows where a "
            "score is a mean over them: otherwise the intervals cover the mechanism's randomness, "
            "not that of the data. Shaded: not separated from the best "
            "of its budget and heading (Holm, 5 %). Scores are computed on the data itself and are "
            "not private; a seeded benchmark release is not one to deploy.</p>"
        ),
        (
            '<p><label>Show only <input id="filter" type="search" '
            'placeholder="part of a name"></label></p>'
        ),
        *_sections(board),
        *_quarantined(board),
        *more,
        *_provenance(board, plan),
        f"</main><script>{_part('script.js')}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _part(name: str) -> str:
    return files("panelbench").joinpath("page", name).read_text(encoding="utf-8")


def _sections(board: Board) -> Iterator[str]:
    tables: dict[str, dict[tuple[str, str], list[int]]] = {}
    for index, row in enumerate(board.rows):
        own = tables.setdefault(row.dataset, {})
        own.setdefault((row.metric, row.component), []).append(index)
    for place, (dataset, measures) in enumerate(tables.items()):
        yield f"<h2>{html.escape(dataset)}</h2>"
        yield from _guarantees(dataset, board)
        found = [
            (f"m{place}-{count}", _measure(*key, rows := [board.rows[i] for i in members]), rows)
            for count, (key, members) in enumerate(measures.items())
        ]
        yield from overview(found, board, dataset)
        for (anchor, name, _), members in zip(found, measures.values(), strict=True):
            yield f'<h3 id="{anchor}">{html.escape(name)}</h3>'
            yield from _of_one(name, members, board)


def _measure(metric: str, component: str, rows: list[Row]) -> str:
    unit = next((row.unit for row in rows if row.unit), "")
    return f"{metric} {component}" + (f" [{unit}]" if unit else "")


def _of_one(name: str, members: list[int], board: Board) -> Iterator[str]:
    """What is shown of one measure on one dataset."""
    pairs = [(board.rows[index], board.claims[index]) for index in members]
    direction = next((row.direction for row, _ in pairs if row.direction), "")
    yield f'<p class="soft">{direction} is better.</p>' if direction else ""
    yield from leaders(pairs, board, name)
    yield from _figures(members, board, name)
    yield from numbers(pairs, board, name)


def _figures(members: list[int], board: Board, name: str) -> Iterator[str]:
    """Curves and panels, for each neighboring relation by itself."""
    private = [i for i in members if board.rows[i].role == Role.PRIVATE]
    relations = list(dict.fromkeys(board.rows[i].neighboring_relation for i in private))
    for relation in relations:
        kept = [
            i for i in members if i not in private or board.rows[i].neighboring_relation == relation
        ]
        rows = [board.rows[i] for i in kept]
        title = f"{name}, {relation}" if len(relations) > 1 else name
        picture = curve(rows, board.labels, title, board.notion)
        caption = f"<figcaption>{html.escape(title)}</figcaption>" if len(relations) > 1 else ""
        yield f"<figure>{caption}{picture}</figure>" if picture else ""
        found = list(
            panels([(board.rows[i], board.panels[i]) for i in kept], board.labels, board.notion)
        )
        if found:
            yield f"<details><summary>In pictures: {html.escape(title)}</summary>"
            yield from found
            yield "</details>"


def _guarantees(dataset: str, board: Board) -> Iterator[str]:
    """What private entries promise, in words, and what audits found of it."""
    told: dict[str, dict[str, None]] = {}
    pairs = zip(board.rows, board.claims, strict=True)
    private = [(r, c) for r, c in pairs if r.dataset == dataset and r.role == Role.PRIVATE]
    for row, claim in private:
        if row.accounting:
            words = [
                f"one {row.privacy_unit} is protected, {row.neighboring_relation}",
                f"epsilon at delta {number(row.delta)}, B_G at alpha {number(row.alpha)}",
            ]
            words += [f"assumed: {'; '.join(claim.public)}"] if claim.public else []
            labels = told.setdefault("; ".join(words) + ".", {})
            labels.setdefault(board.labels[row.mechanism, row.params])
    if told:
        yield "<details><summary>What the guarantees say</summary><ul>"
        for text, labels in told.items():
            yield f"<li>{html.escape(', '.join(labels))}: {html.escape(text)}</li>"
        yield "</ul></details>"
        yield from audits([row for row, _ in private], board, dataset)


def _quarantined(board: Board) -> Iterator[str]:
    if board.remarks:
        yield "<h2>To ask about</h2><ul>"
        yield from (f"<li>{html.escape(remark)}</li>" for remark in board.remarks)
        yield "</ul>"
    if board.quarantined:
        yield "<h2>Quarantined</h2><ul>"
        for bad in board.quarantined:
            text = f"{bad.mechanism} on {bad.dataset} at {bad.budget}: {bad.reason}"
            yield f"<li>{html.escape(text)}</li>"
        yield "</ul>"


def _provenance(board: Board, plan: dict[str, Any]) -> Iterator[str]:
    grid = plan["grid"]
    yield "<h2>Provenance</h2>"
    if board.failures:
        counts = ", ".join(f"{n} {status}" for status, n in sorted(board.failures.items()))
        yield f"<p>Cells that did not end well: {html.escape(counts)}.</p>"
    versions = ", ".join(f"{name} {version}" for name, version in plan["versions"].items())
    of = f", hash {grid['hash']}" if "hash" in grid else ""  # audits by themselves have no grid
    yield f"<p>Grid {html.escape(board.name)}{of}; plugins: "
    yield f"{html.escape(versions)}.</p><details><summary>The grid in full</summary>"
    yield f"<pre>{html.escape(json.dumps(grid, indent=1))}</pre></details>"
