"""What the commands that plan and compute a grid do and print."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench.board_commands import store_of, write_board
from panelbench.errors import GridError, StoreError, unknown
from panelbench.plugin_commands import plugins_of, print_json, say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from panelbench.grid import Choice
    from panelbench.parents import Parents
    from panelbench.plan import Plan
    from panelbench.record import Record, Store


@contextmanager
def _planned(
    options: argparse.Namespace, mechanisms: Sequence[str] = ()
) -> Iterator[tuple[Plan, Store, Parents]]:
    from panelbench.gridfile import read as read_grid
    from panelbench.parents import Parents
    from panelbench.plan import make_plan

    store = store_of(options)
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
    from panelbench.kept import PART, text_hash
    from panelbench.plan import effective
    from panelbench.record import write_over

    name = made.grid.name + (PART if options.dataset else "")
    path = store.root / "plans" / f"{name}.json"
    file = Path(options.grid).name
    grid = effective(replace(made.grid, name=name))
    kept = {**made.to_json(), "grid": grid, "file": file, "text": text_hash(Path(options.grid))}
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
        cells.sort(key=lambda cell: cell.repeat)  # an early board of all, and times that hold
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
    csv = store.root / f"{name}.csv"
    write_board(board, kept, to_csv=csv, to_html=store.root / f"{name}.html")
    later = runner.todo([cell for cell in made.cells if cell.mechanism not in wanted])
    if later:
        say(
            f"Other mechanisms lack cells ({len(later)}), and their entries are incomplete: run "
            f"without -m; `panelbench explain` says of a cell why it is new."
        )
    status = runner.exit_status(cells)
    if status:
        say(
            f"Not every cell ended well: `panelbench status {options.grid}` lists them, and "
            f"`--retry failed,timeout,oom,killed,invalid` tries again."
        )
    return status


def explain(options: argparse.Namespace) -> int:
    """`panelbench explain GRID CELL`."""
    from panelbench.grid import label_of
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
        missing = [metric for metric, score in state.scores if score is None]
        answer |= {
            "state": f"hit: recorded as {state.record.status}",
            "missing_scores": [label_of(metric) for metric in missing],
            "changed": _of_scores(made, state.record.release, missing, store),
        }
        if missing and not store.intact("releases", state.record.release):
            answer["state"] += "; its release is no longer here, so it will be released again"
    else:
        alike = [record for record in records if _public(record) == cell.public]
        changed = {
            record.key: _changes(record.subject["hashes"], cell.hashes)
            | (record.versions and _changes(record.versions, made.versions[cell.mechanism.plugin]))
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
            was, now = (value or "not there" for value in (values["was"], values["is"]))
            print(f"  {name} was {was} in record {key}, is {now} now")
    for name in answer.get("missing_scores", []):
        print(f"  score missing: {name}")
    return 0


def _of_scores(
    made: Plan, release: str, metrics: list[Choice], store: Store
) -> dict[str, dict[str, dict[str, str | None]]]:
    """By key of a score that is there, what of its metric is not as it was."""
    changed = {}
    for record in store.records("score") if metrics else ():
        subject = record.subject
        for metric in metrics:
            if (subject["release"], subject["metric"]) == (release, metric.identity):
                found = _changes(subject["hashes"], made.hashes[metric.plugin])
                changed[record.key] = {f"{n} of {metric.plugin}": v for n, v in found.items()}
    return changed


def _changes(was: dict[str, str], now: dict[str, str]) -> dict[str, dict[str, str | None]]:
    return {
        name: {"was": was.get(name), "is": now.get(name)}
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    }


def _public(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.subject.items() if name != "hashes"}
