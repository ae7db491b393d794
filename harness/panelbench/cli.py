"""The command line: parses, hands over, and turns errors into one line.

What a command needs is imported when it runs, so that `--help` takes a fraction of a second with
any number of plugins installed.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from panelbench.errors import PanelbenchError, StoreError
from panelbench.schema import DATA_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMANDS = {
    "list": ("plugin_commands", "list_plugins"),
    "describe": ("plugin_commands", "describe"),
    "check": ("plugin_commands", "check"),
    "data": ("plugin_commands", "data"),
    "env": ("plugin_commands", "env"),
    "plan": ("grid_commands", "plan"),
    "new": ("plugin_commands", "new"),
    "run": ("grid_commands", "run"),
    "score": ("grid_commands", "run"),
    "status": ("board_commands", "status"),
    "explain": ("grid_commands", "explain"),
    "leaderboard": ("board_commands", "show_leaderboard"),
    "report": ("board_commands", "report"),
    "publish": ("board_commands", "publish"),
    "compare": ("record_commands", "compare"),
    "merge": ("record_commands", "merge"),
    "verify": ("record_commands", "verify"),
    "reproduce": ("record_commands", "reproduce"),
    "audit": ("audit_commands", "audit"),
}
"""Where each command lives; imported when it runs."""
STATUSES = "unsupported, skipped, failed, timeout, oom, killed, invalid"
_NO_ROOM = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
"""Only writing ends like this, so no code is at fault."""


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file that is a plugin; may be given more than once",
    )
    shared.add_argument(
        "--data",
        metavar="FOLDER",
        help=f"data directory (or the environment variable {DATA_DIRECTORY})",
    )
    shared.add_argument(
        "--traceback", action="store_true", help="show where in the code an error came from"
    )
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON for programs")
    stored = argparse.ArgumentParser(add_help=False)
    stored.add_argument(
        "grid", metavar="GRID", help="a grid file; where nothing is computed also its name"
    )
    stored.add_argument(
        "--store", default="results", metavar="FOLDER", help="record store (default: results)"
    )
    some = argparse.ArgumentParser(add_help=False)
    some.add_argument(
        "-d",
        "--dataset",
        action="append",
        default=[],
        metavar="GLOB",
        help="only datasets of this label or name; the board is kept apart, as a part",
    )

    parser = argparse.ArgumentParser(
        prog="panelbench",
        description="Benchmark differentially private mechanisms on data about people over time.",
        epilog="Exit status: 0 all well, 1 an error, 2 wrong usage, 3 some cells failed, "
        "130 interrupted.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, text: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[shared, *parents])

    listing = command("list", "List every plugin and what it brings.", as_json)
    listing.add_argument("--strict", action="store_true", help="exit 1 if a plugin is unavailable")
    describe = command("describe", "Describe one component and its parameters.", as_json)
    describe.add_argument("name", metavar="NAME", help="full or unique short name")
    check = command("check", "Put installed plugins through the exam every plugin takes.", as_json)
    check.add_argument("names", nargs="*", metavar="PLUGIN", help="plugins; all by default")

    data = command("data", "List data files, fetch one, or say where it belongs.", as_json)
    data.add_argument("action", choices=["list", "get", "path"], nargs="?", default="list")
    data.add_argument("name", nargs="?", metavar="DATASET", help="only this dataset")

    envs = command("env", "List plugins' own environments, or build one.", as_json)
    envs.add_argument("action", choices=["list", "build"], nargs="?", default="list")
    envs.add_argument("name", nargs="?", metavar="NAME", help="only this environment")
    envs.add_argument(
        "--constraint", action="append", default=[], metavar="FILE", help="constraints for pip"
    )

    command("plan", "Show a grid's cells and which are done.", stored, some, as_json)
    run = command("run", "Compute what is missing, then show the leaderboard.", stored, some)
    run.add_argument(
        "-m",
        "--mechanism",
        action="append",
        default=[],
        metavar="GLOB",
        help="compute only mechanisms of this label or name now",
    )
    run.add_argument(
        "--workers", type=_workers, metavar="N", help="cells side by side (default: cores)"
    )
    run.add_argument(
        "--retry", default="", metavar="STATUS,...", help=f"try again what ended as: {STATUSES}"
    )
    run.add_argument("--engine", choices=["local", "dask"], default="local", help="where cells run")
    run.add_argument(
        "--scheduler", metavar="ADDRESS", help="tcp://host:port, or a scheduler file, for dask"
    )
    run.add_argument(
        "--inline", action="store_true", help="no child processes, no limits: for debugging"
    )
    command("status", "Count the cells of a grid by status, list failures.", stored, as_json)
    score = command("score", "Score the kept releases, without any mechanism.", stored, some)
    score.add_argument("--workers", type=_workers, metavar="N")
    score.add_argument("--retry", default="", metavar="STATUS,...")
    explain = command("explain", "Say why a cell is done or new.", stored, some, as_json)
    explain.add_argument("cell", metavar="CELL", help="the key of a cell, or its beginning")
    _add_boards(command, as_json, stored)
    _add_more(command, as_json)
    return parser


def _add_boards(
    command: Callable[..., argparse.ArgumentParser],
    as_json: argparse.ArgumentParser,
    stored: argparse.ArgumentParser,
) -> None:
    besides = argparse.ArgumentParser(add_help=False)
    besides.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="FILE",
        help="a published .jsonl.gz: its entries too, where data, budget and metric are the same",
    )
    board = command(
        "leaderboard", "Print the leaderboard and write its CSV.", stored, besides, as_json
    )
    board.add_argument(
        "--csv", metavar="FILE", help="where to write, - to print (default: in the store)"
    )
    board.add_argument("--all", action="store_true", help="print every component of a metric")
    board.add_argument(
        "--against", metavar="ENTRY", help="print paired differences to this entry instead"
    )
    report = command("report", "Write the leaderboard as one HTML page.", stored, besides)
    report.add_argument("--html", metavar="FILE", help="where to write (default: in the store)")
    report.add_argument(
        "--tables", action="store_true",
        help="with real and synthetic tables side by side: not for publishing",
    )  # fmt: skip
    publish = command(
        "publish", "Write a grid's CSV and compacted records to commit.", stored, besides
    )
    publish.add_argument(
        "--to", default="leaderboards", metavar="FOLDER", help="default: leaderboards"
    )
    publish.add_argument(
        "--because", default="", metavar="TEXT",
        help="why published entries change or are withdrawn; kept in CHANGES.md",
    )  # fmt: skip


def _add_more(
    command: Callable[..., argparse.ArgumentParser], as_json: argparse.ArgumentParser
) -> None:
    new = command("new", "Write a plugin package to start from.")
    new.add_argument("kind", choices=["mechanism", "dataset", "metric"])
    new.add_argument("name", metavar="NAME", help="lower-case words joined by hyphens")
    new.add_argument("--to", metavar="FOLDER", help="where to write (default: NAME)")

    def of_store(parser: argparse.ArgumentParser) -> None:
        told = "record store (default: results)"
        parser.add_argument("--store", default="results", metavar="FOLDER", help=told)

    compare = command("compare", "Say what changed between two boards.", as_json)
    compare.add_argument(
        "first", metavar="FIRST", help="a .jsonl.gz, STORE/plans/NAME.json or grid"
    )
    compare.add_argument("second", metavar="SECOND", help="likewise")
    of_store(compare)
    compare.add_argument("--all", action="store_true", help="also what is not separated")
    merge = command("merge", "Put several stores and published archives into a new store.")
    merge.add_argument(
        "sources", nargs="+", metavar="STORE|ARCHIVE", help="a store, or a published .jsonl.gz"
    )
    merge.add_argument("--to", required=True, metavar="FOLDER", help="a new or empty folder")
    verify = command("verify", "Say what is wrong with records or published boards.")
    verify.add_argument("path", metavar="PATH", help="a .jsonl.gz, a folder of them, or a store")
    reproduce = command("reproduce", "Compute one recorded cell again and compare.", as_json)
    reproduce.add_argument("record", metavar="RECORD", help="a record's file, or a key's beginning")
    of_store(reproduce)
    audit = command("audit", "Attack mechanisms, and hold their claims against it.", as_json)
    of_store(audit)
    _add_audit(audit)


def _add_audit(audit: argparse.ArgumentParser) -> None:
    audit.add_argument(
        "what", nargs="+", metavar="MECHANISM|GRID",
        help="a mechanism, or a grid that ran (.toml), a plan (.json) or a published .jsonl.gz: "
        "its private entries, each at its budget nearest to --epsilon",
    )  # fmt: skip
    audit.add_argument("--params", default="{}", metavar="JSON", help="of a mechanism")
    audit.add_argument("--epsilon", type=float, default=1.0, help="(default: 1)")
    audit.add_argument("--delta", type=float, default=1e-5, help="of a mechanism (default: 1e-5)")
    audit.add_argument("--relation", default="", help="of a mechanism (default: both)")
    audit.add_argument("--method", default="auto", help="pairs, canaries, or auto (default)")
    audit.add_argument("--releases", type=int, default=10_000, help="of either dataset, at most")
    audit.add_argument("--canaries", type=int, default=10_000, help="where a release is dear")
    audit.add_argument("--seconds", type=float, default=60.0, help="that auto plans for")
    audit.add_argument("--seed", type=int, default=0)
    audit.add_argument("--limit", type=float, default=900.0, help="seconds a child may take")
    audit.add_argument("--memory", type=float, default=4096.0, help="MB that a child may use")
    audit.add_argument("--workers", type=_workers, metavar="N", help="side by side")
    audit.add_argument("--retry", action="store_true", help="try again what failed")
    audit.add_argument("--to", metavar="FOLDER", help="also write audit.csv and its records")


def _workers(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 1024, got '{text}'")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    _reopen_closed_streams()
    parser = _parser()
    options = parser.parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no ± still gets the rest
    if options.version:
        from importlib.metadata import version

        print(f"panelbench {version('panelbench')}")
        return 0
    if options.command is None:
        parser.print_help()
        return 2
    if options.data is not None:
        os.environ[DATA_DIRECTORY] = str(Path(options.data).expanduser().resolve())
    try:
        return _perform(options)
    except PanelbenchError as error:
        if options.traceback:
            traceback.print_exc()
        print(f"panelbench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("panelbench: interrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _reopen_closed_streams() -> None:
    """What is said on a stream that the caller closed (`2>&-`) goes nowhere, not into a file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115, PTH123 - for good


def _perform(options: argparse.Namespace) -> int:
    module, function = COMMANDS[options.command]
    perform = getattr(import_module(f"panelbench.{module}"), function)
    try:
        return int(perform(options))
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        what = f"'{error.filename}'" if error.filename else "A file"
        raise StoreError(
            f"{what} cannot be written: {error.strerror}; free some space or name another place."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
