"""Grids, what they choose, and their cells with their keys.

`gridfile` reads a grid, which needs no plugin. `resolve` asks the plugins whether what it names
exists and fills in default parameters; `expand` makes the cells once the datasets are known.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from panelbench import catalog
from panelbench.errors import GridError, PluginError, unknown
from panelbench.extension import Role
from panelbench.privacy import Budget, NeighboringRelation, Notion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from panelbench.loader import Plugin

KEY_LENGTH = 24
NOTIONS = {
    "epsilon": Notion.APPROXIMATE_DP,
    "b_g": Notion.RENYI_DP,
    "rho": Notion.ZERO_CONCENTRATED_DP,
}


def canonical(value: Any) -> str:  # noqa: ANN401 - JSON
    """Canonical JSON, the text that every key is a hash of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def key_of(value: Any) -> str:  # noqa: ANN401 - JSON
    """A short hash of canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:KEY_LENGTH]


def score_subject(
    release: str,
    *,
    data: str,
    metric: dict[str, Any],
    stream: dict[str, Any],
    hashes: dict[str, str],
) -> dict[str, Any]:
    """What the key of a score is a hash of: what was scored, against what, by which code."""
    return {
        "release": release,
        "data": data,
        "metric": metric,
        "stream": stream,
        "hashes": hashes,
    }


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A component and its parameters, as a grid names them or with all defaults filled in.

    Attributes:
        name: Name as given, full ("plugin/component") after `resolve`.
        params: Parameters as given, all of them after `resolve`.
        label: Name for people, or empty.
        plugin: Name of the plugin, after `resolve`.
        reads: Kind of dataset it offers, reads or scores, after `resolve`.
        role: Role of a mechanism, after `resolve`.
        files: Files of a dataset, after `resolve`.
        components: Component names of a metric, after `resolve`.
        given: Parameters as written in the grid, for labels.
        levels: Budgets a mechanism is run at; all where there are none.
        on: Labels of the datasets a mechanism is run on; all where there are none.
    """

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    plugin: str = ""
    reads: str = ""
    role: str = ""
    files: tuple[dict[str, Any], ...] = ()
    components: tuple[str, ...] = ()
    given: dict[str, Any] = field(default_factory=dict)
    levels: tuple[float, ...] = ()
    on: tuple[str, ...] = ()

    @property
    def identity(self) -> dict[str, Any]:
        """What keys and random streams see."""
        return {"name": self.name, "params": self.params}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one child process may use.

    Attributes:
        seconds: Wall-clock limit of one child.
        memory_mb: Limit on the resident memory of a child and all its descendants, in MiB.
        threads: Threads that numerical libraries in the child may start.
    """

    seconds: float = 3600.0
    memory_mb: float = 4096.0
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A question: which mechanisms on which data at which budgets, judged by which metrics."""

    name: str
    title: str
    seed: int
    repeats: int
    notion: Notion
    levels: tuple[float, ...]
    delta: float | str
    alpha: float
    relations: tuple[NeighboringRelation, ...]
    limits: Limits
    datasets: tuple[Choice, ...]
    mechanisms: tuple[Choice, ...]
    metrics: tuple[Choice, ...]

    def budgets(self, nominal_users: int | None) -> list[Budget]:
        """The budgets for a dataset with that public number of users.

        Raises:
            GridError: Where delta depends on a number that the dataset does not publish.
        """
        delta = self.delta
        if isinstance(delta, str):
            if nominal_users is None:
                raise GridError(
                    f"delta = '{delta}' needs a dataset with a public number of users; "
                    f"write a number instead, for example delta = 1e-5."
                )
            delta = nominal_users**-1.1
        stated = next(name for name, notion in NOTIONS.items() if notion is self.notion)
        return [
            Budget(
                notion=self.notion,
                relation=relation,
                delta=delta,
                alpha=self.alpha,
                **{stated: level},
            )
            for relation in self.relations
            for level in self.levels
        ]


