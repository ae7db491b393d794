"""What the commands about grids do and print."""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench.errors import GridError, StoreError, unknown
from panelbench.plugin_commands import plugins_of, print_json, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from panelbench.board import Board
    from panelbench.parents import Parents
    from panelbench.plan import Plan
    from panelbench.record import Record, Store


def _store(options: argparse.Namespace) -> Store:
    from panelbench.record import Store

    root = Path(options.store).resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"The store '{options.store}' cannot be a folder: {error.strerror}; name another."
        ) from error
    return Store(root)


@contextmanager
def _planned(
    options: argparse.Namespace, mechanisms: Sequence[str] = ()
) -> Iterator[tuple[Plan, Store, Parents]]:
    from panelbench.gridfile import read as read_grid
    from panelbench.parents import Parents
    from panelbench.plan import make_plan

    store = _store(options)
    read = read_grid(Path(options.grid))
    with Parents(read.limits, store.root / "cache", store.root / "logs") as parents:
        plugins = plugins_of(options)
        made = make_plan(
            read,
            plugins,
            store,
            parents=parents,
            say=say,
            datasets=options.dataset,
            mechanisms=mechanisms,
        )
        yield made, store, parents


def _keep(made: Plan, store: Store, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Keep the plan that a run is about; its contents, and the name that its board goes under.

    A run of some datasets only is kept as a part, so that the whole board stays as it was.
    """
    from panelbench.kept import text_hash
    from panelbench.record import write_over

    name = made.grid.name + ("-part" if options.dataset else "")
    path = store.root / "plans" / f"{name}.json"
    file = Path(options.grid).name
    kept = {**made.to_json(), "file": file, "text": text_hash(Path(options.grid))}
    try:
        other = json.loads(path.read_text(encoding="utf-8")).get("file", file)
    except (OSError, ValueError, AttributeError):
        other = file
    if other != file:
        raise StoreError(
            f"The store holds another grid called '{made.grid.name}', from '{other}'; give this "
            f"one another name or another --store."
        )
    write_over(path, json.dumps(kept))
    return kept, name


def plan(options: argparse.Namespace) -> int:
    """`panelbench plan GRID`."""
    from panelbench.plan import state_of
    from panelbench.progress import duration
    from panelbench.runner import short_name

    with _planned(options) as (made, store, _):
        pass
    past: dict[str, list[float]] = {}  # seconds of finished cells, by mechanism
    with suppress(StoreError):  # an estimate can do without what cannot be read
        for record in store.records("cell"):
            name = record.subject.get("mechanism", {}).get("name", "")
            past.setdefault(name, []).append(sum(record.seconds.values()))
    rows: list[dict[str, Any]] = []
    for cell in made.cells:
        state = state_of(made, cell, store)
        ending = state.ending
        times = past.get(cell.mechanism.name)
        rows.append(
            {
                "key": cell.key,
                "cell": short_name(cell),
                "status": ending.status if ending is not None and state.done else "to do",
                "seconds": None if not times else round(sum(times) / len(times), 2),
            }
        )
    if options.json:
        print_json(rows)
        return 0
    for row in rows:
        print(f"{row['key']}  {row['status']:12}  {row['cell']}")
    left = [row for row in rows if row["status"] == "to do"]
    known = [row["seconds"] for row in left if row["seconds"] is not None]
    print(f"{len(rows)} cells, {len(left)} to do", end="")
    if left:
        total = duration(sum(known)) if known else "unknown"
        print(f"; from past records {len(known)} of them need about {total} of one core", end="")
    print(".")
    return 0


def _statuses(text: str) -> list[Any]:
    from panelbench.record import Status

    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        again = [status for status in Status if status is not Status.OK]
        if name not in again:
            raise GridError(unknown("status", name, again))
    return [Status(name) for name in names]


def run(options: argparse.Namespace) -> int:
    """`panelbench run GRID`, and `panelbench score GRID`, which leaves mechanisms alone."""
    from panelbench.plan import chosen
    from panelbench.progress import Progress
    from panelbench.runner import Runner, default_workers

    only_scores = options.command == "score"
    retry = _statuses(options.retry)
    if not only_scores and (options.engine == "dask") != bool(options.scheduler):
        raise GridError("--engine dask and --scheduler ADDRESS go together; give both or neither.")
    globs = [] if only_scores else options.mechanism
    with _planned(options, globs) as (made, store, parents):
        wanted = chosen(made.grid.mechanisms, globs, "mechanism")
        cells = [cell for cell in made.cells if cell.mechanism in wanted]
        inline = not only_scores and options.inline
        runner = Runner(
            made,
            store,
            parents=parents,
            workers=1 if inline else options.workers or default_workers(),
            retry=retry,
            only_scores=only_scores,
            inline=inline,
        )
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        kept, name = _keep(made, store, options)
        todo = runner.todo(cells)
        with Progress(len(cells), len(cells) - len(todo)) as progress:
            if only_scores or options.engine == "local":
                runner.run(todo, progress)
            else:
                from panelbench.distributed_engine import run as run_elsewhere

                run_elsewhere(runner, todo, progress, scheduler=options.scheduler)
    from panelbench.kept import with_records
    from panelbench.leaderboard import make_board

    board = make_board(*with_records(kept, store))
    _write(board, kept, to_csv=store.root / f"{name}.csv", to_html=store.root / f"{name}.html")
    status = runner.exit_status(cells)
    if status:
        say(
            f"Not every cell ended well: `panelbench status {options.grid}` lists them, and "
            f"`--retry failed,timeout,oom,killed,invalid` tries again."
        )
    return status


def _write(
    board: Board,
    kept: dict[str, Any],
    *,
    to_csv: Path | None = None,
    to_html: Path | None = None,
    full: bool = False,
    more: Iterable[str] = (),
) -> None:
    """Write first, then print, so that a reader who stops reading loses nothing.

    Raises:
        StoreError: Where a file cannot be written; the table is printed all the same.
    """
    from panelbench.board import to_csv as csv_of
    from panelbench.record import write_over
    from panelbench.report import to_html as html_of
    from panelbench.table import render

    try:
        if to_csv is not None:
            write_over(to_csv, csv_of(board))
        if to_html is not None:
            write_over(to_html, html_of(board, kept, more=more))
    finally:
        if to_csv is not None:
            print(render(board, every_component=full))
    for path in (to_csv, to_html):
        if path is not None:
            say(f"Wrote {path}")


def show_leaderboard(options: argparse.Namespace) -> int:
    """`panelbench leaderboard GRID`."""
    from panelbench.kept import kept_by_name
    from panelbench.leaderboard import make_board

    kept, *records = kept_by_name(options.grid, options.store)
    board = make_board(kept, *records)
    if options.against:
        return _show_against(board, options)
    if options.json:
        print_json([vars(row) for row in board.rows])
        return 0
    if options.csv == "-":
        from panelbench.board import to_csv

        print(to_csv(board), end="")
        return 0
    path = Path(options.csv or _store(options).root / f"{board.name}.csv")
    _write(board, kept, to_csv=path, full=options.all)
    return 0


def _show_against(board: Board, options: argparse.Namespace) -> int:
    from panelbench.against import against, render

    if options.json:
        found = against(board, options.against)
        print_json(
            [{**vars(v.row), "by": vars(v.by), "share": v.share, "label": v.label} for v in found]
        )
        return 0
    for line in render(board, options.against, every_component=options.all):
        print(line)
    return 0


def report(options: argparse.Namespace) -> int:
    """`panelbench report GRID`."""
    from panelbench.kept import kept_by_name
    from panelbench.leaderboard import make_board

    kept, *records = kept_by_name(options.grid, options.store)
    board = make_board(kept, *records)
    path = Path(options.html or _store(options).root / f"{board.name}.html")
    tables: tuple[str, ...] = ()
    if options.tables:
        from panelbench.samples import side_by_side

        tables = tuple(side_by_side(kept, {r.key: r for r in records[0]}, _store(options)))
        if not tables:
            raise StoreError(
                f"There is no kept release of user tables in {_store(options).root}; run the grid "
                f"there, or name its store."
            )
    _write(board, kept, to_html=path, more=tables)
    return 0


def publish(options: argparse.Namespace) -> int:
    """`panelbench publish GRID`."""
    from panelbench import revisions
    from panelbench.archive import pack, unpack, with_audits
    from panelbench.board import to_csv
    from panelbench.kept import kept_by_name, with_more_audits
    from panelbench.leaderboard import make_board
    from panelbench.record import one_line, write_over
    from panelbench.report import to_html

    known = kept_by_name(options.grid, options.store, unchanged=True)
    kept, *records = with_more_audits(known, _store(options))
    board = make_board(kept, *records)
    folder = Path(options.to)
    archive = folder / f"{board.name}.jsonl.gz"
    changes = folder / revisions.FILE
    lines = []
    if archive.is_file() and archive.resolve() != Path(options.grid).resolve():
        lines = revisions.revised(make_board(*unpack(archive)), board)
    if options.because and not lines:
        say("Nothing that was published changes, so the reason is not kept.")
    if lines and not options.because:
        raise StoreError(
            f"{len(lines)} published entries would change or be withdrawn ({lines[0]}); say why "
            f"with --because 'ONE SENTENCE', which goes to {changes}."
        )
    files: dict[Path, str | bytes] = {
        folder / f"{board.name}.csv": to_csv(board),
        archive: with_audits(Path(options.grid), records[2])
        if options.grid.endswith(".jsonl.gz")
        else pack(kept, *records),
        folder / f"{board.name}.html": to_html(board, kept),
    }
    if lines:
        text = changes.read_text(encoding="utf-8") if changes.is_file() else ""
        day = datetime.now(UTC).date().isoformat()
        files[changes] = revisions.noted(text, board.name, day, one_line(options.because), lines)
    for path, content in files.items():
        write_over(path, content)
        say(f"Wrote {path}")
    return 0


def status(options: argparse.Namespace) -> int:
    """`panelbench status GRID`."""
    from panelbench.kept import kept_by_name
    from panelbench.leaderboard import endings

    kept, cells, scores, _ = kept_by_name(options.grid, options.store)
    store = _store(options)
    rows = endings(kept, cells, scores)
    counts = Counter(row["status"] for row in rows)
    if options.json:
        print_json({"counts": counts, "cells": rows})
        return 0
    for row in rows:
        if row["status"] not in ("ok", "missing"):
            where = f" ({row['phase']})" if row["phase"] else ""
            print(f"{row['key']}  {row['status']}{where}  {row['cell']}: {row['error']}")
            if row["log"]:
                print(f"    log: {store.root / row['log']}")
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())) + ".")
    return 0


def explain(options: argparse.Namespace) -> int:
    """`panelbench explain GRID CELL`."""
    from panelbench.plan import state_of
    from panelbench.runner import short_name

    with _planned(options) as (made, store, _):
        pass
    records = list(store.records("cell"))
    old = {r.key: r for r in records if r.key.startswith(options.cell)}
    cells = [
        cell
        for cell in made.cells
        if cell.key.startswith(options.cell)
        or short_name(cell) == options.cell
        or any(_public(record) == cell.public for record in old.values())
    ]
    if len(cells) != 1:
        found = "is the beginning of several keys" if cells else "is no cell of this grid"
        raise GridError(f"'{options.cell}' {found}; `panelbench plan` lists the keys.")
    cell = cells[0]
    state = state_of(made, cell, store)
    answer: dict[str, Any] = {"key": cell.key, "cell": short_name(cell), "hashes": cell.hashes}
    if state.record is not None:
        missing = [metric.name for metric, score in state.scores if score is None]
        answer |= {"state": f"hit: recorded as {state.record.status}", "missing_scores": missing}
    else:
        alike = [record for record in records if _public(record) == cell.public]
        changed = {
            record.key: {
                name: {"was": record.subject["hashes"].get(name), "is": value}
                for name, value in cell.hashes.items()
                if record.subject["hashes"].get(name) != value
            }
            for record in alike
        }
        reason = "no record of such a cell" if not alike else "what a record depends on changed"
        answer |= {"state": f"miss: {reason}", "changed": changed}
    if options.json:
        print_json(answer)
        return 0
    print(f"{answer['cell']}\n{answer['key']}\n{answer['state']}")
    for key, fields in answer.get("changed", {}).items():
        for name, values in fields.items():
            print(f"  {name} was {values['was']} in record {key}, is {values['is']} now")
    for name in answer.get("missing_scores", []):
        print(f"  score missing: {name}")
    return 0


def _public(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.subject.items() if name != "hashes"}
