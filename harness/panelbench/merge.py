"""Several stores and published archives in one store, the same whatever their order."""

from __future__ import annotations

import dataclasses
import json
import shutil
from typing import TYPE_CHECKING, Any

from panelbench.archive import unpack, versions_in
from panelbench.errors import StoreError
from panelbench.record import Record, Status, Store, read_record, write_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Plan = dict[str, Any]


def merge(sources: Sequence[Path], target: Path) -> list[str]:
    """Copy everything that stores and archives hold into a new store.

    Attempts at one key are put in one order, by how they ended (ok last), their start and their
    digest, so the newest one, which boards show, does not depend on the order of `sources`. Plans
    of one grid must be equal in what they plan, but a store's counts before an archive's. Datasets
    and releases are kept under their hashes; an archive has none, and what is to be scored anew
    from it is released again.

    Returns:
        Conflicts: keys under which two stores hold different results that are both ok. The last
        in that order counts.

    Raises:
        StoreError: Where the target is not empty, a source is no store or plans contradict.
    """
    if target.exists() and any(target.iterdir()):
        raise StoreError(f"'{target}' is not empty; name a new folder to merge into.")
    archives = [path for path in sources if path.name.endswith(".jsonl.gz")]
    stores = [path for path in sources if path not in archives]
    for root in stores:
        if not (root / "records").is_dir():
            raise StoreError(f"'{root}' is no store: it has no records/.")
    plans = {**_one_each(_archived(archives)), **_one_each(_planned(stores))}
    attempts: dict[tuple[str, str], dict[str, Record]] = {}
    for record in (*_kept(stores), *_published(archives)):
        found = attempts.setdefault((record.what, record.key), {})
        name = _digest(record)
        found[name] = max(record, found.get(name, record), key=_fullness)
    conflicts = []
    for (what, key), found in sorted(attempts.items()):
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
    for name, plan in plans.items():
        write_over(target / "plans" / name, json.dumps(plan))
    return conflicts


def _kept(stores: Sequence[Path]) -> Iterator[Record]:
    """Every attempt at everything."""
    for root in stores:
        for folder in ("records", "scores", "audits"):
            for path in sorted((root / folder).glob("*.json")):
                yield read_record(path)


def _published(archives: Sequence[Path]) -> Iterator[Record]:
    """What archives hold, with the versions that they name once a plugin."""
    for path in archives:
        versions = versions_in(path)
        _, *kept = unpack(path)
        for record in (one for records in kept for one in records):
            name = record.subject.get("mechanism", {}).get("name", "").split("/", 1)[0]
            yield dataclasses.replace(record, versions=versions.get(name, {}))


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


def _archived(archives: Sequence[Path]) -> Iterator[tuple[str, Plan]]:
    for path in archives:
        plan, *_ = unpack(path)
        if plan["cells"]:  # an archive of nothing but audits has none
            yield f"{plan['grid']['name']}.json", plan


def _one_each(plans: Iterator[tuple[str, Plan]]) -> dict[str, Plan]:
    """One plan a grid, which all that have it must share."""
    found: dict[str, list[Plan]] = {}
    for name, plan in plans:
        found.setdefault(name, []).append(plan)
    for name, alike in found.items():
        planned = {json.dumps({**one, "file": "", "text": ""}, sort_keys=True) for one in alike}
        if len(planned) > 1:
            raise StoreError(
                f"The sources planned different things as the grid of plans/{name} (code, data "
                f"or the grid changed between them); run it again in one of them."
            )
    return {
        name: min(alike, key=lambda plan: json.dumps(plan, sort_keys=True))
        for name, alike in found.items()
    }
