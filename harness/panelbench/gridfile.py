"""Read and check a grid file."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from panelbench.errors import BudgetError, GridError, unknown
from panelbench.grid import NOTIONS, Choice, Grid, Limits, canonical, label_of
from panelbench.privacy import NeighboringRelation

if TYPE_CHECKING:
    from pathlib import Path

_TABLES = {
    "grid": (
        *("name", "title", "seed", "repeats", "budgets", "limits"),
        *("datasets", "mechanisms", "metrics"),
    ),
    "budgets": ("epsilon", "b_g", "rho", "delta", "alpha", "relation"),
    "limits": ("seconds", "memory_mb", "threads"),
    "datasets": ("name", "label", "params"),
    "mechanisms": ("name", "label", "params", "budgets", "datasets"),
    "metrics": ("name", "label", "params"),
}


def _table(raw: Any, which: str, where: str) -> dict[str, Any]:  # noqa: ANN401 - TOML
    if not isinstance(raw, dict):
        raise GridError(f"{where} must be a table, got {raw!r}.")
    for name in raw:
        if name not in _TABLES[which]:
            raise GridError(f"{where}: {unknown('key', name, _TABLES[which])}")
    return raw


def _number(
    raw: Any,  # noqa: ANN401 - TOML
    where: str,
    *,
    least: float,
    most: float = 1e9,
    whole: bool = False,
) -> float:
    right = isinstance(raw, int) if whole else isinstance(raw, int | float)
    if not right or isinstance(raw, bool) or not least <= raw <= most:
        kind = "whole number" if whole else "number"
        raise GridError(f"{where} must be a {kind} from {least:g} to {most:g}, got {raw!r:.60}.")
    return raw  # type: ignore[no-any-return] # checked above


def _choices(raw: Any, where: str) -> tuple[Choice, ...]:  # noqa: ANN401 - TOML
    if not isinstance(raw, list) or not raw:
        raise GridError(f"A grid needs at least one [[{where}]] table with a name.")
    choices: list[Choice] = []
    for entry in raw:
        table = _table(entry, where, f"[[{where}]]")
        if not isinstance(table.get("name"), str):
            raise GridError(f"[[{where}]] needs a name, got {table!r}.")
        params = table.get("params", {})
        if not isinstance(params, dict):
            raise GridError(f"[[{where}]] {table['name']}: params must be a table.")
        try:
            canonical(params)
        except (TypeError, ValueError) as error:
            raise GridError(f"[[{where}]] {table['name']}: params: {error}.") from error
        for only, kind in (("budgets", int | float), ("datasets", str)):
            wanted = table.get(only, [])
            if not isinstance(wanted, list) or not all(isinstance(v, kind) for v in wanted):
                raise GridError(
                    f"[[{where}]] {table['name']}: {only} must be a list of those it runs at, got "
                    f"{wanted!r:.60}."
                )
        choice = Choice(
            name=table["name"],
            params=params,
            given=params,
            label=str(table.get("label", "")),
            levels=tuple(float(level) for level in table.get("budgets", [])),
            on=tuple(table.get("datasets", [])),
        )
        if any(choice.identity == other.identity for other in choices):
            raise GridError(f"[[{where}]] names '{choice.name}' twice with the same params.")
        choices.append(choice)
    return tuple(choices)


def read(path: Path) -> Grid:
    """Read and check a grid file.

    Raises:
        GridError: In one sentence, naming the file.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GridError(f"The grid file '{path}' cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GridError(f"The grid file '{path}' is not valid TOML: {error}.") from error
    try:
        return _parse(raw, path.stem)
    except (GridError, BudgetError) as error:
        raise GridError(f"{path.name}: {error}") from error


def _parse(raw: dict[str, Any], stem: str) -> Grid:
    table = _table(raw, "grid", "The grid")
    budgets = _table(table.get("budgets", {}), "budgets", "[budgets]")
    axes = [axis for axis in NOTIONS if axis in budgets]
    if len(axes) != 1:
        raise GridError("[budgets] needs exactly one of epsilon, b_g and rho, a list of numbers.")
    levels = budgets[axes[0]]
    if not isinstance(levels, list) or not levels:
        raise GridError(f"[budgets] {axes[0]} must be a list of numbers, got {levels!r}.")
    delta = budgets.get("delta", 1e-5)
    if delta != "n^-1.1":
        _number(delta, "[budgets] delta, where it is not 'n^-1.1',", least=0)
    relations = budgets.get("relation", NeighboringRelation.ADD_OR_REMOVE_ONE.value)
    relations = relations if isinstance(relations, list) else [relations]
    if not relations:
        raise GridError("[budgets] relation must name at least one relation.")
    for relation in relations:
        if relation not in list(NeighboringRelation):
            raise GridError(unknown("relation", str(relation), list(NeighboringRelation)))
    limits = _table(table.get("limits", {}), "limits", "[limits]")
    for name, value in limits.items():
        whole = name == "threads"
        _number(value, f"[limits] {name}", least=1 if whole else 0.001, whole=whole)
    name = str(table.get("name", stem))
    if not 1 <= len(name) <= 80 or set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789_-"):
        raise GridError(f"name must hold up to 80 of a-z, 0-9, '-' and '_', got '{name:.90}'.")
    repeats = _number(table.get("repeats", 1), "repeats", least=1, most=10_000, whole=True)
    steps = [float(_number(v, f"[budgets] {axes[0]}", least=0, most=1e4)) for v in levels]
    grid = Grid(
        name=name,
        title=str(table.get("title", "")),
        seed=int(_number(table.get("seed", 0), "seed", least=0, whole=True)),
        repeats=int(repeats),
        notion=NOTIONS[axes[0]],
        levels=tuple(sorted(steps)),
        delta=delta,
        alpha=float(_number(budgets.get("alpha", 2.0), "[budgets] alpha", least=1)),
        relations=tuple(NeighboringRelation(relation) for relation in relations),
        limits=Limits(**limits),
        datasets=_choices(table.get("datasets"), "datasets"),
        mechanisms=_choices(table.get("mechanisms"), "mechanisms"),
        metrics=_choices(table.get("metrics"), "metrics"),
    )
    _check_only(grid)
    budgets_made = grid.budgets(1000)  # budgets check themselves at birth
    if len(set(budgets_made)) < len(budgets_made):
        raise GridError("[budgets] states one budget twice; leave the second one out.")
    return grid


def _check_only(grid: Grid) -> None:
    """What a mechanism is confined to must be there."""
    labels = [label_of(dataset) for dataset in grid.datasets]
    for mechanism in grid.mechanisms:
        for level in mechanism.levels:
            if level not in grid.levels:
                raise GridError(
                    f"[[mechanisms]] {mechanism.name}: the budget {level:g} is none of the grid's, "
                    f"{', '.join(f'{known:g}' for known in grid.levels)}."
                )
        for label in mechanism.on:
            if label not in labels:
                raise GridError(
                    f"[[mechanisms]] {mechanism.name}: {unknown('dataset', label, labels)}"
                )
