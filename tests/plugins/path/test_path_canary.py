"""Tables repeated in training come back without noise, and do not at epsilon 2."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from panelbench import Budget, Column, PrivacyUnit, Schema, UserTables
from panelbench_path.cells import Cells, CellsNonprivate
from panelbench_path.path import Path, PathNonprivate

ROWS = 3
USERS, REPEATED = 20, 10
CANARY = np.array([[91.3, 8.8], [12.1, 63.7], [77.4, 31.9]])
TUNING = {"steps": 150, "sampling": 0.5, "batch": 10.0, "rate": 0.03, "rank": 8}
WRITING = {"candidates": 1, "tables": 200, "target": "rest", "start": 1.0}


def panel():
    """Noise, and one table that ten users have."""
    columns = (Column(name="a", lower=0.0, upper=100.0), Column(name="b", lower=0.0, upper=100.0))
    schema = Schema(
        columns=columns,
        unit=PrivacyUnit.USER,
        min_rows=ROWS,
        max_rows=ROWS,
        nominal_users=USERS,
    )
    values = np.random.default_rng(0).uniform(0, 100, (USERS, ROWS, 2))
    values[:REPEATED] = CANARY
    frame = pd.DataFrame(values.reshape(-1, 2), columns=["a", "b"])
    frame.insert(0, "user", np.repeat(np.arange(USERS), ROWS))
    frame.insert(1, "time", np.tile(np.arange(float(ROWS)), USERS))
    return UserTables(schema=schema, train=frame, test=frame.iloc[:0])


def copies(mechanism, budget, *, within):
    """Released tables of which every value lies that close to the canary's."""
    release = mechanism.release(panel(), budget, rng=np.random.default_rng(0))
    values = release.frame[["a", "b"]].to_numpy().reshape(-1, ROWS, 2)
    return int((np.abs(values - CANARY) <= within).all(axis=(1, 2)).sum())


@pytest.mark.slow
def test_a_repeated_table_comes_back_without_noise_and_not_at_epsilon_2():
    # By chance a table is a copy with probability 0.04 ** 6, so one in 200 is no chance at all.
    assert copies(PathNonprivate(**TUNING, **WRITING), Budget.unlimited(), within=2) >= 10
    assert copies(Path(**TUNING, **WRITING), Budget.approximate_dp(2.0, 1e-3), within=2) == 0


@pytest.mark.slow
def test_nor_does_it_from_cells():
    # Half of all values are the canary's: if each came by itself, 3 of 200 tables would be copies.
    settings = {"steps": 300, "batch": 20, "rank": 8, "tables": 200}
    assert copies(CellsNonprivate(**settings), Budget.unlimited(), within=4) >= 10
    assert copies(Cells(**settings), Budget.approximate_dp(2.0, 1e-3), within=4) == 0
