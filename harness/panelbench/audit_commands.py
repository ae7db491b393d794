"""What `panelbench audit` does and prints."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench.errors import GridError, PanelbenchError, unknown
from panelbench.plugin_commands import plugins_of, print_json, say

if TYPE_CHECKING:
    import argparse

    from panelbench.audits import Wanted
    from panelbench.loader import Plugin
    from panelbench.record import Record, Store

EXIT_CONTRADICTED = 3
BOARDS = (".toml", ".json", ".jsonl.gz")


def audit(options: argparse.Namespace) -> int:
    """`panelbench audit WHAT`: exit status 3 where a claim is contradicted, or an audit failed."""
    from panelbench.audits import Auditing, names_of
    from panelbench.grid import Limits
    from panelbench.parents import Parents
    from panelbench.progress import Progress
    from panelbench.record import FAILURES, Status, Store
    from panelbench.runner import default_workers

    game = _game(options)
    plugins = plugins_of(options)
    store = Store(Path(options.store).resolve())
    wanted = _wanted(options, plugins)
    limits = Limits(seconds=options.limit, memory_mb=options.memory)
    again = (Status.FAILED, Status.TIMEOUT, Status.OOM, Status.KILLED, Status.INVALID)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        Parents(limits, store.root / "cache", store.root / "logs", module="auditor") as parents,
        Progress(len(wanted), 0, noun="audits") as progress,
    ):
        auditing = Auditing(store, plugins, game, seed=options.seed, parents=parents, stop=stop)
        records = auditing.run(
            wanted,
            workers=options.workers or default_workers(),
            retry=again if options.retry else (),
            progress=progress,
        )
    if options.json:
        print_json([_told(record) for record in records])
    else:
        subjects = [(r.subject["mechanism"], r.subject["budget"]["relation"]) for r in records]
        for name, record in zip(names_of(subjects), records, strict=True):
            print(_line(name, record))
    if options.to:
        _publish(store, Path(options.to))
    bad = [r for r in records if r.status in FAILURES or r.info.get("reason")]
    return EXIT_CONTRADICTED if bad or len(records) < len(wanted) else 0


def _game(options: argparse.Namespace) -> Any:  # noqa: ANN401 - imported where it is needed
    from panelbench.audit import Game

    try:
        return Game(
            method=options.method,
            releases=options.releases,
            canaries=options.canaries,
            seconds=options.seconds,
        )
    except ValueError as error:
        raise GridError(str(error)) from error


def _wanted(options: argparse.Namespace, plugins: dict[str, Plugin]) -> list[Wanted]:
    from panelbench.audits import of_mechanisms, of_plan
    from panelbench.kept import kept_by_name
    from panelbench.privacy import Budget, NeighboringRelation

    try:
        params: dict[str, Any] = json.loads(options.params)
    except ValueError as error:
        raise GridError(f"--params must be a JSON object, got '{options.params}'.") from error
    relations = list(NeighboringRelation)
    if options.relation and options.relation not in relations:
        raise GridError(unknown("relation", options.relation, relations))
    budgets = [
        Budget.approximate_dp(options.epsilon, options.delta, relation=relation)
        for relation in relations
        if options.relation in ("", relation)
    ]
    boards = [what for what in options.what if what.endswith(BOARDS)]
    names = [what for what in options.what if what not in boards]
    found = of_mechanisms(names, params, budgets, plugins)
    for board in boards:
        plan, *_ = kept_by_name(board, options.store)
        found += of_plan(plan, options.epsilon)
    return found


def _told(record: Record) -> dict[str, Any]:
    figures = record.guarantee.get("figures", {})
    return {
        "key": record.key,
        "mechanism": record.subject["mechanism"],
        "budget": record.subject["budget"],
        "status": record.status,
        "error": record.error,
        "epsilon": figures.get("epsilon"),
        "epsilon_lower": record.info.get("epsilon_lower"),
        "reason": record.info.get("reason", ""),
        "found": record.info.get("found", {}),
        "seconds": sum(record.seconds.values()),
    }


def _line(name: str, record: Record) -> str:
    told = _told(record)
    if told["epsilon_lower"] is None:
        return f"{record.status:12}  {name}: {told['error']}"
    found = told["found"]
    played = f"{found['releases']} releases"
    if found["method"] == "canaries":
        played = f"{found['canaries']} canaries in {found['releases']} releases"
    played = f"({played}, {told['seconds']:.1f} s)"
    if told["reason"]:
        return f"CONTRADICTED  {name}: {told['reason']} {played}"
    bound = f"epsilon > {told['epsilon_lower']:.3g}, claimed {float(told['epsilon']):.4g}"
    return f"no objection  {name}: {bound} {played}"


def _publish(store: Store, folder: Path) -> None:
    """Write all audits of a store that ended well as a CSV and the records it follows from."""
    from panelbench.archive import AUDITS_ALONE, csv_of, pack
    from panelbench.record import Status, write_over

    audits = [record for record in store.records("audit") if record.status is Status.OK]
    if not audits:
        raise PanelbenchError("The store holds no audit that ended well; make one first.")
    files: dict[str, str | bytes] = {
        "audit.csv": csv_of(AUDITS_ALONE, [], [], audits),
        "audit.jsonl.gz": pack(AUDITS_ALONE, [], [], audits),
    }
    for name, content in files.items():
        write_over(folder / name, content)
        say(f"Wrote {folder / name}")
