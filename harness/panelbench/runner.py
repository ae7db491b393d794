"""Run what a plan leaves to do: many cells, each in children of its own, none ever lost."""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Protocol

from panelbench import child, lease
from panelbench.grid import Cell, Choice, key_of, label_of, level_of
from panelbench.plan import Plan, State, state_of
from panelbench.record import FAILURES, Record, Status, Store

if TYPE_CHECKING:
    from collections.abc import Collection

    from panelbench.parents import Parents
    from panelbench.progress import Progress

EXIT_OK = 0
EXIT_FAILED = 3


def short_name(cell: Cell) -> str:
    """One cell in a few words, for progress lines."""
    level = level_of(cell.budget)
    at = "" if level is None else f" at {level:g}"
    return f"{label_of(cell.mechanism)} on {label_of(cell.dataset)}{at} #{cell.repeat}"


class Listener(Protocol):
    """Who is told how cells go: `progress.Progress`, or what stands for it on another machine."""

    def begin(self, name: str) -> None:
        """A cell begins."""

    def end(self, name: str, status: Status | None) -> None:
        """A cell ended; None where it was interrupted."""

    def say(self, line: str) -> None:
        """A line for people."""


class Runner:
    """Computes the missing cells and scores of a plan.

    Attributes:
        plan: What to do.
        store: What is done.
        workers: Cells side by side.
        retry: Statuses whose cells and scores are tried once more.
        only_scores: Whether to leave mechanisms alone and score the releases that are kept.
        inline: Whether to work in this process, without limits, for debugging.
        stop: Set to end the run early; children are killed, unfinished cells stay missing.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        *,
        parents: Parents,
        workers: int,
        retry: Collection[Status] = (),
        only_scores: bool = False,
        inline: bool = False,
    ) -> None:
        self.plan = plan
        self.store = store
        self.workers = workers
        self.retry = frozenset(retry)
        self.only_scores = only_scores
        self.inline = inline
        self.stop = threading.Event()
        self._parents = parents

    def todo(self, cells: Collection[Cell]) -> list[State]:
        """The states of those cells that have something left to compute or to retry."""
        states = [state_of(self.plan, cell, self.store) for cell in cells]
        if self.only_scores:
            states = [s for s in states if s.record is not None and s.record.status is Status.OK]
        return [state for state in states if not state.done or self._wants_retry(state)]

    def _wants_retry(self, state: State) -> bool:
        records = [state.record, *(score for _, score in state.scores)]
        return any(record is not None and record.status in self.retry for record in records)

    def exit_status(self, cells: Collection[Cell]) -> int:
        """0 where every cell ended well or with an answer, 3 where one failed or is missing."""
        states = [state_of(self.plan, cell, self.store) for cell in cells]
        if self.only_scores:
            states = [s for s in states if s.record is not None and s.record.status is Status.OK]
        failed = any(
            not state.done or state.ending is None or state.ending.status in FAILURES
            for state in states
        )
        return EXIT_FAILED if failed else EXIT_OK

    def run(self, todo: list[State], progress: Progress) -> None:
        """Work through `todo`.

        Raises:
            StoreError: Where a record cannot be written; what was written stays.
        """
        with ThreadPoolExecutor(max_workers=self.workers) as pool:
            pending: set[Future[None]] = {pool.submit(self.one, s, progress) for s in todo}
            try:
                while pending:
                    finished, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                    for future in finished:
                        future.result()
            except BaseException:
                self.stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def one(self, state: State, progress: Listener) -> None:
        """Compute what is missing of one cell, unless another run holds it."""
        name = short_name(state.cell)
        expires = 2 * self.plan.grid.limits.seconds + 60
        held = lease.take(self.store.root, state.cell.key, expires=expires)
        if held is None:
            progress.say(f"{name}: another run is working on it; left to that run.")
            progress.end(name, Status.SKIPPED)
            return
        try:
            progress.begin(name)
            state = state_of(self.plan, state.cell, self.store)  # it may have been done meanwhile
            record = state.record
            if record is None or record.status in self.retry or self._lost(state):
                record = self._release(state.cell, 1 if record is None else record.attempt + 1)
            if record is not None and record.status is Status.OK and not self.stop.is_set():
                self._score(state_of(self.plan, state.cell, self.store))
            ending = state_of(self.plan, state.cell, self.store).ending
            progress.end(name, None if self.stop.is_set() or ending is None else ending.status)
            if ending is not None and ending.status in FAILURES:
                where = f" while in phase {ending.phase}" if ending.phase else ""
                progress.say(f"{name}: {ending.status}{where}: {ending.error}")
        finally:
            held.release()

    def _lost(self, state: State) -> bool:
        """Whether a release that is still to be scored is no longer in the store."""
        if state.record is None or state.record.status is not Status.OK or state.done:
            return False
        if self.store.intact("releases", state.record.release):
            return False
        self.store.drop("releases", state.record.release)
        return True

    def _release(self, cell: Cell, attempt: int) -> Record | None:
        plugin = cell.mechanism.plugin
        draft = {
            "key": cell.key,
            "attempt": attempt,
            "what": "cell",
            "subject": {**cell.public, "hashes": cell.hashes},
            **self._circumstances(plugin, f"{cell.key}-{attempt}.log"),
        }
        outcome = self._child("release", plugin, [draft], draft["log"], stream=cell.stream)
        record = self.store.latest("cell", cell.key)
        if record is not None and record.attempt == attempt:
            return record
        if outcome.interrupted or self.stop.is_set():
            return None
        return self._explain(draft, outcome)

    def _score(self, state: State) -> None:
        """Score a release by the metrics that are missing, one child a metric plugin."""
        by_plugin: dict[str, list[tuple[Choice, Record | None]]] = {}
        for metric, score in state.scores:
            if score is None or score.status in self.retry:
                by_plugin.setdefault(metric.plugin, []).append((metric, score))
        if state.record is None:
            return
        for plugin, wanted in by_plugin.items():
            drafts = []
            for metric, score in wanted:
                subject = self.plan.score_subject(state.cell, state.record.release, metric)
                key, attempt = key_of(subject), 1 if score is None else score.attempt + 1
                draft = {
                    "key": key,
                    "attempt": attempt,
                    "what": "score",
                    "subject": subject,
                    **self._circumstances(plugin, f"{key}-{attempt}.log"),
                }
                drafts.append(draft)
            self._score_with(plugin, drafts)

    def _score_with(self, plugin: str, drafts: list[dict[str, Any]]) -> None:
        while drafts and not self.stop.is_set():
            outcome = self._child("score", plugin, drafts, drafts[0]["log"])
            left = [
                draft
                for draft in drafts
                if (known := self.store.latest("score", draft["key"])) is None
                or known.attempt < draft["attempt"]
            ]
            if outcome.interrupted or self.stop.is_set():
                return
            guilty = [d for d in left if d["key"] == outcome.facts.get("key")] or left[:1]
            for draft in guilty:
                self._explain(draft, outcome)
            drafts = [draft for draft in left if draft not in guilty]

    def _child(
        self,
        task: str,
        plugin: str,
        drafts: list[dict[str, Any]],
        log: str,
        **more: Any,  # noqa: ANN401 - JSON
    ) -> child.Outcome:
        raw = {
            "task": task,
            "store": str(self.store.root),
            "plugin": dataclasses.asdict(self.plan.plugins[plugin]),
            "records": drafts,
            **more,
        }
        if self.inline and not self.plan.plugins[plugin].environment:
            return child.inline(raw)
        return child.supervise(
            raw,
            parents=self._parents,
            log=self.store.root / log,
            stop=self.stop,
        )

    def _circumstances(self, plugin: str, log: str) -> dict[str, Any]:
        return {
            "log": f"logs/{log}",
            "versions": self.plan.versions[plugin],
            "hardware": {
                "host": socket.gethostname(),
                "workers": self.workers,
                "limits": dataclasses.asdict(self.plan.grid.limits),
            },
        }

    def _explain(self, draft: dict[str, Any], outcome: child.Outcome) -> Record:
        """Write the record that a child could not write itself."""
        record = child.unwritten(draft, outcome)
        self.store.add(record)
        return self.store.latest(record.what, record.key) or record


def default_workers() -> int:
    """One cell for each core this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
