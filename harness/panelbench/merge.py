"""Several stores in one, the same whatever their order."""

from __future__ import annotations

import dataclasses
import json
import shutil
from typing import TYPE_CHECKING

from panelbench.errors import StoreError
from panelbench.record import Record, Status, Store, read_record, write_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def merge(stores: Sequence[Path], target: Path) -> list[str]:
    """Copy everything that stores hold into a new one.

    Attempts at one key are put in one order, by how they ended (ok last), their start and their
    text, so the newest one, which boards show, does not depend on the order of `stores`. Plans of
    one grid must be equal in what they plan; datasets and releases are kept under their hashes.

    Returns:
        Conflicts: keys under which two stores hold different results that are both ok. The last
        in that order counts.

    Raises:
        StoreError: Where the target is not empty, a source is no store or plans contradict.
    """
    if target.exists() and any(target.iterdir()):
        raise StoreError(f"'{target}' is not empty; name a new folder to merge into.")
    for root in stores:
        if not (root / "records").is_dir():
            raise StoreError(f"'{root}' is no store: it has no records/.")
    conflicts = []
    for what, folder in (("cell", "records"), ("score", "scores"), ("audit", "audits")):
        attempts: dict[str, dict[str, Record]] = {}
        for root in stores:
            for path in sorted((root / folder).glob("*.json")):
                record = read_record(path)
                same = dataclasses.replace(record, attempt=1)
                attempts.setdefault(record.key, {})[same.to_json()] = record
        for key, found in sorted(attempts.items()):
            ordered = sorted(found.items(), key=lambda one: (_rank(one[1]), one[0]))
            good = {_result(record) for record in found.values() if record.status is Status.OK}
            if len(good) > 1:
                subject = ordered[-1][1].subject
                name = subject.get("mechanism", subject.get("metric", {})).get("name", "")
                conflicts.append(f"{what} {key} ({name}): {len(good)} different results")
            for attempt, (_, record) in enumerate(ordered, 1):
                Store(target).add(dataclasses.replace(record, attempt=attempt))
    for name in ("datasets", "releases", "sources"):
        for path in (found for root in stores for found in _children(root / name)):
            _copy(path, target / name / path.name)
    _plans(stores, target)
    return conflicts


def _rank(record: Record) -> tuple[bool, str]:
    return record.status is Status.OK, record.started


def _result(record: Record) -> str:
    """What a record found out, without when and how fast."""
    found = record.info.get("found", {}) if record.what == "audit" else {}
    return json.dumps([record.release, record.guarantee, record.scores, found], sort_keys=True)


def _children(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.iterdir()) if folder.is_dir() else ())


def _copy(source: Path, target: Path) -> None:
    if target.exists() or source.name.startswith("."):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def _plans(stores: Sequence[Path], target: Path) -> None:
    """One plan a grid, which all stores that ran it must share."""
    plans: dict[str, list[dict[str, object]]] = {}
    for root in stores:
        for path in _children(root / "plans"):
            plans.setdefault(path.name, []).append(json.loads(path.read_text(encoding="utf-8")))
    for name, found in plans.items():
        first = min(found, key=lambda plan: json.dumps(plan, sort_keys=True))
        for other in found:
            if {**other, "file": "", "text": ""} != {**first, "file": "", "text": ""}:
                raise StoreError(
                    f"The stores planned different things as the grid of plans/{name} (code, data "
                    f"or the grid changed between them); run it again in one of them."
                )
        write_over(target / "plans" / name, json.dumps(first))
