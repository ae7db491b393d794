"""Several stores and published archives in one store, the same whatever their order."""

from __future__ import annotations

import dataclasses
import json
import shutil
from typing import TYPE_CHECKING, Any

from panelbench.archive import lines_of, unpack
from panelbench.errors import StoreError
from panelbench.grid import canonical
from panelbench.record import Record, Status, Store, altered, read_record, write_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Plan = dict[str, Any]
_TOLD = 1000
"""Records between two lines that say how far it is."""


def merge(sources: Sequence[Path], target: Path, say: Callable[[str], None]) -> list[str]:
    """Copy everything that stores and archives hold into a new store.

    Attempts at one key are put in one order, by how they ended (ok last), their start and their
    digest, so the newest one, which boards show, does not depend on the order of `sources`. Of the
    plans of one grid that counts which holds all that the others do. Datasets and releases are kept
    under their hashes; an archive has none, so what is scored anew of it is released again.

    Args:
        sources: Folders of stores, and published `.jsonl.gz`.
        target: A new or an empty folder; where something fails, it is left empty.
        say: Told how far it is.

    Returns:
        Conflicts: keys under which two sources hold different results that are both ok. The last
        in that order counts.

    Raises:
        StoreError: Where the target is in use, a source is none or was altered, plans contradict.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"'{target}' is not empty; name a new folder to merge into.")
    archives = [path for path in sources if path.name.endswith(".jsonl.gz")]
    stores = [path for path in sources if path not in archives]
    for root in stores:
        if not (root / "records").is_dir():
            raise StoreError(
                f"'{root}' is no store: it has no records/; name a store, or a published .jsonl.gz."
            )
    published = [_opened(path) for path in archives]
    planned = [(f"{plan['grid']['name']}.json", plan) for plan, _ in published if plan["cells"]]
    plans = _one_each([*planned, *_planned(stores)])
    attempts: dict[tuple[str, str], dict[str, Record]] = {}
    for record in (*_kept(stores), *(one for _, records in published for one in records)):
        found = attempts.setdefault((record.what, record.key), {})
        name = _digest(record)
        found[name] = max(record, found.get(name, record), key=_fullness)
    try:
        conflicts = _written(attempts, Store(target), say)
        for name in ("datasets", "releases", "sources"):
            for path in (found for root in stores for found in _children(root / name)):
                _copy(path, target / name / path.name)
        for name, plan in plans.items():
            write_over(target / "plans" / name, json.dumps(plan))
    except BaseException:
        for path in _children(target):
            shutil.rmtree(path)
        raise
    for name, plan in plans.items():
        keys = {("cell", cell["key"]) for cell in plan["cells"]}
        if lacking := len(keys - attempts.keys()):
            say(f"Of {len(keys)} cells of plans/{name} {lacking} have no record")
    return conflicts


def _written(
    attempts: dict[tuple[str, str], dict[str, Record]], store: Store, say: Callable[[str], None]
) -> list[str]:
    conflicts = []
    for index, ((what, key), found) in enumerate(sorted(attempts.items())):
        if index % _TOLD == 0:
            say(f"{index} of {len(attempts)} records written")
        ordered = sorted(found.items(), key=lambda one: (_rank(one[1]), one[0]))
        good = {_result(record) for record in found.values() if record.status is Status.OK}
        if len(good) > 1:
            subject = ordered[-1][1].subject
            name = subject.get("mechanism", subject.get("metric", {})).get("name", "")
            conflicts.append(f"{what} {key} ({name}): {len(good)} different results")
        for attempt, (_, record) in enumerate(ordered, 1):
            store.add(dataclasses.replace(record, attempt=attempt))
    say(f"{len(attempts)} of {len(attempts)} records written")
    return conflicts


def _kept(stores: Sequence[Path]) -> Iterator[Record]:
    """Every attempt at everything."""
    for root in stores:
        for folder in ("records", "scores", "audits"):
            for path in sorted((root / folder).glob("*.json")):
                record = read_record(path)  # says what cannot be read
                _refuse(altered(json.loads(path.read_text(encoding="utf-8"))), root)
                yield record


def _opened(path: Path) -> tuple[Plan, list[Record]]:
    """An archive's plan and records, each with the versions that it names once a plugin."""
    plan, *kept = unpack(path)
    first, lines = lines_of(path)
    for raw in lines:
        _refuse(altered(raw), path)
    versions = first.get("versions", {})
    return plan, [
        dataclasses.replace(one, versions=versions.get(_plugin(one), {}))
        for records in kept
        for one in records
    ]


def _plugin(record: Record) -> str:
    return str(record.subject.get("mechanism", {}).get("name", "")).split("/", 1)[0]


def _refuse(bad: str, source: Path) -> None:
    if bad:
        raise StoreError(f"'{source}' cannot be merged: {bad} `panelbench verify` lists all such.")


def _fullness(record: Record) -> tuple[int, str]:
    """An archive leaves out what names a machine."""
    text = record.to_json()
    return len(text), text


def _digest(record: Record) -> str:
    """Equal for one record as it was written and as it was published."""
    return str(json.loads(dataclasses.replace(record, attempt=1).to_json())["digest"])


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


def _planned(stores: Sequence[Path]) -> Iterator[tuple[str, Plan]]:
    for path in (path for root in stores for path in sorted((root / "plans").glob("*.json"))):
        yield path.name, json.loads(path.read_text(encoding="utf-8"))


def _one_each(plans: Sequence[tuple[str, Plan]]) -> dict[str, Plan]:
    """One plan a grid: that which holds all that others planned."""
    found: dict[str, list[Plan]] = {}
    for name, plan in plans:
        found.setdefault(name, []).append(plan)
    chosen = {}
    for name, alike in found.items():
        everything = set().union(*map(_planned_in, alike))
        whole = [plan for plan in alike if _planned_in(plan) == everything]
        if not whole:
            raise StoreError(
                f"The sources planned different things as the grid of plans/{name} (code, data "
                f"or the grid changed between them); run the whole grid in one store first."
            )
        chosen[name] = min(whole, key=lambda plan: json.dumps(plan, sort_keys=True))
    return chosen


def _planned_in(plan: Plan) -> set[str]:
    """The cells and the metrics of a plan, with the code that they are for."""
    metrics = ({**metric, "components": None, "label": None} for metric in plan["metrics"])
    return {cell["key"] for cell in plan["cells"]} | {canonical(metric) for metric in metrics}
