"""How far a run is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from typing import Self, TextIO

from panelbench.record import FAILURES, Status

_LINE_EVERY = 10.0
"""Seconds between plain lines; a run without news still says so in this time."""


def duration(seconds: float) -> str:
    """Seconds for people: 48s, 3m20s, 2h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def tell(stream: TextIO, text: str) -> None:
    """Print for people; where nobody reads any more, or nothing can be written, it goes nowhere.

    Work must not end because a terminal, a pager or `head` did.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class Progress:
    """Counts what ends (cells, audits) and says so on a stream; a thread keeps the clock moving."""

    def __init__(
        self, total: int, kept: int, stream: TextIO | None = None, *, noun: str = "cells"
    ) -> None:
        self.total = total
        self.kept = kept
        self.noun = noun
        self.counts: Counter[Status] = Counter()
        self._stream = sys.stderr if stream is None else stream
        self._bar = self._stream.isatty()
        self._running: dict[str, float] = {}
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._clock.join()
        self._draw(last=True)

    def say(self, line: str) -> None:
        """Print a line of its own."""
        with self._lock:
            tell(self._stream, f"\r\x1b[K{line}\n" if self._bar else f"{line}\n")

    def begin(self, name: str) -> None:
        """One begins."""
        with self._lock:
            self._running[name] = time.monotonic()

    def end(self, name: str, status: Status | None) -> None:
        """One ended; None where the run was interrupted before it could."""
        with self._lock:
            self._running.pop(name, None)
            if status is not None:
                self.counts[status] += 1

    def _tick(self) -> None:
        while not self._ended.wait(0.5 if self._bar else _LINE_EVERY):
            self._draw()

    def _draw(self, *, last: bool = False) -> None:
        with self._lock:
            done = sum(self.counts.values())
            failed = sum(self.counts[status] for status in FAILURES)
            left = self.total - self.kept - done
            elapsed = time.monotonic() - self._started
            text = f"{self.kept + done}/{self.total} {self.noun} done"
            if self.kept:
                text += f" ({self.kept} kept)"
            text += f", {failed} failed, {len(self._running)} running, {left} remaining"
            text += f", {duration(elapsed)}"
            if done and left and not last:
                text += f", about {duration(elapsed / done * left)} left"
            if self._running and not last:
                oldest = min(self._running, key=self._running.__getitem__)
                since = time.monotonic() - self._running[oldest]
                text += f"; {oldest} for {duration(since)}"
            if self._bar:
                filled = round(20 * (self.kept + done) / max(1, self.total))
                text = f"[{'#' * filled}{'.' * (20 - filled)}] {text}"[:200]
                tell(self._stream, f"\r\x1b[K{text}" + ("\n" if last else ""))
            else:
                tell(self._stream, text + "\n")
