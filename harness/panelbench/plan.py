"""From a grid to what has to be done: datasets materialised, hashes taken, cells made."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from panelbench import catalog, child, datafiles
from panelbench.errors import GridError, unknown
from panelbench.grid import (
    Cell,
    Choice,
    Grid,
    canonical,
    expand,
    key_of,
    label_of,
    matching,
    resolve,
    score_subject,
)
from panelbench.record import Status, write_new, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from panelbench.loader import Plugin
    from panelbench.parents import Parents
    from panelbench.record import Record, Store


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A grid whose names, parameters and data are known to be there.

    Attributes:
        grid: The resolved grid.
        plugins: Every plugin by name.
        hashes: For each plugin that the grid names: "code", "core" and "lock".
        versions: For each such plugin the versions behind its lock hash.
        contents: Content hash of each dataset, by canonical identity.
        cells: What is to be run, in the order of the file.
    """

    grid: Grid
    plugins: dict[str, Plugin]
    hashes: dict[str, dict[str, str]]
    versions: dict[str, dict[str, str]]
    contents: dict[str, str]
    cells: list[Cell]

    def metrics_for(self, cell: Cell) -> list[Choice]:
        """The metrics that apply to a cell's release."""
        return [m for m in self.grid.metrics if m.reads == cell.dataset.reads]

    def score_subject(self, cell: Cell, release: str, metric: Choice) -> dict[str, Any]:
        """What a score's key is a hash of."""
        return score_subject(
            release,
            data=cell.hashes["data"],
            metric=metric.identity,
            stream=cell.stream,
            hashes=self.hashes[metric.plugin],
        )

    def to_json(self) -> dict[str, Any]:
        """What a leaderboard needs to know of the plan, JSON-able."""
        return {
            "grid": effective(self.grid),
            "cells": [
                {
                    "key": cell.key,
                    "label": label_of(cell.mechanism),
                    "dataset_label": label_of(cell.dataset),
                    "role": cell.mechanism.role,
                    "reads": cell.dataset.reads,
                    "data": cell.hashes["data"],
                    "stream": cell.stream,
                    **cell.public,
                }
                for cell in self.cells
            ],
            "metrics": [
                {
                    "identity": metric.identity,
                    "label": label_of(metric),
                    "reads": metric.reads,
                    "components": metric.components,
                    "hashes": self.hashes[metric.plugin],
                }
                for metric in self.grid.metrics
            ],
            "versions": {name: self.plugins[name].version for name in self.hashes},
        }


def effective(grid: Grid) -> dict[str, Any]:
    """The grid with everything filled in, and its hash."""
    raw = json.loads(json.dumps(dataclasses.asdict(grid)))
    return {**raw, "hash": key_of(raw)}


def file_hashes(choice: Choice) -> dict[str, str]:
    """Hashes of the files a dataset reads.

    Raises:
        GridError: Where one is missing, saying how to get it, or is not the one that was declared.
    """
    found: dict[str, str] = {}
    for file in choice.files:
        path = datafiles.find(file)
        if path is not None:
            found[file["path"]] = own = datafiles.sha256_of(path)
            if file["sha256"] not in (None, own):
                raise GridError(
                    f"'{path}' has the sha256 {own}, the dataset '{choice.name}' expects "
                    f"{file['sha256']}; get it again."
                )
        elif file["required"]:
            folder = datafiles.directory()
            where = f"is not in '{folder}'" if folder else "no data directory is named (--data)"
            raise GridError(
                f"The dataset '{choice.name}' needs the file '{file['path']}', but "
                f"{'it ' * bool(folder)}{where}. {file['instructions']}"
            )
    return found


def chosen(choices: tuple[Choice, ...], globs: Sequence[str], kind: str) -> tuple[Choice, ...]:
    """The choices whose label, name or short name fits one of the globs; all where there are none.

    Raises:
        GridError: Where a glob fits nothing.
    """
    kept: list[Choice] = []
    for glob in globs:
        exact = [choice for choice in choices if label_of(choice) == glob]
        labelled = exact or [c for c in choices if fnmatch.fnmatch(label_of(c), glob)]
        try:
            kept += labelled or matching(choices, [glob], kind)
        except GridError as error:
            raise GridError(
                unknown(kind, glob, [label_of(choice) for choice in choices])
            ) from error
    return tuple(choice for choice in choices if choice in kept) if globs else choices


