"""Start one child process, hold it to its limits, and say how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from panelbench.parents import POLL_SECONDS, wait_for
from panelbench.record import Phase, Record, Status, writing

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from panelbench.grid import Limits
    from panelbench.parents import Parent, Parents

MOST_LOG_MB = 64
"""What a child may print; a longer log ends it, before it fills the disk."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a child ended.

    Attributes:
        status: `OK` if it ended by itself with exit status 0 or 1; what it wrote says the rest.
        error: One sentence, where the status is not ok.
        facts: The last value of everything the child told: "phase", "key", "content", "error".
        seconds: Wall-clock seconds since its clock last started.
        peak_mb: Peak resident memory of the child and its descendants, as polled.
        interrupted: Whether it was stopped because the run was.
    """

    status: Status
    error: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    peak_mb: float = 0.0
    interrupted: bool = False


def supervise(
    task: dict[str, Any], *, parents: Parents, log: Path, stop: threading.Event
) -> Outcome:
    """Run a task of `worker` in a child of its own and wait for its end.

    The child leads a process group, which is killed as a whole when a limit is reached, when the
    run is stopped, and also after a normal end, so that nothing it started stays behind. The
    clock starts again with each record the child begins.

    Args:
        task: What the child reads.
        parents: Where it comes from, and what it may use.
        log: File that its output is added to.
        stop: Set when the run is to end.
    """
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
    parent = parents.take(task["plugin"], stop)
    warm = parent is not None
    if parent is None:
        parent = parents.make(task["plugin"], log, warm=False)
    watch = _Watch(parent, parents.limits, log, stop)
    try:
        parent.give({**task, "log": str(log) if warm else None})
        verdict = watch.until_the_end()
        ended = time.monotonic()
    finally:
        watch.kill()
        if warm and "exit" in parent.facts:
            parents.put_back(task["plugin"], parent)
        else:
            parent.close()
    status, error = verdict or _ending(watch.exit_status(), log)
    return Outcome(
        status=status,
        error=error,
        facts=dict(parent.facts),
        seconds=round(ended - parent.began, 3),
        peak_mb=round(watch.peak / 2**20, 1),
        interrupted=stop.is_set() and verdict is not None,
    )


def inline(task: dict[str, Any]) -> Outcome:
    """Do a task of `worker` in this process, without limits."""
    from panelbench import worker  # noqa: PLC0415 - the parent imports numpy for --inline only

    reading, writing = os.pipe()
    try:
        worker.perform({**task, "channel": writing, "parent": os.getppid()})
    finally:
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            told = [json.loads(line) for line in pipe]
    return Outcome(status=Status.OK, facts={k: v for line in told for k, v in line.items()})


class _Watch:
    """A running child: what it uses, and how it ends."""

    def __init__(self, parent: Parent, limits: Limits, log: Path, stop: threading.Event) -> None:
        self.parent = parent
        self.limits = limits
        self.log = log
        self.stop = stop
        self.peak = 0
        self._descendants: set[psutil.Process] = set()

    def exit_status(self) -> int | None:
        """The exit status of the child, negative for a signal, or None while it runs."""
        if "exit" in self.parent.facts:
            return int(self.parent.facts["exit"])
        return self.parent.process.poll()

    def until_the_end(self) -> tuple[Status, str] | None:
        """Wait; None for an end of its own, otherwise the limit that was reached."""
        while self.exit_status() is None:
            if self.stop.is_set():
                return Status.KILLED, "The run was interrupted."
            if time.monotonic() - self.parent.began > self.limits.seconds:
                return Status.TIMEOUT, f"It ran past its {self.limits.seconds:g} seconds."
            if self._memory() > self.limits.memory_mb * 2**20:
                return Status.OOM, f"It used more than {self.limits.memory_mb:g} MB."
            if self._printed() > MOST_LOG_MB * 2**20:
                return Status.FAILED, f"It printed more than {MOST_LOG_MB} MB; have it say less."
            wait_for(self.parent.reading, POLL_SECONDS)
            self.parent.listen()
        self.parent.listen()
        return None

    def _printed(self) -> int:
        with contextlib.suppress(OSError):
            return self.log.stat().st_size
        return 0

    def _memory(self) -> int:
        used = 0
        for process in self._tree():
            try:
                used += process.memory_info().rss
            except psutil.Error:
                continue  # it ended between the listing and the look
        self.peak = max(self.peak, used)
        return used

    def _tree(self) -> Iterator[psutil.Process]:
        if "pid" not in self.parent.facts:
            return  # it is not born yet
        try:
            child = psutil.Process(self.parent.facts["pid"])
            self._descendants.update(_descendants_of(child))
            yield child
        except psutil.Error:
            return
        yield from self._descendants

    def kill(self) -> None:
        """Kill the child's process group, and descendants that left it."""
        if "pid" in self.parent.facts:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.parent.facts["pid"], signal.SIGKILL)
        for process in self._descendants:
            with contextlib.suppress(psutil.Error):
                process.kill()


def _descendants_of(process: psutil.Process) -> list[psutil.Process]:
    """Everything it started that still belongs to it.

    From the kernel's list of each thread's children where there is one: psutil reads every process
    of the machine for the same answer.
    """
    try:
        threads = list(Path(f"/proc/{process.pid}/task").iterdir())
        numbers = " ".join((thread / "children").read_text() for thread in threads).split()
    except OSError:
        return process.children(recursive=True)
    found = []
    for number in numbers:
        with contextlib.suppress(psutil.Error):  # it ended between the list and the look
            child = psutil.Process(int(number))
            found += [child, *_descendants_of(child)]
    return found


def _ending(code: int | None, log: Path) -> tuple[Status, str]:
    if code in (0, 1):
        return Status.OK, ""
    if code is not None and code < 0:
        name = signal.strsignal(-code) or "unknown"
        return Status.KILLED, f"It was killed by signal {-code} ({name})."
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = f": {lines[-1][:500]}" if lines else ""
    return Status.FAILED, f"It ended with exit status {code}{last}"


def unwritten(draft: dict[str, Any], outcome: Outcome) -> Record:
    """The record of a task whose child could not write it.

    Args:
        draft: Fields of it that the child was given.
        outcome: How the child ended.
    """
    ended_well = outcome.status is Status.OK
    return Record(
        **draft,
        status=Status.FAILED if ended_well else outcome.status,
        phase=Phase.WRITE if ended_well else str(outcome.facts.get("phase", Phase.LOAD)),
        error="The child ended without writing its record; see the log."
        if ended_well
        else outcome.error,
        seconds={"total": outcome.seconds},
        peak_mb=outcome.peak_mb,
    )
