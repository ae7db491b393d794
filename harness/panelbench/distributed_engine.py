"""Cells on other machines, through a dask.distributed scheduler.

Workers share the store's folder with the caller, under one path, and have the same code and
environments installed. A worker supervises children just as a local run does; records and leases
are in the store, so it does not matter who computes a cell, and a cell that was recorded before its
worker died is not computed again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panelbench import catalog, lease
from panelbench.errors import EngineError
from panelbench.parents import Parents
from panelbench.plan import state_of
from panelbench.record import Status, Store
from panelbench.runner import Runner, short_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.grid import Cell, Limits
    from panelbench.plan import Plan, State
    from panelbench.progress import Progress

PATIENCE = float(os.environ.get("PANELBENCH_DASK_PATIENCE", "60"))
"""Seconds to wait for a scheduler that does not answer, or is away."""
_POLL = 0.5
_SLICE = 1.0
"""Seconds of work in a task: what dask needs for one (some 30 ms of a core on both sides) is paid
once for many short cells, while long ones come one by one."""
_AHEAD = 4
"""Tasks under way for each thread of a worker, so that none waits for the caller."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker is told of a run; the plan lies in the store.

    Attributes:
        root: Path of the store.
        plan: File of the plan below it.
        stop: File below it that appears when the run is to end.
        retry: As in `Runner`.
        only_scores: As in `Runner`.
        code: Hash of the harness and of each plugin that the caller has.
    """

    root: str
    plan: str
    stop: str
    retry: frozenset[Status]
    only_scores: bool
    code: dict[str, str]


@dataclass
class Told:
    """What happened to a cell on a worker; it stands where a local run has its progress."""

    status: Status | None = None
    lines: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def begin(self, name: str) -> None:
        """A cell begins."""

    def end(self, name: str, status: Status | None) -> None:  # noqa: ARG002 - as in Progress
        """A cell ended."""
        self.status = status

    def say(self, line: str) -> None:
        """Keep a line for the caller to print."""
        self.lines.append(line)


def run(runner: Runner, todo: list[State], progress: Progress, *, scheduler: str) -> None:
    """Work through `todo` on the workers of a scheduler.

    Args:
        runner: Whose plan, store and options count.
        todo: As `Runner.todo` gives it.
        progress: Told what ends.
        scheduler: Address ("tcp://host:port"), or the path of a scheduler file.

    Raises:
        EngineError: Where no scheduler answers, or a worker has other code or another store.
    """
    try:
        from distributed import Client  # noqa: PLC0415 - an extra

        connect: Any = Client  # it has no types
    except ImportError as error:
        raise EngineError(
            "The engine 'dask' needs dask.distributed; pip install 'panelbench[dask]'."
        ) from error
    where = {"scheduler_file": scheduler} if Path(scheduler).is_file() else {"address": scheduler}
    try:
        client = connect(**where, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise EngineError(
            f"No scheduler answers at '{scheduler}' ({type(error).__name__}); start one with "
            f"`dask scheduler`, or check the address."
        ) from error
    job = _job(runner)
    stop = runner.store.root / job.stop
    stop.unlink(missing_ok=True)
    try:
        _through(client, job, runner, todo, progress)
    except BaseException:
        runner.stop.set()
        stop.touch()
        raise
    finally:
        client.close(timeout=5)
        (runner.store.root / job.plan).unlink(missing_ok=True)


def _job(runner: Runner) -> Job:
    name = f"{runner.plan.grid.name}-{os.getpid()}-{time.time_ns()}"
    kept = Path("plans") / f"{name}.pickle"
    path = runner.store.root / kept
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(runner.plan))
    return Job(
        root=str(runner.store.root),
        plan=str(kept),
        stop=f"leases/{name}.stop",
        retry=runner.retry,
        only_scores=runner.only_scores,
        code=_code(runner.plan),
    )


def _code(plan: Plan) -> dict[str, str]:
    plugins = {name: catalog.code_hash(plan.plugins[name]) for name in plan.hashes}
    return {"panelbench": catalog.core_hash(), **plugins}


def _through(
    client: Any,  # noqa: ANN401 - distributed has no types
    job: Job,
    runner: Runner,
    todo: list[State],
    progress: Progress,
) -> None:
    """Submit cells in their order, take in what comes back, submit again what was lost."""
    names = {state.cell.key: short_name(state.cell) for state in todo}
    waiting = {state.cell.key: state for state in todo}
    futures: dict[Any, list[str]] = {}
    size, threads, away = 1, 1, None
    while waiting:
        under_way = {key for keys in futures.values() for key in keys}
        free = [key for key in waiting if key not in under_way]
        with contextlib.suppress(OSError):  # the scheduler is away
            threads = max(1, sum(client.nthreads().values()))
        most = _AHEAD * threads
        size = max(1, min(size, len(waiting) // most))  # all have some to the end
        while free and len(futures) < most:
            keys, free = free[:size], free[size:]
            futures[client.submit(perform, job, keys, pure=False, retries=3)] = keys
        finished = [future for future in futures if future.done()]
        if not finished:
            away = _still_there(client, away)
            time.sleep(_POLL)
            continue
        for future in finished:
            keys = futures.pop(future)
            try:
                told = future.result()
            except CancelledError:  # the scheduler forgot it
                told = _recorded(runner, [waiting[key] for key in keys])
            except Exception as error:  # whatever a worker raises
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                where = names[keys[0]] + f" or the {len(keys) - 1} after it" * (len(keys) > 1)
                raise EngineError(f"A worker failed on {where}: {reason}.") from error
            if isinstance(told, str):
                raise EngineError(told)
            for key, one in told.items():
                del waiting[key]
                for line in one.lines:
                    progress.say(line)
                progress.end(names[key], one.status)
            slowest = max((one.seconds for one in told.values()), default=_SLICE)
            size = round(_SLICE / max(slowest, 0.01))


def _recorded(runner: Runner, states: list[State]) -> dict[str, Told]:
    """What the store says of cells whose task nobody knows any more; without those not done."""
    told = {}
    for before in states:
        state = state_of(runner.plan, before.cell, runner.store)
        if state.done:
            told[state.cell.key] = Told(status=state.ending.status if state.ending else None)
    return told


def _still_there(client: Any, away: float | None) -> float | None:  # noqa: ANN401 - no types
    """Since when the scheduler is away; None while it is there.

    Raises:
        EngineError: Where it is away for too long.
    """
    if client.status == "running":
        return None
    since = time.monotonic() if away is None else away
    if time.monotonic() - since > PATIENCE:
        raise EngineError(
            f"The scheduler has been away for {PATIENCE:.0f} s; start it again and run the same "
            f"command: what is recorded is kept."
        )
    return since


# ---------------------------------------------------------------- on a worker


@functools.lru_cache(maxsize=4)
def _plan(path: Path) -> tuple[Plan, dict[str, Cell], dict[str, str]]:
    """The plan of a run, its cells by key, and the code that is here; read once a run."""
    plan: Plan = pickle.loads(path.read_bytes())  # noqa: S301 - the caller wrote it into the store
    return plan, {cell.key: cell for cell in plan.cells}, _code(plan)


@functools.lru_cache(maxsize=4)
def _parents(root: Path, limits: Limits) -> Parents:
    """Warm parents of this worker; they end with it."""
    return Parents(limits, root / "cache", root / "logs")


def perform(job: Job, keys: list[str]) -> dict[str, Told] | str:
    """Compute cells on this worker, until a slice of time is over; a text says why it cannot.

    Returns:
        What happened to those that were begun, by key.
    """
    root = Path(job.root)
    try:
        plan, cells, own = _plan(root / job.plan)
    except OSError:
        return (
            f"A worker does not see the store '{root}'; mount the folder there under the same path."
        )
    other = [name for name, code in own.items() if job.code.get(name) != code]
    if other:
        return f"A worker has other code of {', '.join(other)}; install the same versions there."
    runner = Runner(
        plan,
        Store(root),
        parents=_parents(root, plan.grid.limits),
        workers=1,
        retry=job.retry,
        only_scores=job.only_scores,
    )
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(root / job.stop, runner.stop, done), daemon=True)
    watch.start()
    told: dict[str, Told] = {}
    began = time.monotonic()
    try:
        for key in keys:
            begins = time.monotonic()
            if told and (begins - began > _SLICE or runner.stop.is_set()):
                break
            told[key] = _compute(runner, cells[key])
            told[key].seconds = time.monotonic() - begins
    finally:
        done.set()
    return told


def _compute(runner: Runner, cell: Cell) -> Told:
    """One cell.

    One that another worker holds is waited for: it may be a worker that has just died, whose lease
    runs out, or one that is about to finish.
    """
    for told in _attempts(runner, cell.key):
        runner.one(state_of(runner.plan, cell, runner.store), told)
        if told.status is not Status.SKIPPED or runner.stop.is_set():
            break
    return told


def _attempts(runner: Runner, key: str) -> Iterator[Told]:
    """One more try whenever the cell may be free."""
    held = lease.path_of(runner.store.root, key)
    while True:
        yield Told()
        while held.exists() and not lease.stale(held) and not runner.stop.is_set():
            time.sleep(_POLL)


def _watch(stop: Path, event: threading.Event, done: threading.Event) -> None:
    while not done.wait(_POLL):
        if stop.exists():
            event.set()
            return
