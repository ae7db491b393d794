"""Start one child process, hold it to its limits, and say how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import psutil

from panelbench import environments
from panelbench.loader import Plugin
from panelbench.record import Phase, Record, Status, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.grid import Limits

_POLL_SECONDS = 0.1
MOST_LOG_MB = 64
"""What a child may print; a longer log ends it, before it fills the disk."""
_THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
)


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


def environment(limits: Limits, cache: Path, *, foreign: bool) -> dict[str, str]:
    """The environment of a child: threads bounded, hashing fixed, told where to cache."""
    threads = str(limits.threads)
    return {
        **environments.surroundings(foreign=foreign),
        **dict.fromkeys(_THREAD_VARIABLES, threads),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "JE_ARROW_MALLOC_CONF": "background_thread:false",  # else no parent is safe to fork from
        "PANELBENCH_CACHE": str(cache),
        "NUMBA_CACHE_DIR": str(cache / "numba"),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


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


class Parent:
    """A process of `worker`: one that does a single task, or a warm one that forks a child a task.

    A warm one has imported its plugin already. Its children start in milliseconds, and are as
    separate from each other as processes are.
    """

    def __init__(
        self,
        plugin: Plugin,
        limits: Limits,
        cache: Path,
        log: Path,
        *,
        warm: bool,
        module: str = "worker",
    ) -> None:
        self.facts: dict[str, Any] = {}
        self.began = time.monotonic()
        self._buffer = b""
        self.reading, self._writing = os.pipe()
        os.set_blocking(self.reading, False)
        python = environments.python_for(plugin)
        with writing(log):
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [python, "-m", f"panelbench.{module}", *(["--warm"] if warm else [])],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[self._writing],
                start_new_session=True,
                env=environment(limits, cache, foreign=bool(plugin.environment)),
            )
        self.facts["pid"] = self.process.pid

    def give(self, task: dict[str, Any]) -> None:
        """Hand a task over; what an earlier one told is forgotten."""
        self.facts = {} if task.get("log") else {"pid": self.process.pid}
        self.began = time.monotonic()
        line = json.dumps({**task, "channel": self._writing, "parent": os.getpid()})
        pipe: IO[bytes] = self.process.stdin  # type: ignore[assignment] # a pipe was asked for
        with contextlib.suppress(BrokenPipeError):  # it may have died; its exit status says why
            pipe.write(line.encode() + b"\n")
            pipe.flush()

    def listen(self) -> None:
        """Take in what was told since the last time."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.reading, 65536):
                self._buffer += chunk
                *lines, self._buffer = self._buffer.split(b"\n")
                for line in lines:
                    try:
                        told = dict(json.loads(line))
                    except (ValueError, TypeError):
                        continue  # the plugin wrote into the pipe
                    self.facts.update(told)
                    if "key" in told:
                        self.began = time.monotonic()

    def close(self) -> None:
        """End it, with all that is left in its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.process.wait()
        os.close(self._writing)
        os.close(self.reading)


class Parents:
    """Warm parents, some for each plugin, for as many children at once as there are threads.

    Use it as a context: all of them end with it. A parent that has more than one thread after
    its imports is not forked from: its plugin's children start afresh, as do all where the system
    is not Linux.

    Attributes:
        limits: What one child may use.
        cache: Where libraries cache what they compile.
        module: The harness module that children run.
    """

    def __init__(self, limits: Limits, cache: Path, logs: Path, *, module: str = "worker") -> None:
        self.limits = limits
        self._module = module
        self.cache = cache
        self._logs = logs
        self._idle: dict[str, list[Parent]] = {}
        self._unsafe: set[str] = set() if sys.platform == "linux" else {"*"}
        self._lock = threading.Lock()
        self._starter = ThreadPoolExecutor(max_workers=1)

    def make(self, plugin: dict[str, Any], log: Path, *, warm: bool) -> Parent:
        """Start a process of `worker` with the interpreter that the plugin needs.

        Always from one and the same thread: Linux ends a child "with its parent" when the thread
        that started it ends.
        """
        start = (Plugin(**plugin), self.limits, self.cache, log)
        return self._starter.submit(Parent, *start, warm=warm, module=self._module).result()

    def take(self, plugin: dict[str, Any], stop: threading.Event) -> Parent | None:
        """A warm parent for a plugin, or None where its children must start afresh.

        Gives up where `stop` is set meanwhile.
        """
        name = plugin["name"]
        with self._lock:
            if self._unsafe & {name, "*"}:
                return None
            while idle := self._idle.get(name):
                parent = idle.pop()
                if parent.process.poll() is None:
                    return parent
                parent.close()
        parent = self.make(plugin, self._logs / f"parent-{name}.log", warm=True)
        parent.give({"plugin": plugin})
        while "threads" not in parent.facts and parent.process.poll() is None:
            if stop.is_set() or time.monotonic() - parent.began > self.limits.seconds:
                break
            _wait_for(parent.reading, _POLL_SECONDS)
            parent.listen()
        if parent.facts.get("threads") == 1:
            return parent
        parent.close()
        with self._lock:
            self._unsafe.add(name)
        return None

    def put_back(self, plugin: dict[str, Any], parent: Parent) -> None:
        """Keep a parent for the next child."""
        with self._lock:
            self._idle.setdefault(plugin["name"], []).append(parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for idle in self._idle.values():
                while idle:
                    idle.pop().close()
        self._starter.shutdown()


def _wait_for(reading: int, seconds: float) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        selector.select(seconds)


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
            _wait_for(self.parent.reading, _POLL_SECONDS)
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
