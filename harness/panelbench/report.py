"""From a board to one HTML page that opens from disk with the network off."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from panelbench.extension import Role
from panelbench.pictures import panels
from panelbench.plot import curve
from panelbench.table import HEADINGS, heading_of, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.board import Board, Claim, Row

_STYLE = """
:root { color-scheme: light dark; --fg: #1b1f24; --bg: #fff; --soft: #59636e; --line: #d1d9e0;
  --best: #dafbe1; --accent: #0550ae; }
@media (prefers-color-scheme: dark) { :root { --fg: #e6edf3; --bg: #0d1117; --soft: #9198a1;
  --line: #3d444d; --best: #12361f; --accent: #79c0ff; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  margin: 0 auto; padding: 1rem; max-width: 76rem; }
h1, h2, h3 { line-height: 1.25; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
p, figcaption, .soft { color: var(--soft); max-width: 46rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; } th button { all: unset; cursor: pointer; }
th button:focus-visible { outline: 2px solid var(--accent); }
td.best { background: var(--best); } tr.section td { color: var(--soft); font-style: italic; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; } svg text { fill: var(--fg); }
.line[hidden] { display: none; } .key { cursor: pointer; }
.key[aria-pressed="false"] { opacity: .4; }
.key:focus-visible { outline: 2px solid var(--accent); } a { color: var(--accent); }
a.data { display: block; font-size: .85rem; }
input { font: inherit; padding: .3rem .6rem; width: min(24rem, 100%); }
"""

_SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  table.querySelectorAll("th button").forEach((button, column) => {
    button.addEventListener("click", () => {
      const down = button.parentElement.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("th").forEach(th => th.removeAttribute("aria-sort"));
      button.parentElement.setAttribute("aria-sort", down ? "descending" : "ascending");
      for (const body of table.tBodies) {
        const rows = [...body.rows].filter(row => !row.classList.contains("section"));
        const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const order = (a, b) => isNaN(value(a)) || isNaN(value(b)) || value(a) === "" ||
          value(b) === "" ? String(value(a)).localeCompare(value(b)) : value(a) - value(b);
        rows.sort((a, b) => down ? order(b, a) : order(a, b)).forEach(row => body.append(row));
      }
    });
  });
}
for (const key of document.querySelectorAll("g.key")) {
  const turn = () => {
    const shown = key.getAttribute("aria-pressed") === "true";
    key.setAttribute("aria-pressed", !shown);
    key.nextElementSibling.toggleAttribute("hidden", shown);
  };
  key.addEventListener("click", turn);
  key.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); turn(); }
  });
}
document.getElementById("filter").addEventListener("input", event => {
  const wanted = event.target.value.toLowerCase();
  for (const row of document.querySelectorAll("tr[data-name]"))
    row.hidden = !row.dataset.name.includes(wanted);
});
"""


def to_html(board: Board, plan: dict[str, Any]) -> str:
    """The page: every dataset, metric and component, a figure and a table each, and provenance."""
    title = html.escape(board.title or board.name)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main>",
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
        *_provenance(board, plan),
        f"</main><script>{_SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _sections(board: Board) -> Iterator[str]:
    tables: dict[tuple[str, str, str], list[int]] = {}
    for index, row in enumerate(board.rows):
        tables.setdefault((row.dataset, row.metric, row.component), []).append(index)
    shown = None
    for (dataset, metric, component), members in tables.items():
        rows = [board.rows[index] for index in members]
        if dataset != shown:
            yield f"<h2>{html.escape(dataset)}</h2>"
            yield from _guarantees(dataset, board)
            shown = dataset
        unit = next((row.unit for row in rows if row.unit), "")
        direction = next((row.direction for row in rows if row.direction), "")
        name = f"{metric} {component}" + (f" [{unit}]" if unit else "")
        yield f"<h3>{html.escape(name)}</h3>"
        yield f'<p class="soft">{direction} is better.</p>' if direction else ""
        yield from _figures(members, board, name)
        yield from _table([(board.rows[i], board.claims[i]) for i in members], board, name)


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
            yield f"<details><summary>By step: {html.escape(title)}</summary>"
            yield from found
            yield "</details>"


def _guarantees(dataset: str, board: Board) -> Iterator[str]:
    """What each private entry promises, in words."""
    told: dict[str, None] = {}
    for row, claim in zip(board.rows, board.claims, strict=True):
        if row.dataset == dataset and row.role == Role.PRIVATE and row.accounting:
            label = board.labels[row.mechanism, row.params]
            words = [
                f"{label} protects one {row.privacy_unit}, {row.neighboring_relation}",
                f"epsilon at delta {number(row.delta)}, B_G at alpha {number(row.alpha)}",
            ]
            words += [f"assumed: {'; '.join(claim.public)}"] if claim.public else []
            told.setdefault(". ".join(words) + ".")
    if told:
        yield "<details><summary>What the guarantees say</summary><ul>"
        yield from (f"<li>{html.escape(text)}</li>" for text in told)
        yield "</ul><p>The title of each row's first cell has its parameters and its note.</p>"
        yield "</details>"


def _table(pairs: list[tuple[Row, Claim]], board: Board, name: str) -> Iterator[str]:
    heads: tuple[str, ...] = ("entry", "relation", "epsilon", "B_G", "mean", "95 % interval", "n")
    heads = (*heads, "floor", "to best", "rank", "guarantee", "seconds", "MB")
    yield f'<div class="wide" tabindex="0" role="region" aria-label="{html.escape(name)}"><table>'
    cells = "".join(f'<th scope="col"><button>{head}</button></th>' for head in heads)
    yield f"<thead><tr>{cells}</tr></thead>"
    for section in HEADINGS:
        members = [(row, claim) for row, claim in pairs if row.section == section]
        for heading in dict.fromkeys(heading_of(section, claim) for _, claim in members):
            yield f'<tbody><tr class="section"><td colspan="{len(heads)}">'
            yield f"{html.escape(heading)}</td></tr>"
            for row, claim in members:
                if heading_of(section, claim) == heading:
                    yield _row(row, claim, board)
            yield "</tbody>"
    yield "</table></div>"


def _row(row: Row, claim: Claim, board: Board) -> str:
    label = board.labels[row.mechanism, row.params]
    interval = "" if row.lower is None else f"{number(row.lower)} to {number(row.upper)}"
    gap = number(row.difference_to_best)
    if row.difference_lower is not None:
        gap += f" ({number(row.difference_lower)} to {number(row.difference_upper)})"
    ranks = "" if row.rank is None else f"{row.rank} ({row.rank_lower}-{row.rank_upper})"
    best = ' class="best"' if row.tie_group == 1 and row.role == Role.PRIVATE else ""
    title = html.escape(f"{row.params} {claim.note}".strip())
    cells = [
        f'<td title="{title}">{html.escape(label)}</td>',
        f"<td>{row.neighboring_relation if row.role == Role.PRIVATE else ''}</td>",
        *(f'<td data-value="{v or 0}">{number(v)}</td>' for v in (row.epsilon, row.b_g)),
        f'<td data-value="{row.mean}"{best}>{number(row.mean)}</td>',
        f"<td>{interval}</td>",
        f"<td>{row.n_ok} of {row.n_planned}</td>",
        f"<td>{number(row.floor)}</td>",
        f'<td data-value="{row.difference_to_best or 0}">{gap}</td>',
        f'<td data-value="{row.rank or 999}">{ranks}</td>',
        f"<td>{row.accounting}</td>",
        f"<td>{number(row.seconds)}</td>",
        f"<td>{number(row.peak_mb)}</td>",
    ]
    return f'<tr data-name="{html.escape(label.lower())}">{"".join(cells)}</tr>'


def _quarantined(board: Board) -> Iterator[str]:
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
    yield f"<p>Grid {html.escape(board.name)}, hash {grid['hash']}; plugins: "
    yield f"{html.escape(versions)}.</p><details><summary>The grid in full</summary>"
    yield f"<pre>{html.escape(json.dumps(grid, indent=1))}</pre></details>"