def level_of(budget: Budget) -> float | None:
    """The number that a budget is stated by, None where it is unlimited."""
    return next((v for v in (budget.epsilon, budget.b_g, budget.rho) if v is not None), None)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One planned run of one mechanism.

    Attributes:
        dataset: Which data.
        mechanism: Which mechanism, with all parameters.
        budget: What it may spend.
        repeat: From 0.
        seed: Root seed of the grid.
        hashes: What must be the same for a record to be of use: "data" (content), "code" (of the
            mechanism's plugin), "core" (of the harness), "lock" (versions of requirements).
    """

    dataset: Choice
    mechanism: Choice
    budget: Budget
    repeat: int
    seed: int
    hashes: dict[str, str]

    @property
    def public(self) -> dict[str, Any]:
        """The part that says what the cell is, hashes left out."""
        return {
            "dataset": self.dataset.identity,
            "mechanism": self.mechanism.identity,
            "budget": self.budget.to_json(),
            "repeat": self.repeat,
            "seed": self.seed,
        }

    @property
    def key(self) -> str:
        """Name of the cell's record."""
        return key_of({**self.public, "hashes": self.hashes})

    @property
    def stream(self) -> dict[str, Any]:
        """What the cell's random stream is spawned from.

        The mechanism and the budget are left out on purpose: mechanisms that are compared on one
        repeat share their random numbers, which is what makes differences between them paired.
        """
        return {"seed": self.seed, "dataset": self.dataset.identity, "repeat": self.repeat}


def matching(choices: tuple[Choice, ...], globs: Sequence[str], kind: str) -> tuple[Choice, ...]:
    """The choices whose full or short name matches one of the globs; all where there is no glob.

    Raises:
        GridError: Where nothing matches.
    """
    if not globs:
        return choices
    kept = tuple(
        choice
        for choice in choices
        if any(
            fnmatch.fnmatch(name, glob)
            for glob in globs
            for name in (choice.name, choice.name.rsplit("/", 1)[-1])
        )
    )
    if not kept:
        raise GridError(unknown(kind, globs[0], [choice.name for choice in choices]))
    return kept


def resolve(grid: Grid, plugins: dict[str, Plugin]) -> Grid:
    """Check every name and parameter with its plugin and fill in the defaults.

    Raises:
        GridError: For an unavailable plugin, an unknown name or parameter, or a refused value.
    """
    wanted: dict[str, list[tuple[str, int, dict[str, Any]]]] = {}
    for kind, choices in _by_kind(grid).items():
        for index, choice in enumerate(choices):
            try:
                plugin, short = catalog.split_name(choice.name, kind, plugins)
            except PluginError as error:
                raise GridError(str(error)) from error
            question = {"kind": kind, "name": short, "params": choice.params}
            wanted.setdefault(plugin.name, []).append((kind, index, question))
    with ThreadPoolExecutor(max_workers=max(1, len(wanted))) as pool:
        asked = {
            name: pool.submit(catalog.ask, plugins[name], [q for _, _, q in questions])
            for name, questions in wanted.items()
        }
    resolved: dict[tuple[str, int], Choice] = {}
    for name, questions in wanted.items():
        answer = asked[name].result()
        if answer.error:
            raise GridError(f"Plugin '{name}' is unavailable: {answer.error}")
        for (kind, index, question), facts in zip(questions, answer.choices, strict=True):
            if "error" in facts:
                raise GridError(facts["error"])
            resolved[kind, index] = dataclasses.replace(
                _by_kind(grid)[kind][index],
                name=f"{name}/{question['name']}",
                plugin=name,
                params=facts["params"],
                reads=facts["reads"],
                role=facts.get("role", ""),
                files=tuple(facts.get("files", ())),
                components=tuple(facts.get("components", ())),
            )
    full = {
        kind: tuple(resolved[kind, index] for index in range(len(choices)))
        for kind, choices in _by_kind(grid).items()
    }
    offered = {dataset.reads for dataset in full["dataset"]}
    for kind in ("mechanism", "metric"):
        for choice in full[kind]:
            if choice.reads not in offered:
                raise GridError(
                    f"The {kind} '{choice.name}' reads {choice.reads}, which no dataset of this "
                    f"grid offers; add such a dataset or leave it out."
                )
    _refuse_twins(full)
    return dataclasses.replace(
        grid, datasets=full["dataset"], mechanisms=full["mechanism"], metrics=full["metric"]
    )


def _refuse_twins(full: dict[str, tuple[Choice, ...]]) -> None:
    for kind, choices in full.items():
        for index, choice in enumerate(choices):
            for other in choices[:index]:
                if choice.identity == other.identity:
                    raise GridError(
                        f"The grid names the {kind} '{choice.name}' twice with the same "
                        f"parameters, defaults filled in; leave one out."
                    )
                if label_of(choice) == label_of(other):
                    raise GridError(
                        f"Two {kind}s of the grid are called '{label_of(choice)}'; give each a "
                        f"label of its own."
                    )


def label_of(choice: Choice) -> str:
    """Name for people: the label, or the name with the parameters that the grid gave."""
    if choice.label:
        return choice.label
    given = ", ".join(f"{name}={value}" for name, value in choice.given.items())
    return f"{choice.name}({given})" if given else choice.name


def _by_kind(grid: Grid) -> dict[str, tuple[Choice, ...]]:
    return {"dataset": grid.datasets, "mechanism": grid.mechanisms, "metric": grid.metrics}


def expand(
    grid: Grid,
    contents: dict[str, tuple[str, int | None]],
    hashes: dict[str, dict[str, str]],
) -> list[Cell]:
    """All cells of a resolved grid.

    Args:
        grid: A resolved grid.
        contents: For each dataset (canonical identity) its content hash and public number of users.
        hashes: For each plugin its "code", "core" and "lock" hashes.

    Returns:
        Cells in the order of the file; each mechanism only on datasets of the kind it reads, and
        entries that spend nothing once per dataset and repeat.
    """
    cells: list[Cell] = []
    for dataset in grid.datasets:
        content, users = contents[canonical(dataset.identity)]
        for mechanism in grid.mechanisms:
            if mechanism.reads != dataset.reads:
                continue
            if mechanism.on and label_of(dataset) not in mechanism.on:
                continue
            budgets = (
                [
                    b
                    for b in grid.budgets(users)
                    if not mechanism.levels or level_of(b) in mechanism.levels
                ]
                if mechanism.role == Role.PRIVATE
                else [Budget.unlimited(relation=relation) for relation in grid.relations[:1]]
            )
            cells.extend(
                Cell(
                    dataset=dataset,
                    mechanism=mechanism,
                    budget=budget,
                    repeat=repeat,
                    seed=grid.seed,
                    hashes={"data": content, **hashes[mechanism.plugin]},
                )
                for budget in budgets
                for repeat in range(grid.repeats)
            )
    return cells
