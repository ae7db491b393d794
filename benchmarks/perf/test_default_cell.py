"""What a cell of each language model costs: 1,000 users, 10 rows, 4 columns, epsilon 2, 500 tables.

Run with `make perf`. Each runs in a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MOST_SECONDS, MOST_MB = 180.0, 2048.0
SCRIPT = """
import json, resource, sys, time
import numpy as np, pandas as pd
from panelbench import Budget, Column, ColumnKind, PrivacyUnit, Schema, UserTables
from panelbench_path import plugin

rng, users, rows = np.random.default_rng(0), 1000, 10
walk = rng.standard_normal((users, rows, 3)).cumsum(axis=1) + 3 * rng.standard_normal((users, 1, 3))
frame = pd.DataFrame({
    "user": np.repeat(np.arange(users), rows), "time": np.tile(np.arange(rows, dtype=float), users),
    **{name: walk[..., k].clip(-12, 12).ravel() for k, name in enumerate("abc")},
    "kind": np.where(walk[..., 0].ravel() > 0, "up", "down"),
})
numbers = (Column(name=name, lower=-12.0, upper=12.0) for name in "abc")
kind = Column(name="kind", kind=ColumnKind.CATEGORICAL, categories=("up", "down"))
schema = Schema(columns=(*numbers, kind), unit=PrivacyUnit.USER, min_rows=rows, max_rows=rows,
                nominal_users=users)
panel = UserTables(schema=schema, train=frame, test=frame.iloc[:0])
mechanism = {m.name: m for m in plugin.register_mechanisms()}[sys.argv[1]]
began = time.perf_counter()
release = mechanism(tables=500).release(panel, Budget.approximate_dp(2.0, 1e-3), rng=rng)
print(json.dumps({
    "seconds": time.perf_counter() - began,
    "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    "tables": release.frame["user"].nunique(),
}))
"""


@pytest.mark.parametrize("name", ["path", "cells", "regimes"])
def test_a_default_cell_takes_minutes_and_little_memory(benchmark, name):
    def run():
        command = [sys.executable, "-c", SCRIPT, name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    found = benchmark.pedantic(run, rounds=1)
    benchmark.extra_info.update(found)
    print(name, found)
    assert found["tables"] == 500
    assert found["seconds"] < MOST_SECONDS
    assert found["MB"] < MOST_MB
