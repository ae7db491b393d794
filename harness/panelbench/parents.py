"""Processes that children come from: fresh ones, and warm ones that have imported a plugin."""

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
from typing import IO, TYPE_CHECKING, Any, Self

from panelbench import environments
from panelbench.loader import Plugin
from panelbench.record import writing

if TYPE_CHECKING:
    from pathlib import Path

    from panelbench.grid import Limits

POLL_SECONDS = 0.1
_THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
)


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
            wait_for(parent.reading, POLL_SECONDS)
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


def wait_for(reading: int, seconds: float) -> None:
    """Until there is something to read, or the time is up."""
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        selector.select(seconds)
