"""What the harness itself costs: the command's start, a cell's child, a cell of a grid."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from panelbench import child
from panelbench.grid import Limits
from panelbench.loader import Plugin
from panelbench.parents import Parents
from panelbench.record import Store

FX = Path(__file__).parents[2] / "tests" / "fixtures_plugin.py"
PLUGIN = Plugin(name="fixtures-plugin", target=str(FX), is_file=True)
CELLS = 60
GRID = f"""
repeats = {CELLS}
[budgets]
epsilon = [1.0]
[[datasets]]
name = "fixtures-plugin/tiny"
[[mechanisms]]
name = "fixtures-plugin/fx-ok"
[[metrics]]
name = "fixtures-plugin/fx-gap"
"""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]])
def test_start_of_the_command_with_every_plugin_installed(benchmark, arguments):
    """At most 0.3 s."""
    command = [sys.executable, "-m", "panelbench.cli", *arguments]
    benchmark.pedantic(
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), rounds=15
    )


@pytest.mark.parametrize("warm", [True, False], ids=["forked from a warm parent", "fresh"])
def test_start_and_end_of_a_child_that_does_nothing(benchmark, tmp_path, warm):
    task = {"task": "release", "store": str(tmp_path), "records": []}
    task["plugin"] = dataclasses.asdict(PLUGIN)
    with Parents(Limits(), tmp_path / "cache", tmp_path / "logs") as parents:
        if not warm:
            parents._unsafe.add("*")

        def one():
            child.supervise(task, parents=parents, log=tmp_path / "log", stop=threading.Event())

        one()
        benchmark.pedantic(one, rounds=40 if warm else 8)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cell_of_a_grid(benchmark, tmp_path, workers):
    """Prints the wall-clock time per cell, and what is left of it without the child's own work."""
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID)
    command = [sys.executable, "-m", "panelbench.cli"]
    rest = [f"--plugin={FX}", str(grid), "--store"]
    stores = iter(tmp_path / f"store{i}" for i in range(10))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "xdg")}

    def call(*arguments):
        subprocess.run([*command, *arguments], check=True, capture_output=True, env=environment)

    def prepare():
        store = next(stores)
        call("plan", *rest, str(store))
        return (store,), {}

    def run(store):
        began = time.perf_counter()
        call("run", *rest, str(store), "--workers", str(workers))
        wall = time.perf_counter() - began
        records = [*Store(store).records("cell"), *Store(store).records("score")]
        assert len(records) == 2 * CELLS
        inside = sum(sum(record.seconds.values()) for record in records)
        outside = workers * wall - inside
        print(
            f"\n{workers} workers: {1000 * wall / CELLS:.1f} ms a cell in all, "
            f"{1000 * outside / CELLS:.1f} ms of a worker outside its children's work"
        )

    benchmark.pedantic(run, setup=prepare, rounds=3)