def make_plan(
    grid: Grid,
    plugins: dict[str, Plugin],
    store: Store,
    *,
    parents: Parents,
    say: Callable[[str], None],
    datasets: Sequence[str] = (),
    mechanisms: Sequence[str] = (),
) -> Plan:
    """Resolve a grid, materialise its datasets where they are not yet, and make its cells.

    Args:
        grid: As read.
        plugins: As found.
        store: Where datasets go.
        parents: Where children come from.
        say: Told what takes time.
        datasets: Globs of the datasets to keep, as `chosen` reads them.
        mechanisms: Globs of those that will be run now; the plan holds all, but a glob that fits
            none is found out before anything is prepared.

    Raises:
        GridError: Where a name, a parameter, a file or a dataset is at fault.
        StoreError: Where a dataset cannot be kept.
    """
    grid = resolve(grid, plugins)
    chosen(grid.mechanisms, mechanisms, "mechanism")
    kept = chosen(grid.datasets, datasets, "dataset")
    grid = dataclasses.replace(grid, datasets=kept)
    names = sorted({c.plugin for c in (*grid.datasets, *grid.mechanisms, *grid.metrics)})
    known = {name: catalog.identity(plugins[name]) for name in names}
    versions = {name: identity.versions for name, identity in known.items()}
    hashes = {
        name: {
            "code": identity.code[:16],
            "core": identity.core[:16],
            "lock": key_of(identity.versions)[:16],
        }
        for name, identity in known.items()
    }
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = [
            pool.submit(
                _materialise,
                choice,
                plugins[choice.plugin],
                hashes=hashes[choice.plugin],
                grid=grid,
                store=store,
                parents=parents,
                say=say,
                stop=stop,
            )
            for choice in grid.datasets
        ]
        try:
            contents = dict(job.result() for job in jobs)
        except BaseException:
            stop.set()
            raise
    return Plan(
        grid=grid,
        plugins=plugins,
        hashes=hashes,
        versions=versions,
        contents={identity: content for identity, (content, _) in contents.items()},
        cells=expand(grid, contents, hashes),
    )


def _materialise(
    choice: Choice,
    plugin: Plugin,
    *,
    hashes: dict[str, str],
    grid: Grid,
    store: Store,
    parents: Parents,
    say: Callable[[str], None],
    stop: threading.Event,
) -> tuple[str, tuple[str, int | None]]:
    identity = {
        "dataset": choice.identity,
        "seed": grid.seed,
        "files": file_hashes(choice),
        "hashes": hashes,
    }
    note = store.root / "sources" / f"{key_of(identity)}.json"
    content = _content(note)
    meta = None if content is None else store.meta("datasets", content)
    if content is None or meta is None or not store.intact("datasets", content):
        with writing(note):
            note.unlink(missing_ok=True)
        if content is not None:
            store.drop("datasets", content)
        say(f"Preparing dataset {label_of(choice)}")
        log = store.root / "logs" / f"dataset-{key_of(identity)}.log"
        outcome = child.supervise(
            {
                "task": "load",
                "store": str(store.root),
                "plugin": dataclasses.asdict(plugin),
                "dataset": choice.identity,
                "seed": grid.seed,
                "records": [],
            },
            parents=parents,
            log=log,
            stop=stop,
        )
        content = outcome.facts.get("content")
        if outcome.status is not Status.OK or content is None:
            reason = outcome.facts.get("error") or outcome.error
            if not reason:
                with writing(log), log.open("a", encoding="utf-8") as stream:
                    stream.write("It gave no data.\n")  # on a full disk no child can say why
                reason = f"it gave no data; see {log}"
            raise GridError(f"The dataset '{label_of(choice)}' could not be prepared: {reason}")
        with writing(note):
            write_new(note, json.dumps({"content": content, **identity}))
        meta = store.meta("datasets", content)
    users = None if meta is None else meta["schema"]["nominal_users"]
    return canonical(choice.identity), (content, users)


def _content(note: Path) -> str | None:
    try:
        found: str = json.loads(note.read_text(encoding="utf-8"))["content"]
    except (OSError, ValueError, KeyError):
        return None
    return found


@dataclass(frozen=True, kw_only=True)
class State:
    """What the store holds of one planned cell.

    Attributes:
        cell: The cell.
        record: Its newest record, or None.
        scores: For each metric that applies, its newest record, or None.
    """

    cell: Cell
    record: Record | None
    scores: list[tuple[Choice, Record | None]]

    @property
    def done(self) -> bool:
        """Whether nothing is left to compute."""
        return self.record is not None and (
            self.record.status is not Status.OK or all(score for _, score in self.scores)
        )

    @property
    def ending(self) -> Record | None:
        """The record that decides the cell's status: its own, or that of a score not ok."""
        if self.record is None or self.record.status is not Status.OK:
            return self.record
        bad = [s for _, s in self.scores if s is not None and s.status is not Status.OK]
        return bad[0] if bad else self.record


def state_of(plan: Plan, cell: Cell, store: Store) -> State:
    """Look a cell and its scores up in the store."""
    record = store.latest("cell", cell.key)
    scores: list[tuple[Choice, Record | None]] = []
    if record is not None and record.status is Status.OK:
        for metric in plan.metrics_for(cell):
            key = key_of(plan.score_subject(cell, record.release, metric))
            scores.append((metric, store.latest("score", key)))
    return State(cell=cell, record=record, scores=scores)
