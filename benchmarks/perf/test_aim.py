"""`marginals/aim` against `smartnoise/aim`: time and workload error on the same records.

Run with `pytest benchmarks/perf/test_aim.py -s`; not part of `make test`. Both get the same users
of `hmm`, flattened and binned in the same way between public bounds, and the same rho (epsilon 2,
delta n^-1.1); repeats differ in their seed. Times are wall-clock seconds of the release,
compilation included, each in a process of its own with one thread. The workload error is the mean
total variation distance of all two-way marginals between real and synthetic users. Skipped where
the environment `smartnoise` is not built.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from panelbench.environments import environment, surroundings

HORIZON, REPEATS, USERS = 2, 5, 2000
THEIRS = environment("smartnoise")

RUN = """
import json, sys, time
import numpy as np
from panelbench import Budget
from panelbench.data import UserTables
from {package}.aim import Aim

arrays = dict(np.load(sys.argv[1], allow_pickle=False))
meta = json.loads(open(sys.argv[2]).read())
data = UserTables.from_arrays(arrays, meta)
budget = Budget.approximate_dp(2.0, {users} ** -1.1)
start = time.perf_counter()
mechanism = Aim(horizon={horizon}, clip="bounds", tables=2000)
found = mechanism.release(data, budget, rng=np.random.default_rng(int(sys.argv[3])))
seconds = time.perf_counter() - start
found.frame.to_csv(sys.argv[4], index=False)
print(json.dumps({{"seconds": seconds}}), file=sys.stderr)
"""


def binned(frame, schema):
    """Two-way marginals are compared on these: 32 bins between public bounds."""
    first = frame.groupby("user").head(HORIZON)
    first = first[first.groupby("user")["time"].transform("size") == HORIZON]
    columns = []
    for column in schema.columns:
        values = first[column.name].to_numpy()
        if column.categories:
            codes = np.array([column.categories.index(value) for value in values])
        else:
            edges = np.linspace(column.lower, column.upper, 33)
            codes = np.clip(np.searchsorted(edges, values.astype(float), side="right") - 1, 0, 31)
        columns.append(codes.reshape(-1, HORIZON))
    return np.concatenate(columns, axis=1)


def workload_error(real, synthetic):
    found = []
    for one, two in itertools.combinations(range(real.shape[1]), 2):
        shares = [
            np.bincount(side[:, one] * 32 + side[:, two], minlength=1024) / len(side)
            for side in (real, synthetic)
        ]
        found.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(found))


@pytest.mark.skipif(
    THEIRS.state != "built",
    reason="The environment 'smartnoise' is not built; run `panelbench env build smartnoise`.",
)
def test_aim_is_five_times_faster_and_no_worse(tmp_path):
    import pandas as pd  # noqa: PLC0415 - only where the comparison runs

    from panelbench_datasets.hmm import Hmm  # noqa: PLC0415 - likewise

    data = Hmm(users=USERS, test_users=500).load(rng=np.random.default_rng(0))
    arrays, meta = data.to_arrays()
    np.savez(tmp_path / "data.npz", **arrays)
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    real = binned(data.train, data.schema)
    rows = []

    def released(python, package, seed):
        code = RUN.format(package=package, users=USERS, horizon=HORIZON)
        files = [tmp_path / "data.npz", tmp_path / "meta.json", str(seed), tmp_path / "out.csv"]
        done = subprocess.run(
            [python, "-c", code, *files],
            env=surroundings(foreign=True),
            capture_output=True,
            text=True,
            check=True,
        )
        seconds = json.loads(done.stderr.strip().splitlines()[-1])["seconds"]
        synthetic = binned(pd.read_csv(tmp_path / "out.csv"), data.schema)
        return seconds, workload_error(real, synthetic)

    for seed in range(REPEATS):
        ours = released(sys.executable, "panelbench_marginals", seed)
        row = [*ours, *released(THEIRS.python, "panelbench_smartnoise", seed)]
        rows.append(row)
        print("seed {}: ours {:.1f} s, {:.4f}; smartnoise {:.1f} s, {:.4f}".format(*[seed, *row]))
    table = np.array(rows)
    gap = table[:, 1] - table[:, 3]
    half = stats.t.ppf(0.975, REPEATS - 1) * gap.std(ddof=1) / np.sqrt(REPEATS)
    faster = table[:, 2].sum() / table[:, 0].sum()
    print(f"{faster:.0f} times faster; error {gap.mean():+.4f} ± {half:.4f} (95 %, paired)")
    assert faster >= 5
    assert gap.mean() - half <= 0
