"""The gap to a bound is given where the bound covers the mechanism, and nowhere else."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.linalg import toeplitz

from panelbench import (
    Budget,
    Column,
    ColumnKind,
    Estimates,
    Guarantee,
    LaplaceEvent,
    NeighboringRelation,
    PrivacyUnit,
    Schema,
    SensorStreams,
    Split,
)
from panelbench_fusion.gap import GapToBound, _model
from panelbench_fusion.matrix import MatrixFusion
from panelbench_fusion.openloop import OpenLoop
from panelbench_fusion.uniform import Uniform

STEPS, PEOPLE, STAY = 12, 60.0, 0.98


@pytest.fixture(scope="module")
def queue():
    """Poisson arrivals and departures without memory, 900 windows, with their moments."""
    rng = np.random.default_rng(8)
    split = np.repeat([Split.TRAIN, Split.VALIDATION, Split.TEST], [500, 50, 350])
    sensors = 110
    present = np.zeros((len(split), STEPS, sensors), dtype=bool)
    for window in present:
        arrivals = rng.poisson(PEOPLE * (1 - STAY), STEPS)
        arrivals[0] = rng.poisson(PEOPLE)
        first = np.repeat(np.arange(STEPS), arrivals)[:sensors]
        last = first + rng.geometric(1 - STAY, len(first))
        step = np.arange(STEPS)[:, None]
        window[:, : len(first)] = (first <= step) & (step < last)
    return SensorStreams(
        schema=Schema(
            columns=(Column(name="report", kind=ColumnKind.CATEGORICAL, categories=("here",)),),
            unit=PrivacyUnit.SENSOR_TRAJECTORY,
            min_rows=STEPS,
            max_rows=STEPS,
            state=Column(name="count", unit="people", lower=0.0, upper=300.0),
        ),
        observations=np.where(present, 0.0, np.nan)[..., None],
        present=present,
        state=present.sum(axis=-1).astype(float),
        split=split,
        step_seconds=1.0,
        extra={
            "moments": {
                "mean": PEOPLE,
                "autocovariance": (PEOPLE * STAY ** np.arange(STEPS)).tolist(),
            }
        },
    )


def budget(relation=NeighboringRelation.ADD_OR_REMOVE_ONE):
    return Budget.renyi_dp(2.0, 1.0, relation=relation)


def release(mechanism, queue, relation=NeighboringRelation.ADD_OR_REMOVE_ONE):
    rng = np.random.default_rng(5)
    return mechanism.release(queue.for_mechanism(), budget(relation), rng=rng)


def gaps(queue, found):
    rng = np.random.default_rng(0)
    return {score.component: score for score in GapToBound().score(queue, found, rng=rng)}


def test_the_convex_optimum_is_close_to_its_bound_and_uniform_is_not(queue):
    """The error over 350 windows and 20 draws has a standard error of about 3 % of itself."""
    best = gaps(queue, release(OpenLoop(values=()), queue))
    even = gaps(queue, release(Uniform(values=()), queue))
    assert set(best) == set(even) == {"lb1"}
    assert abs(best["lb1"].value) < 0.1
    assert even["lb1"].value > best["lb1"].value


def test_a_channel_with_memory_is_measured_against_the_bound_with_memory_only(queue):
    found = gaps(queue, release(MatrixFusion(values=()), queue))
    assert set(found) == {"lb3"}
    assert -0.1 < found["lb3"].value < 0.3
    assert (
        found["lb3"].detail["bound"]
        < gaps(queue, release(OpenLoop(values=()), queue))["lb1"].detail["bound"]
    )


def test_under_replace_one_the_bound_with_memory_covers_nothing(queue):
    mechanism = MatrixFusion(values=())
    assert gaps(queue, release(mechanism, queue, NeighboringRelation.REPLACE_ONE)) == {}


def test_the_truth_itself_has_minus_one(queue):
    found = release(OpenLoop(values=()), queue)
    truth = queue.state[queue.episodes(Split.TEST)][None]
    exact = dataclasses.replace(found, estimate=truth)
    assert gaps(queue, exact)["lb1"].value == GapToBound.components["lb1"].perfect


@pytest.mark.parametrize("case", ["class", "ledger", "moments", "values", "gains"])
def test_what_no_bound_covers_has_no_gap(queue, case):
    found = release(OpenLoop(values=()), queue)
    data = queue
    if case == "class":
        found = dataclasses.replace(found, info={})
    elif case == "ledger":
        ledger = (LaplaceEvent(scale=1.0, l1_sensitivity=1.0),)
        given = dataclasses.replace(found.guarantee, ledger=ledger)
        found = dataclasses.replace(found, guarantee=given)
        assert isinstance(given, Guarantee)
        assert isinstance(found, Estimates)
    elif case == "gains":
        found = dataclasses.replace(found, spent=np.broadcast_to(found.spent, found.estimate.shape))
    elif case == "moments":
        data = dataclasses.replace(queue, extra={})
    else:
        columns = (Column(name="speed", lower=0.0, upper=1.0),)
        data = dataclasses.replace(queue, schema=dataclasses.replace(queue.schema, columns=columns))
    assert gaps(data, found) == {}


def test_the_model_is_that_of_the_dataset(queue):
    model = _model(queue)
    assert model.of_sums == pytest.approx(toeplitz(PEOPLE * STAY ** np.arange(STEPS)))
    assert model.size == 1
