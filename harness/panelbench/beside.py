"""One's own grid beside what others published, without computing theirs again.

A published entry is on the same data, which has the same content hash, and scored by the same code
of a metric. What made it (mechanism, libraries, harness) may be of another version: its row says
which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from panelbench.archive import unpack
from panelbench.errors import StoreError
from panelbench.grid import canonical
from panelbench.leaderboard import relevant
from panelbench.privacy import Notion
from panelbench.quarantine import Audits

if TYPE_CHECKING:
    from pathlib import Path

    from panelbench.kept import Kept


def beside(kept: Kept, path: Path) -> Kept:
    """A plan and its records, with those published entries that can be compared with its own.

    They are at its budgets, or without one. An entry that is in both counts as the plan has it.

    Args:
        kept: One's own.
        path: A published archive.

    Raises:
        StoreError: Where nothing there can be compared, and why.
    """
    plan, cells, scores, audits = kept
    theirs, *published = unpack(path)
    added = _comparable(plan, theirs, path)
    found = {(r.what, r.key): r for r in (*published[0], *published[1])}
    more = relevant({**plan, "cells": added}, lambda what, key: found.get((what, key)))
    said = Audits({audit.key: audit for audit in (*published[2], *audits)}.values())
    return (
        {
            **plan,
            "cells": [*plan["cells"], *added],
            "remarks": [*plan.get("remarks", ()), _remark(plan, added, path)],
        },
        [*cells, *more[0]],
        [*scores, *more[1]],
        said.relevant([*cells, *more[0]]),
    )


def _comparable(plan: dict[str, Any], theirs: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Their cells as cells of the plan: under its name of the data, with how they were scored."""
    own = {_entry(cell) for cell in plan["cells"]}
    labels = {cell["data"]: cell["dataset_label"] for cell in plan["cells"]}
    budgets = {canonical(cell["budget"]) for cell in plan["cells"]}
    code = {canonical(m["identity"]): m["hashes"]["code"] for m in plan["metrics"]}
    everywhere = {canonical(m["identity"]): m["hashes"] for m in theirs["metrics"]}
    on_data = [cell for cell in theirs["cells"] if cell["data"] in labels]
    at_budget = [
        cell
        for cell in on_data
        if cell["budget"]["notion"] == Notion.UNLIMITED or canonical(cell["budget"]) in budgets
    ]
    scored = []
    for cell in at_budget:
        hashes = cell.get("scored_by", everywhere)
        same = {
            name: hashes[name] for name in code if hashes.get(name, {}).get("code") == code[name]
        }
        if same:
            plugin = cell["mechanism"]["name"].split("/", 1)[0]
            version = cell.get("version", theirs["versions"].get(plugin, ""))
            more = {"scored_by": same, "version": version, "dataset_label": labels[cell["data"]]}
            scored.append({**cell, **more})
    for left, lacks in (
        (on_data, "is on the data of this grid: dataset, parameters and seed must be the same"),
        (at_budget, "is at a budget of this grid: numbers, delta and relation must be the same"),
        (scored, "was scored by a metric of this grid with the code that it has here"),
    ):
        if not left:
            raise StoreError(f"Nothing in '{path}' {lacks}.")
    return [cell for cell in scored if _entry(cell) not in own]


def _entry(cell: dict[str, Any]) -> str:
    return canonical([cell["data"], cell["mechanism"], cell["budget"]])


def _remark(plan: dict[str, Any], added: list[dict[str, Any]], path: Path) -> str:
    """What of a board is from elsewhere, one sentence or two."""
    names = "; ".join(dict.fromkeys(cell["label"] for cell in added)) or "nothing more"
    told = f"Published in {path.name}, and not computed with this grid: {names}."
    scored = {name for cell in added for name in cell["scored_by"]}
    without = [
        m.get("label", m["identity"]["name"])
        for m in plan["metrics"]
        if canonical(m["identity"]) not in scored
    ]
    return told + f" Not scored there, or by other code: {', '.join(without)}." * bool(without)
