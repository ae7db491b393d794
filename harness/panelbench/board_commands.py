"""What the commands about boards do and print: show one, draw it, publish it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench.errors import StoreError
from panelbench.plugin_commands import print_json, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from panelbench.board import Board
    from panelbench.kept import Kept
    from panelbench.record import Store


def store_of(options: argparse.Namespace) -> Store:
    """The store that a command names; made where it is not there."""
    from panelbench.record import Store

    root = Path(options.store).resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"The store '{options.store}' cannot be a folder: {error.strerror}; name another."
        ) from error
    return Store(root)


def write_board(
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


def _kept(options: argparse.Namespace, *, unchanged: bool = False) -> Kept:
    """What is kept of the grid, and what was published beside it."""
    from panelbench.beside import beside
    from panelbench.kept import kept_by_name

    kept = kept_by_name(options.grid, options.store, unchanged=unchanged)
    for archive in options.beside:
        kept = beside(kept, Path(archive))
    return kept


def _place(board: Board, options: argparse.Namespace, suffix: str) -> Path:
    """Where a board lies in its store; one beside others' leaves one's own as it is."""
    name = f"{board.name}-beside" if options.beside else board.name
    return Path(options.store) / f"{name}{suffix}"


def show_leaderboard(options: argparse.Namespace) -> int:
    """`panelbench leaderboard GRID`."""
    from panelbench.leaderboard import make_board

    kept, *records = _kept(options)
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
    path = Path(options.csv or _place(board, options, ".csv"))
    try:
        write_board(board, kept, to_csv=path, full=options.all)
    except StoreError as error:
        if options.csv:
            raise
        say(str(error))  # the table was asked for, and is printed
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
    from panelbench.leaderboard import make_board

    kept, *records = _kept(options)
    board = make_board(kept, *records)
    path = Path(options.html or _place(board, options, ".html"))
    tables: tuple[str, ...] = ()
    if options.tables:
        from panelbench.samples import side_by_side

        tables = tuple(side_by_side(kept, {r.key: r for r in records[0]}, store_of(options)))
        if not tables:
            raise StoreError(
                f"There is no kept release of user tables in {store_of(options).root}; run the "
                f"grid there, or name its store."
            )
    write_board(board, kept, to_html=path, more=tables)
    return 0


def publish(options: argparse.Namespace) -> int:
    """`panelbench publish GRID`."""
    from panelbench import revisions
    from panelbench.archive import pack, unpack, with_audits
    from panelbench.board import to_csv
    from panelbench.kept import with_more_audits
    from panelbench.leaderboard import make_board
    from panelbench.record import one_line, write_over
    from panelbench.report import to_html

    kept, *records = with_more_audits(_kept(options, unchanged=True), store_of(options))
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
        if options.grid.endswith(".jsonl.gz") and not options.beside
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
    store = store_of(options)
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
