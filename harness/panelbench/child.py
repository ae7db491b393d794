"""Start one child process, hold it to its limits, and say how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import psutil

from panelbench.record import Phase, Status

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

    from panelbench.grid import Limits

_POLL_SECONDS = 0.1
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
        seconds: Wall-clock seconds from start to end.
        peak_mb: Peak resident memory of the child and its descendants, as polled.
        interrupted: Whether it was stopped because the run was.
    """

    status: Status
    error: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    peak_mb: float = 0.0
    interrupted: bool = False


def environment(limits: Limits, cache: Path) -> dict[str, str]:
    """The environment of a child: threads bounded, hashing fixed, compilers told where to cache."""
    threads = str(limits.threads)
    return {
        **os.environ,
        **dict.fromkeys(_THREAD_VARIABLES, threads),
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "NUMBA_CACHE_DIR": str(cache / "numba"),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def supervise(
    task: dict[str, Any],
    *,
    limits: Limits,
    log: Path,
    cache: Path,
    stop: threading.Event,
) -> Outcome:
    """Run a task of `worker` in a child of its own and wait for its end.

    The child leads a process group, which is killed as a whole when a limit is reached, when the
    run is stopped, and also after a normal end, so that nothing it started stays behind. The
    clock starts again with each record the child begins.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    started = time.monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "panelbench.worker"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=[writing],
            start_new_session=True,
            env=environment(limits, cache),
        )
    os.close(writing)
    watch = _Watch(process, reading, limits, stop)
    try:
        message = json.dumps({**task, "channel": writing, "parent": os.getpid()}).encode()
        pipe: IO[bytes] = process.stdin  # type: ignore[assignment] # a pipe was asked for
        with contextlib.suppress(BrokenPipeError), pipe:  # it may die before reading
            pipe.write(message)
        verdict = watch.until_the_end()
    finally:
        watch.kill()
        process.wait()
        os.close(reading)
    status, error = verdict or _ending(process.returncode, log)
    return Outcome(
        status=status,
        error=error,
        facts=watch.facts,
        seconds=round(time.monotonic() - started, 3),
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
    """A running child, what it told, and what it used."""

    def __init__(
        self, process: subprocess.Popen[bytes], reading: int, limits: Limits, stop: threading.Event
    ) -> None:
        self.process = process
        self.reading = reading
        self.limits = limits
        self.stop = stop
        self.facts: dict[str, str] = {}
        self.peak = 0
        self._buffer = b""
        self._descendants: set[psutil.Process] = set()
        self._clock = time.monotonic()

    def until_the_end(self) -> tuple[Status, str] | None:
        """Wait; None for an end of its own, otherwise the limit that was reached."""
        os.set_blocking(self.reading, False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.reading, selectors.EVENT_READ)
            while self.process.poll() is None:
                if self.stop.is_set():
                    return Status.KILLED, "The run was interrupted."
                if time.monotonic() - self._clock > self.limits.seconds:
                    return Status.TIMEOUT, f"It ran past its {self.limits.seconds:g} seconds."
                if self._memory() > self.limits.memory_mb * 2**20:
                    return Status.OOM, f"It used more than {self.limits.memory_mb:g} MB."
                if selector.get_map():
                    if selector.select(_POLL_SECONDS) and not self._listen():
                        selector.unregister(self.reading)
                else:
                    time.sleep(_POLL_SECONDS / 10)
        self._listen()
        return None

    def _listen(self) -> bool:
        """Read what the child told; False once it has closed the pipe."""
        try:
            while chunk := os.read(self.reading, 65536):
                self._buffer += chunk
                *lines, self._buffer = self._buffer.split(b"\n")
                for line in lines:
                    told = json.loads(line)
                    self.facts.update(told)
                    if "key" in told:
                        self._clock = time.monotonic()
        except BlockingIOError:
            return True
        return False

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
        try:
            child = psutil.Process(self.process.pid)
            self._descendants.update(child.children(recursive=True))
            yield child
        except psutil.Error:
            return
        yield from self._descendants

    def kill(self) -> None:
        """Kill the child's process group, and descendants that left it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in self._descendants:
            try:
                process.kill()
            except psutil.Error:
                continue  # it is gone already


def _ending(code: int, log: Path) -> tuple[Status, str]:
    if code in (0, 1):
        return Status.OK, ""
    if code < 0:
        name = signal.Signals(-code).name
        return Status.KILLED, f"It was killed by signal {-code} ({name})."
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = f": {lines[-1][:500]}" if lines else ""
    return Status.FAILED, f"It ended with exit status {code}{last}"


def phase_of(outcome: Outcome) -> str:
    """The phase a child was in when it ended."""
    return outcome.facts.get("phase", Phase.LOAD)
