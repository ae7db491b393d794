"""One task inside its own child process: materialise a dataset, run a cell, or score a release.

The task comes as JSON on standard input. What it finds out goes into the store; where it is goes
to the parent through a pipe, line by line, so that the parent can say where a killed child was.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import hashlib
import json
import math
import os
import platform
import resource
import signal
import sys
import time
import traceback
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from panelbench import accounting, loader
from panelbench.data import SensorStreams, Split, UserTables
from panelbench.errors import PanelbenchError, unknown
from panelbench.extension import Role
from panelbench.grid import canonical
from panelbench.privacy import Budget, Established, Guarantee, Notion
from panelbench.record import Phase, Record, Status, Store, one_line
from panelbench.release import Estimates, SyntheticTables
from panelbench.score import Score

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.data import Dataset
    from panelbench.extension import DatasetSource, Mechanism, Metric
    from panelbench.release import Release

_PR_SET_PDEATHSIG = 1
LARGEST = 1e300
"""Scores beyond this cannot be averaged."""
ORPHANED = 17
"""Exit status of a child whose parent was gone before it could start."""


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends (on Linux; elsewhere it lives)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(ORPHANED)


def rng_of(stream: dict[str, Any], purpose: str) -> np.random.Generator:
    """The random stream of a public identity and a purpose; the same on every machine."""
    digest = hashlib.sha256(canonical({"stream": stream, "purpose": purpose}).encode()).digest()
    return np.random.default_rng(np.random.SeedSequence(int.from_bytes(digest, "big")))


def peak_mb() -> float:
    """Peak resident memory of this process so far, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def hardware() -> dict[str, Any]:
    """Where this runs."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


class Task:
    """What a child was asked to do, and how far it is."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.store = Store(Path(raw["store"]))
        self.failed = False
        self.begin(raw["records"][0] if raw["records"] else {})

    def begin(self, record: dict[str, Any]) -> None:
        """Start on the next record of the task."""
        self.record = record
        self.seconds: dict[str, float] = {}
        self.phase = Phase.LOAD
        self._since = time.perf_counter()
        self.tell(key=record.get("key", ""), phase=self.phase)

    def enter(self, phase: Phase) -> None:
        """Say what comes next, and note how long the last phase took."""
        now = time.perf_counter()
        spent = self.seconds.get(self.phase, 0.0) + now - self._since
        self.seconds[self.phase] = round(spent, 6)
        self.phase, self._since = phase, now
        self.tell(phase=phase)

    def tell(self, **facts: str) -> None:
        """Send facts to the parent; a line is short enough for a pipe to take it whole."""
        os.write(self.raw["channel"], (json.dumps(facts) + "\n").encode())

    def component(self, kind: str, identity: dict[str, Any]) -> Any:  # noqa: ANN401 - of that kind
        """Load a component from its plugin."""
        plugin = loader.Plugin(**self.raw["plugin"])
        short = identity["name"].split("/", 1)[1]
        cls = loader.load(plugin)[kind, short]
        return loader.build(cls, identity["params"], what=f"{kind} '{identity['name']}'")

    def dataset(self, key: str) -> Dataset:
        """The materialised dataset under a content hash."""
        arrays, meta = self.store.get("datasets", key)
        kinds = {kind.kind: kind for kind in (UserTables, SensorStreams)}
        return kinds[meta["kind"]].from_arrays(arrays, meta)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Turn whatever is raised into the record's status and one line."""
        try:
            yield
        except MemoryError:
            self._fail(Status.OOM, "MemoryError: the child could not allocate more.")
        except PanelbenchError as error:
            traceback.print_exc()
            self._fail(Status.FAILED, str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it all ends in the record
            traceback.print_exc()
            where = loader.last_frame(error, loader.Plugin(**self.raw["plugin"]))
            self._fail(Status.FAILED, f"{type(error).__name__} at {where}: {error}")

    def _fail(self, status: Status, error: str) -> None:
        self.failed = True
        if self.record:
            self.finish(status, error=error)
        else:
            self.tell(error=one_line(error))

    def finish(self, status: Status, *, error: str = "", **found: Any) -> None:  # noqa: ANN401
        """Write the record; `found` are fields of `Record`."""
        ended = self.phase
        self.enter(Phase.WRITE)
        record = Record(
            **self.record,
            status=status,
            phase="" if status is Status.OK else ended,
            error=one_line(error),
            seconds=self.seconds,
            peak_mb=peak_mb(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            **found,
        )
        record.hardware.update(hardware())
        self.store.add(record)


def load_dataset(task: Task) -> None:
    """Materialise a dataset and note under which content hash."""
    source: DatasetSource = task.component("dataset", task.raw["dataset"])
    stream = {"seed": task.raw["seed"], "dataset": task.raw["dataset"]}
    dataset = source.load(rng=rng_of(stream, "load"))
    task.enter(Phase.WRITE)
    arrays, meta = dataset.to_arrays()
    key = task.store.put("datasets", arrays, {"kind": dataset.kind, **meta})
    task.tell(content=key)


def run_cell(task: Task) -> None:
    """Run a mechanism within its budget, settle its guarantee, keep the release."""
    subject = task.record["subject"]
    mechanism: Mechanism = task.component("mechanism", subject["mechanism"])
    budget = Budget.from_json(subject["budget"])
    dataset = task.dataset(subject["hashes"]["data"])
    task.enter(Phase.RELEASE)
    reason = mechanism.supports(dataset.schema, budget)
    if reason is not None:
        task.finish(Status.UNSUPPORTED, error=str(reason) or "It gave no reason.")
        return
    rng = rng_of(task.raw["stream"], "release")
    release = mechanism.release(dataset.for_mechanism(), budget, rng=rng)
    problem = _shape_problem(release, dataset) or _role_problem(mechanism, release)
    if problem:
        task.finish(Status.INVALID, error=problem)
        return
    guarantee = release.guarantee
    excess = None
    if guarantee.established is not Established.NONE:  # who says so is shown as not private
        excess = accounting.excess(guarantee, budget, unit=dataset.schema.unit)
    figures = accounting.settle(guarantee, delta=budget.delta, alpha=budget.alpha)
    stated = {**guarantee.to_json(), "figures": dataclasses.asdict(figures)}
    spent: dict[str, Any] = {"guarantee": stated, "budget_figures": _figures_of(budget)}
    if excess is not None:
        task.finish(Status.INVALID, error=excess, **spent)
        return
    task.enter(Phase.WRITE)
    arrays, meta = release.to_arrays()
    key = task.store.put(
        "releases",
        arrays,
        {"kind": release.kind, **meta, "guarantee": guarantee.to_json()},
    )
    info = {"release": release.info, "repairs": dataset.repairs}
    task.finish(Status.OK, release=key, info=info, **spent)


def _figures_of(budget: Budget) -> dict[str, Any]:
    if budget.notion is Notion.UNLIMITED:
        return {}
    return dataclasses.asdict(accounting.equivalents(budget))


def _role_problem(mechanism: Mechanism, release: Release) -> str:
    guarantee = release.guarantee
    spends = guarantee.established is not Established.SETTLED or guarantee.ledger
    if mechanism.role is Role.BASELINE and spends:
        return (
            "A baseline reads no protected data, so its guarantee must be settled with an empty "
            "ledger; change the role or the guarantee."
        )
    return ""


def _shape_problem(release: Release, dataset: Dataset) -> str:
    if not isinstance(release, SyntheticTables | Estimates) or release.kind != dataset.kind:
        return (
            f"The mechanism returned {type(release).__name__} for {dataset.kind}; return "
            f"SyntheticTables for user-tables and Estimates for sensor-streams."
        )
    if isinstance(release, SyntheticTables) and release.schema != dataset.schema:
        return "The release has another schema than the dataset; pass dataset.schema on."
    if isinstance(release, Estimates) and isinstance(dataset, SensorStreams):
        expected = (len(dataset.episodes(Split.TEST)), dataset.state.shape[1])
        if release.estimate.shape[1:] != expected:
            return (
                f"The estimates cover {release.estimate.shape[1:]} (episodes, steps), the test "
                f"split has {expected}."
            )
    return ""


def score_release(task: Task) -> None:
    """Score one release by every metric asked for; one that fails does not stop the next."""
    subject = task.record["subject"]
    reference = task.dataset(subject["data"])
    arrays, meta = task.store.get("releases", subject["release"])
    guarantee = Guarantee.from_json(meta["guarantee"])
    kinds = {kind.kind: kind for kind in (SyntheticTables, Estimates)}
    release = kinds[meta["kind"]].from_arrays(arrays, meta, guarantee)
    for index, record in enumerate(task.raw["records"]):
        if index:
            task.begin(record)
        with task.recorded():
            _score(task, reference, release)


def _score(task: Task, reference: Dataset, release: Release) -> None:
    subject = task.record["subject"]
    metric: Metric = task.component("metric", subject["metric"])
    task.enter(Phase.SCORE)
    rng = rng_of({**subject["stream"], "metric": subject["metric"]}, "score")
    found: dict[str, dict[str, Any]] = {}
    for score in metric.score(reference, release, rng=rng):
        problem = _score_problem(score, metric, found)
        if problem:
            task.finish(Status.INVALID, error=problem)
            return
        direction = metric.components[score.component].direction
        found[score.component] = {**dataclasses.asdict(score), "direction": direction}
    task.finish(Status.OK, scores=list(found.values()))


def _score_problem(score: object, metric: Metric, found: dict[str, dict[str, Any]]) -> str:
    if not isinstance(score, Score):
        return f"A metric yields Score, got {type(score).__name__}."
    if score.component not in metric.components:
        return unknown("component", score.component, metric.components)
    if score.component in found:
        return f"'{score.component}' was scored twice."
    scale = metric.components[score.component]
    if not (scale.lower <= score.value <= scale.upper and abs(score.value) < LARGEST):
        return (
            f"{score.component} = {score.value} lies outside the declared range "
            f"{scale.lower} to {scale.upper}, or is not finite."
        )
    return _beside_problem(score)


def _beside_problem(score: Score) -> str:
    """What is wrong with the numbers that come with a score."""
    beside: dict[str, float | None] = {"its floor": score.floor, **score.detail}
    beside |= {f"case {number}": case for number, case in enumerate(score.cases, 1)}
    for title, panel in score.panels.items():
        for line in panel.lines.values():
            beside |= {f"'{title}' at {x}": y for x, y in zip(panel.x, line, strict=True)}
    bad = [name for name, v in beside.items() if v is not None and not abs(v) < LARGEST]
    if bad:
        return f"{score.component}: {bad[0]} is not finite."
    mean = math.fsum(score.cases) / max(1, len(score.cases))
    if score.cases and not math.isclose(mean, score.value, rel_tol=1e-6, abs_tol=1e-12):
        return f"{score.component} = {score.value}, but the mean of its cases is {mean}."
    return ""


TASKS = {"load": load_dataset, "release": run_cell, "score": score_release}


def perform(raw: dict[str, Any]) -> int:
    """Do one task; an error becomes a record (or, for a dataset, a line), never a lost cell."""
    task = Task(raw)
    with task.recorded():
        TASKS[raw["task"]](task)
    return int(task.failed)


def serve(first: dict[str, Any]) -> NoReturn:
    """Import a plugin, then fork a child for each task that comes; end with the parent.

    The child leads a process group of its own, writes to its own log, and shares nothing with
    its siblings but the imports.
    """
    plugin = loader.Plugin(**first["plugin"])
    channel = first["channel"]

    def tell(**facts: int) -> None:
        os.write(channel, (json.dumps(facts) + "\n").encode())

    try:
        loader.load(plugin)
    except BaseException:  # noqa: BLE001 - a child that starts afresh will say what is wrong
        sys.exit(1)
    gc.freeze()
    tell(threads=sum(1 for _ in Path("/proc/self/task").iterdir()))
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            die_with_parent(os.getppid())
            tell(pid=os.getpid())
            log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            status = perform(task)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        _, ended = os.waitpid(child, 0)
        tell(exit=os.waitstatus_to_exitcode(ended))
    sys.exit(0)


def main() -> NoReturn:
    """Entry point of a child: read the task from standard input."""
    raw = json.loads(sys.stdin.readline())
    die_with_parent(raw["parent"])
    if "--warm" in sys.argv:
        serve(raw)
    sys.exit(perform(raw))


if __name__ == "__main__":
    main()
