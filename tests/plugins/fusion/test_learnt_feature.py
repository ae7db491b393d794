"""Features that are learnt: what they charge, and the error that trains them.

P-numbers are those of the paper's list of mistakes.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch

from panelbench import Budget, NeighboringRelation
from panelbench.testing import tiny_streams
from panelbench_fusion import filter_training
from panelbench_fusion.adaptive import Adaptive
from panelbench_fusion.estimator import (
    Regularisation,
    lmmse,
    sample_moments,
    shrunk,
    stationary_moments,
)
from panelbench_fusion.feature import Feature
from panelbench_fusion.tabled import Lattice, TabledFeature

BUDGET = Budget.renyi_dp(2.0, 1.5)
STEPS = 20
FEATURE = Feature.of(tiny_streams().schema, count_weight=0.6, values=("speed",))


def run(mechanism, dataset, budget=BUDGET, seed=0):
    return mechanism.release(dataset.for_mechanism(), budget, rng=np.random.default_rng(seed))


def lattice():
    return Lattice.of(FEATURE)


def any_reports(rng, count):
    """Random reports, some out of range or not a number, some absent."""
    seen = rng.uniform([-20, -5], [420, 50], (count, 2))
    seen[:3] = [[math.nan, 5], [5, math.inf], [1e300, 3]]
    return seen, rng.random(count) < 0.9


@pytest.mark.parametrize("centred", [False, True])
def test_a_table_of_the_fixed_feature_is_the_fixed_feature(centred):
    feature = dataclasses.replace(FEATURE, centred=centred)
    seen, there = any_reports(np.random.default_rng(1), 400)
    table = filter_training._start(feature, Lattice.of(feature)).numpy()
    found = TabledFeature(lattice=Lattice.of(feature), table=table)
    np.testing.assert_allclose(
        found.sums(seen, there), feature.sums(seen, there), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_p05_one_report_of_a_learnt_feature_moves_the_sum_by_at_most_its_sensitivity(relation):
    """Leaving the distances between rows out under replace-one failed it."""
    rng = np.random.default_rng(2)
    table = rng.normal(size=(lattice().cells, 2))
    feature = TabledFeature(lattice=lattice(), table=table)
    seen, there = any_reports(rng, 600)
    corners = np.array([[p, v] for p in np.linspace(0, 400, 9) for v in np.linspace(0, 45, 9)])
    seen, there = np.concatenate([seen, corners]), np.append(there, np.ones(81, dtype=bool))
    f = feature.sums(seen[:, None], there[:, None])
    bad = ~there | ~np.isfinite(seen).all(1) | (seen[:, 0] < 0) | (seen[:, 0] > 400)
    np.testing.assert_array_equal(f[bad], 0.0)
    change = f if relation is NeighboringRelation.ADD_OR_REMOVE_ONE else f[:, None] - f
    largest = np.linalg.norm(change, axis=-1).max()
    assert largest <= feature.l2_sensitivity(relation)
    assert largest == pytest.approx(feature.l2_sensitivity(relation))


def test_p08_a_report_adds_its_own_contribution_to_a_learnt_sum_whoever_else_is_there():
    """Dividing the weights by the number present failed it."""
    rng = np.random.default_rng(3)
    feature = TabledFeature(lattice=lattice(), table=rng.normal(size=(lattice().cells, 2)))
    seen, there = any_reports(rng, 50)
    alone = feature.sums(seen[:, None], there[:, None])
    np.testing.assert_allclose(feature.sums(seen, there), alone.sum(0), atol=1e-12)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_p09_a_learnt_feature_is_charged_by_its_own_diameter(relation):
    """Declaring a sensitivity of 1 under both relations failed it."""
    table = np.repeat([[1.0], [-1.0]], [1, lattice().cells - 1], axis=0)  # like tanh
    feature = TabledFeature(lattice=lattice(), table=table)
    expected = 2.0 if relation is NeighboringRelation.REPLACE_ONE else 1.0
    assert feature.l2_sensitivity(relation) == pytest.approx(expected)
    data = tiny_streams()
    release = run(
        Adaptive(updates=2, feature_updates=3, draws=2),
        data,
        dataclasses.replace(BUDGET, relation=relation),
    )
    assert release.spent.sum(-1).max() <= 1.5


def test_the_error_that_trains_the_feature_is_that_of_the_filter(windows):
    moments = shrunk(
        sample_moments(windows.state, windows.sums),
        stationary_moments(windows.state, windows.sums),
        0.6,
    )
    gains = np.full(STEPS, 0.2)
    found = lmmse(moments, gains, noise_variance=1.0, ridge=0.1)
    expected = found.expected_mse(windows.state, windows.sums, gains, 1.0)
    fit = filter_training.Weighed(
        state=torch.as_tensor(windows.state), weights=torch.as_tensor(windows.sums)
    )
    how = Regularisation(shrinkage=0.6, ridge=0.1)
    unit = torch.eye(2, dtype=torch.float64)
    error = filter_training.held_out_error(fit, fit, unit, 0.2, how)
    # stationary moments are made positive semidefinite there, not here
    assert float(error) == pytest.approx(expected, rel=1e-3)
