"""What is kept of a grid that ran: its plan and records, from a store or a published archive."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from panelbench.archive import unpack
from panelbench.errors import StoreError
from panelbench.gridfile import read
from panelbench.leaderboard import relevant
from panelbench.plugin_commands import say
from panelbench.quarantine import Audits
from panelbench.record import Record, Store

Kept = tuple[dict[str, Any], list[Record], list[Record], list[Record]]
"""A plan, and its records of cells, of scores and of audits."""
PART = "-part"
"""Ends the name that a run of some datasets only is kept under."""


def kept_by_name(where: str, root: str, *, unchanged: bool = False) -> Kept:
    """A plan with its records.

    Args:
        where: A published archive, a store's plans/NAME.json, a grid file, or a grid's name.
        root: The store, for the last two.
        unchanged: Whether a grid file must be as it was when it ran.

    Raises:
        StoreError: Where nothing of it is kept, or the file has changed and must not have.
    """
    if where.endswith(".jsonl.gz"):
        return unpack(Path(where))
    path = Path(where)
    if path.suffix == ".csv":
        raise StoreError(
            f"'{where}' is a table without its records; boards are read and compared by their "
            f"archives: name the .jsonl.gz that was published with it."
        )
    from_plan = path.suffix == ".json"
    store = Store(path.parent.parent if from_plan else Path(root))
    plan = _read_plan(path) if from_plan else _kept_plan(where, root, unchanged=unchanged)
    return with_records(plan, store)


def with_records(plan: dict[str, Any], store: Store) -> Kept:
    """A plan with what a store has of it."""
    cells, scores = relevant(plan, store.latest)
    return plan, cells, scores, _audits_of(cells, store)


def with_more_audits(kept: Kept, store: Store) -> Kept:
    """The same, with audits that a store has beside those that are there."""
    plan, cells, scores, audits = kept
    known = {audit.key for audit in audits}
    more = _audits_of(cells, store)
    return plan, cells, scores, [*audits, *(one for one in more if one.key not in known)]


def _audits_of(cells: list[Record], store: Store) -> list[Record]:
    return Audits(store.records("audit")).relevant(cells)


def _kept_plan(where: str, root: str, *, unchanged: bool) -> dict[str, Any]:
    """The plan as the grid last ran; no plugin and no data are needed to read it."""
    path = Path(where)
    name = read(path).name if path.suffix == ".toml" else path.name
    file = Path(root) / "plans" / f"{name}.json"
    if not file.is_file():
        part = file.with_stem(f"{name}{PART}").is_file()
        raise StoreError(
            f"The grid '{name}' was never run in the store '{root}'"
            + (f" but for some datasets; name '{name}{PART}', or" * part or ";")
            + " run it first, or name its --store."
        )
    kept = _read_plan(file)
    if path.suffix == ".toml" and kept.get("text", text_hash(path)) != text_hash(path):
        if unchanged:
            raise StoreError(
                f"{path.name} is not what ran as '{name}' in the store '{root}'; run it first, or "
                f"name {file} to publish what ran then."
            )
        say(f"{path.name} was changed since it last ran; this is what ran then.")
    return kept


def text_hash(path: Path) -> str:
    """A hash of a grid file as it is written."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _read_plan(file: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"The plan '{file}' cannot be read; run the grid again.") from error
    if not {"cells", "metrics", "grid", "versions"} <= set(kept):
        raise StoreError(f"The plan '{file}' is not complete; run the grid again.")
    return kept
