"""Whether records, archives and published boards are what they say they are."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from panelbench import accounting
from panelbench.archive import csv_of, lines_of, unpack
from panelbench.audit import verdict
from panelbench.errors import PanelbenchError, StoreError
from panelbench.leaderboard import endings, relevant
from panelbench.privacy import Budget, Established, Guarantee
from panelbench.record import Record, Status, Store, altered, content_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SUFFIX = ".jsonl.gz"


def problems(path: Path, say: Callable[[str], None]) -> Iterator[str]:
    """What is wrong with an archive, a folder of archives or a store; nothing where all is well.

    Args:
        path: A `.jsonl.gz`, a folder that holds some with their CSVs, or a store.
        say: Told what is looked at.

    Raises:
        StoreError: Where there is nothing to look at.
    """
    archives = [path] if path.is_file() else sorted(path.glob(f"*{SUFFIX}"))
    is_store = any((path / name).is_dir() for name in ("records", "scores", "audits", "plans"))
    if not archives and not is_store:
        raise StoreError(
            f"'{path}' holds no archive ({SUFFIX}) and is no store; name a file or folder that "
            f"`publish` or `run` wrote."
        )
    known = {archive.name.removesuffix(SUFFIX) for archive in archives}
    for table in sorted(path.glob("*.csv")) if path.is_dir() and not is_store else ():
        if table.stem not in known:
            yield f"{table.name} has no archive ({SUFFIX}) beside it that it could follow from."
    for archive in archives:
        say(f"Looking at {archive.name}")
        yield from (f"{archive.name}: {text}" for text in _of_archive(archive))
    if is_store:
        yield from _of_store(path, say)


def _of_archive(archive: Path) -> Iterator[str]:
    try:
        plan, cells, scores, audits = unpack(archive)
    except StoreError as error:
        yield str(error)
        return
    for raw, record in zip(lines_of(archive)[1], [*cells, *scores, *audits], strict=True):
        yield from _of_record(raw, record)
    yield from _missing(plan, cells, scores)
    yield from _superfluous(plan, cells, scores, audits)
    table = archive.with_name(archive.name.removesuffix(SUFFIX) + ".csv")
    if not table.is_file():
        yield f"{table.name} is not beside it."
        return
    wanted = csv_of(plan, cells, scores, audits).split("\n")
    found = table.read_bytes().decode("utf-8", errors="replace").split("\n")
    for number in range(max(len(wanted), len(found))):
        pair = [lines[number] if number < len(lines) else "" for lines in (wanted, found)]
        if pair[0] != pair[1]:
            yield f"{table.name}, line {number + 1}, is not what the records give."


def _of_record(raw: dict[str, Any], record: Record) -> Iterator[str]:
    """What a single record says of itself against what follows from it."""
    what = f"{record.what} {record.key}"
    if bad := altered(raw):
        yield bad
    if record.what == "score":
        return
    private = record.guarantee.get("established") != Established.NONE
    if record.guarantee and private and record.status is Status.OK:
        yield from (f"{what}: {text}" for text in _of_claim(record))
        if record.what == "audit":
            yield from (f"{what}: {text}" for text in _of_verdict(record))


def _of_verdict(record: Record) -> Iterator[str]:
    """Whether the bound of an audit follows from its counts."""
    budget = Budget.from_json(record.subject["budget"])
    try:
        guarantee = Guarantee.from_json(record.guarantee)
        figures = accounting.settle(guarantee, delta=budget.delta, alpha=budget.alpha)
        says = verdict(record.info["found"], figures)
    except (PanelbenchError, KeyError, TypeError) as error:
        yield f"its counts cannot be read: {error}"
        return
    was = float(record.info["epsilon_lower"])
    if not math.isclose(was, says.epsilon_lower, rel_tol=1e-6, abs_tol=1e-9):
        yield f"its counts give epsilon > {says.epsilon_lower:.6g}, the record says {was:.6g}."
    if bool(says.reason) != bool(record.info["reason"]):
        yield "its reason does not follow from its counts."


def _of_claim(record: Record) -> Iterator[str]:
    budget = Budget.from_json(record.subject["budget"])
    stated = record.guarantee.get("figures", {})
    try:
        guarantee = Guarantee.from_json(record.guarantee)
        figures = accounting.settle(guarantee, delta=budget.delta, alpha=budget.alpha)
        reason = accounting.excess(guarantee, budget, unit=guarantee.unit)
    except PanelbenchError as error:
        yield f"its guarantee cannot be settled: {error}"
        return
    if reason:
        yield f"its guarantee exceeds the budget: {reason}"
    for name in ("epsilon", "b_g", "rho"):
        was, now = stated.get(name), getattr(figures, name)
        if was is None or now is None:
            continue
        if not math.isclose(float(was), now, rel_tol=1e-6) and float(was) != now:
            yield f"its guarantee settles to {name} {now:.6g}, the record says {float(was):.6g}."


def _missing(plan: dict[str, Any], cells: list[Record], scores: list[Record]) -> Iterator[str]:
    counts = Counter(row["status"] for row in endings(plan, cells, scores))
    if counts["missing"]:
        yield f"{counts['missing']} of {counts.total()} planned cells have no record."


def _superfluous(
    plan: dict[str, Any], cells: list[Record], scores: list[Record], audits: list[Record]
) -> Iterator[str]:
    """Records of what the plan does not name, which is what is left where it was cut."""
    planned = {cell["key"] for cell in plan["cells"]}
    unplanned = sum(record.key not in planned for record in cells)
    if unplanned:
        yield f"{unplanned} records are of cells that its plan does not name."
    times = Counter((r.what, r.key, r.attempt) for r in (*cells, *scores, *audits))
    for (what, key, attempt), count in times.items():
        if count > 1:
            yield f"{what} {key}-{attempt} is there {count} times."


def _of_store(root: Path, say: Callable[[str], None]) -> Iterator[str]:
    store = Store(root)
    kept: dict[str, set[str]] = {"records": set(), "scores": set(), "audits": set()}
    releases: set[str] = set()
    for folder, names in kept.items():
        paths = sorted((root / folder).glob("*.json"))
        say(f"Looking at {len(paths)} {folder}")
        for path in paths:
            try:
                text = path.read_text(encoding="utf-8")
                record = Record.from_json(text)
            except (OSError, ValueError, StoreError) as error:
                yield f"{folder}/{path.name} cannot be read: {error}"
                continue
            if path.name != f"{record.key}-{record.attempt}.json":
                yield f"{folder}/{path.name} holds the record of {record.key}-{record.attempt}."
            yield from _of_record(json.loads(text), record)
            names.add(record.key)
            releases |= {record.release} - {""}
    here = [key for key in sorted(releases) if store.intact("releases", key)]
    say(f"Looking at {len(here)} releases; {len(releases) - len(here)} more are not kept")
    for key in here:  # they may be thrown away once they are scored
        try:
            arrays, meta = store.get("releases", key)
        except StoreError as error:
            yield str(error)
            continue
        if content_hash(arrays, meta) != key:
            yield f"releases/{key} is not what its hash says."
    for path in sorted((root / "plans").glob("*.json")):
        plan = json.loads(path.read_text(encoding="utf-8"))
        yield from (f"grid {path.stem}: {t}" for t in _missing(plan, *relevant(plan, store.latest)))
