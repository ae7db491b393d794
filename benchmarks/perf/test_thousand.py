"""A grid of a thousand cells: time a cell, memory of the parent, and what a second worker brings.

Run with `pytest benchmarks/perf/test_thousand.py -s`; some minutes on two idle cores. Each cell
works for a tenth of a second: what is above it is the harness's own, the child's start included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from panelbench.record import Store

FX = Path(__file__).parents[2] / "tests" / "fixtures_plugin.py"
WORK = 0.1
GRID = f"""
repeats = 1000
[budgets]
epsilon = [1.0]
[[datasets]]
name = "fixtures-plugin/tiny"
[[mechanisms]]
name = "fixtures-plugin/fx-busy"
params = {{ seconds = {WORK} }}
"""
GRID += '[[metrics]]\nname = "fixtures-plugin/fx-gap"\n'


def peak_mb(process):
    """Peak resident memory of a running process, MiB."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(x.split()[1]) / 1024 for x in status.splitlines() if "VmHWM" in x), 0.0)


def measured(folder, *arguments):
    """Wall-clock seconds and the parent's peak memory of a run of the grid."""
    grid = folder / "grid.toml"
    grid.write_text(GRID)
    store = folder / "-".join(["store", *(a.strip("-").replace(":", "") for a in arguments[:2])])
    command = [sys.executable, "-m", "panelbench.cli", "run", f"--plugin={FX}", str(grid)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "xdg")}
    began, peak = time.perf_counter(), 0.0
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--store", str(store), *arguments],
            env=environment, stdout=subprocess.DEVNULL, stderr=log,
        )  # fmt: skip
        while process.poll() is None:
            peak = max(peak, peak_mb(process))
            time.sleep(0.2)
    assert process.returncode == 0, (folder / "log").read_text()
    wall = time.perf_counter() - began
    assert sum(1 for _ in Store(store).records("cell")) == 1000
    return wall, peak


@pytest.fixture
def scheduler():
    """A scheduler with two workers of one thread, without dask's profiler (docs/workers.md)."""
    import dask  # noqa: PLC0415 - only where it is asked for
    from distributed import LocalCluster  # noqa: PLC0415 - only where it is asked for

    quiet = dask.config.set({"distributed.worker.profile.enabled": False})
    with quiet, LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


def test_a_thousand_cells_at_one_and_two_workers_and_under_dask(tmp_path, scheduler):
    """Prints; efficiency is the time at one worker over twice that at two."""
    runs = {
        "one worker": ["--workers", "1"],
        "two workers": ["--workers", "2"],
        "dask, two workers": ["--engine", "dask", "--scheduler", scheduler],
    }
    walls = {}
    for name, arguments in runs.items():
        walls[name], peak = measured(tmp_path, *arguments)
        workers = 1 if name == "one worker" else 2
        above = workers * walls[name] - 1000 * WORK
        print(
            f"\n{name}: {walls[name]:.1f} s, {above:.1f} ms a cell of a worker above its work, "
            f"parent {peak:.0f} MB, efficiency "
            f"{walls['one worker'] / (workers * walls[name]):.2f}"
        )
