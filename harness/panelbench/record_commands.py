"""What the commands about records and published boards do and print."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench.errors import StoreError
from panelbench.plugin_commands import plugins_of, print_json, say

if TYPE_CHECKING:
    import argparse

    from panelbench.board import Board
    from panelbench.compare import Change
    from panelbench.record import Record

EXIT_FOUND = 3
"""Something is worse, wrong, in conflict or different."""


def _board(where: str, root: str) -> Board:
    from panelbench.kept import kept_by_name
    from panelbench.leaderboard import make_board

    return make_board(*kept_by_name(where, root))


def compare(options: argparse.Namespace) -> int:
    """`panelbench compare FIRST SECOND`: exit status 3 where an entry is surely worse."""
    from panelbench.compare import compare as compared
    from panelbench.table import number

    changes, alone = compared(
        _board(options.first, options.store), _board(options.second, options.store)
    )
    if not changes:
        raise StoreError(
            f"The two boards have no row in common ({len(alone)} are in one only): datasets, "
            f"mechanisms, parameters, budgets and metrics must be equal to be compared."
        )
    bad = [change for change in changes if change.sure and change.worse]
    if options.json:
        print_json({"changes": [_told(change) for change in changes], "alone": alone})
        return EXIT_FOUND if bad else 0
    shown = [change for change in changes if change.sure or options.all]
    for change in sorted(shown, key=lambda change: not (change.sure and change.worse)):
        row, by = change.row, change.by
        word = "unchanged" if not change.sure else "WORSE" if change.worse else "better"
        spread = "" if by.lower is None else f" [{number(by.lower)}, {number(by.upper)}]"
        at = "" if row.epsilon is None else f" at epsilon {number(row.epsilon)}"
        print(
            f"{word:9}  {row.mechanism} {row.params} on {row.dataset}{at}, {row.metric} "
            f"{row.component}: {number(change.before)} -> {number(row.mean)}, "
            f"by {number(by.mean)}{spread}"
        )
    for text in alone:
        print(text)
    sure = sum(change.sure for change in changes)
    print(
        f"{len(changes)} rows in both, {sure} separated (Holm, 5 %), {len(bad)} of them worse; "
        f"{len(alone)} rows in one only."
    )
    return EXIT_FOUND if bad else 0


def _told(change: Change) -> dict[str, Any]:
    row = dataclasses.asdict(change.row)
    names = ("dataset", "mechanism", "params", "epsilon", "b_g", "metric", "component", "mean")
    return {
        **{name: row[name] for name in names},
        "before": change.before,
        "by": dataclasses.asdict(change.by),
        "separated": change.sure,
        "worse": change.worse,
    }


def merge(options: argparse.Namespace) -> int:
    """`panelbench merge SOURCE SOURCE ... --to FOLDER`: exit status 1 where results conflict."""
    from panelbench.merge import merge as merged

    conflicts = merged([Path(name) for name in options.sources], Path(options.to), say)
    for text in conflicts:
        print(f"conflict: {text}")
    if conflicts:
        say(
            "Of each the newest is kept; `panelbench reproduce KEY` in the stores says which one "
            "today's code gives."
        )
    say(f"Wrote {options.to}")
    return 1 if conflicts else 0


def verify(options: argparse.Namespace) -> int:
    """`panelbench verify PATH`: exit status 1 where something is wrong."""
    from panelbench.verify import problems

    found = list(problems(Path(options.path), say))
    for text in found:
        print(text)
    print(f"Problems: {len(found)}." if found else "All is as it says.")
    return 1 if found else 0


def reproduce(options: argparse.Namespace) -> int:
    """`panelbench reproduce RECORD`: exit status 3 where something else comes out."""
    from panelbench.grid import Limits
    from panelbench.parents import Parents
    from panelbench.progress import Progress
    from panelbench.record import Store
    from panelbench.reproduce import reproduce as reproduced

    record, scores = _recorded(options)
    limits = Limits(**record.hardware.get("limits", {}))
    with tempfile.TemporaryDirectory(prefix="panelbench-") as folder:
        store = Store(Path(folder))
        with (
            Parents(limits, store.root / "cache", store.root / "logs") as parents,
            Progress(1, 0) as progress,
        ):
            answer = reproduced(
                record, scores, plugins_of(options), store,
                limits=limits, parents=parents, progress=progress, say=say,
            )  # fmt: skip
    if options.json:
        print_json(dataclasses.asdict(answer))
    else:
        print(answer.verdict + (f": {answer.error}" if answer.error else ""))
        if answer.changed:
            print(f"  changed since: {', '.join(answer.changed)}")
        for name, (was, now) in answer.scores.items():
            print(f"  {name}: {was} then, {now} now" + ("" if was == now else "  <- differs"))
    return EXIT_FOUND if answer.verdict == "different" else 0


def _recorded(options: argparse.Namespace) -> tuple[Record, list[Record]]:
    """The record named by a file or the beginning of a key, in a store or an archive."""
    from panelbench.archive import unpack
    from panelbench.record import Store, read_record

    path = Path(options.record)
    if path.suffix == ".json" and path.is_file():
        record = read_record(path)
        scores = Store(path.parent.parent).records("score")
    elif options.store.endswith(".jsonl.gz"):
        _, cells, found, _ = unpack(Path(options.store))
        record, scores = _only(cells, options.record), iter(found)
    else:
        store = Store(Path(options.store))
        record, scores = _only(store.records("cell"), options.record), store.records("score")
    stream = {"seed": record.subject.get("seed"), "repeat": record.subject.get("repeat")}
    return record, [
        score
        for score in scores
        if score.subject["release"] == record.release
        and {name: score.subject["stream"][name] for name in stream} == stream
    ]


def _only(cells: Any, key: str) -> Record:  # noqa: ANN401 - any iterable of records
    found: list[Record] = [record for record in cells if record.key.startswith(key)]
    if len(found) != 1:
        raise StoreError(
            f"'{key}' is the beginning of {len(found) or 'no'} keys; give the path of a record's "
            f".json, or the beginning of one key and its --store (a folder or a .jsonl.gz)."
        )
    return found[0]
