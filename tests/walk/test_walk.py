"""The whole walk: from TOML to a leaderboard, both families in one grid, and real data."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOTH = """
repeats = 1
seed = 3
[budgets]
epsilon = [1.0, 8.0]
[limits]
seconds = 120
[[datasets]]
name = "datasets/hmm"
params = { users = 300, test_users = 100 }
[[datasets]]
name = "datasets/traffic-sim"
params = { periods = 1, minutes = 8 }
[[mechanisms]]
name = "direct"
[[mechanisms]]
name = "fusion/uniform"
[[mechanisms]]
name = "real-subsample"
params = { size = 100 }
[[metrics]]
name = "marginal-w1"
[[metrics]]
name = "mse"
"""


def rows(bench, name):
    return list(csv.DictReader((bench.store / f"{name}.csv").read_text().splitlines()))


@pytest.mark.slow
def test_one_grid_runs_both_families_on_one_budget_axis(bench):
    bench.plugins = []
    grid = bench.folder / "both.toml"
    grid.write_text(BOTH)
    bench.run(grid)
    found = rows(bench, "both")
    private = [row for row in found if row["role"] == "private"]
    assert {row["mechanism"] for row in private} == {"marginals/direct", "fusion/uniform"}
    assert {row["epsilon"] for row in private} == {"1", "8"}
    assert {row["accounting"] for row in private} == {"settled"}
    units = {row["mechanism"]: row["privacy_unit"] for row in private}
    assert units == {"marginals/direct": "user", "fusion/uniform": "sensor-trajectory"}
    assert all(float(row["b_g"]) > 0 for row in private)
    again = bench.run(grid)
    assert "5/5 cells done (5 kept)" in again.stderr


@pytest.fixture
def data(bench):
    folder = Path(os.environ.get("PANELBENCH_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "ngsim-us101-sample").is_dir():
        pytest.skip("the data directory with the real samples is not here")
    bench.plugins = []
    return folder


@pytest.mark.slow
def test_on_real_traffic_the_error_falls_with_the_budget_and_lies_between_the_references(
    bench, data
):
    text = (ROOT / "benchmarks" / "us101.toml").read_text()
    grid = bench.folder / "us101.toml"
    text = text.replace("repeats = 5", "repeats = 1")
    grid.write_text(text.replace('["add-or-remove-one", "replace-one"]', '"add-or-remove-one"'))
    some = [
        part for name in ("uniform", "prior", "nonprivate") for part in ("-m", f"fusion/{name}")
    ]
    bench("run", grid, "--store", bench.store, "--data", data, *some)
    for label in ("us101", "us101, 30 % reporting"):
        mse = [r for r in rows(bench, "us101") if r["component"] == "mse" and r["dataset"] == label]
        error = {row["mechanism"]: [] for row in mse}
        for row in mse:
            if row["mean"]:
                error[row["mechanism"]].append(float(row["mean"]))
        uniform = error["fusion/uniform"]
        assert len(uniform) == 8
        assert uniform == sorted(uniform, reverse=True)
        assert error["fusion/nonprivate"][0] < uniform[-1]
        assert uniform[0] < error["fusion/prior"][0]


@pytest.mark.slow
def test_on_real_patients_every_metric_scores_direct(bench, data):
    text = (ROOT / "benchmarks" / "physionet2012.toml").read_text()
    grid = bench.folder / "patients.toml"
    grid.write_text(text.replace("repeats = 3", "repeats = 1").replace("[0.5, 1, 2, 4, 8]", "[4]"))
    bench("run", grid, "--store", bench.store, "--data", data, "-m", "marginals/*", rc=0)
    direct = [row for row in rows(bench, "physionet2012") if row["mechanism"] == "marginals/direct"]
    assert {row["n_ok"] for row in direct} == {"1"}
    assert all(float(row["peak_mb"]) < 4096 for row in direct)
