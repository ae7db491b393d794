"""What adaptive spending begins with: the linear filter, and the best fixed schedule."""

import numpy as np
import pytest
import torch

from panelbench_fusion.belief import Filter
from panelbench_fusion.estimator import (
    lmmse,
    sample_moments,
)
from panelbench_fusion.latent import latent_model
from panelbench_fusion.model import Model
from panelbench_fusion.schedule import optimal_costs

STEPS = 20


def test_with_all_components_the_belief_is_the_best_linear_filter(windows):
    moments = sample_moments(windows.state, windows.sums)
    gains = np.random.default_rng(2).uniform(0.05, 0.5, STEPS)
    outputs = gains[:, None] * windows.sums
    expected = lmmse(moments, gains, noise_variance=1.0, ridge=0.1).estimates(outputs)
    model = Filter.of(latent_model(moments, ridge=0.1, rank=999), torch.float64)
    belief = model.start((60,))
    for k in range(STEPS):
        gain = torch.full((60,), float(gains[k]), dtype=torch.float64)
        belief, _ = model.update(belief, k, gain, torch.as_tensor(outputs[:, k]))
        np.testing.assert_allclose(model.estimate(belief, k)[0], expected[:, k], rtol=1e-6)


def test_the_schedule_to_start_from_beats_the_uniform_one_in_the_model(windows):
    model = Model.of(sample_moments(windows.state, windows.sums))
    shares = optimal_costs(model, 0.3, iterations=60, shared=True)[:, 0] / 0.3
    best, uniform = (
        model.error(np.diag(np.repeat(np.sqrt(0.3 * one), 2)))[0]
        for one in (shares, np.full(STEPS, 1 / STEPS))
    )
    assert shares.sum() == pytest.approx(1)
    assert best < 0.9 * uniform


def test_gains_that_are_shared_are_optimal_under_small_changes(windows):
    model = Model.of(sample_moments(windows.state, windows.sums))
    costs = optimal_costs(model, 0.3, shared=True)[:, 0]

    def error(one):
        return model.error(np.diag(np.repeat(np.sqrt(one), 2)))[0]

    rng = np.random.default_rng(0)
    for _ in range(30):
        changed = costs * np.exp(0.3 * rng.normal(size=STEPS))
        assert error(0.3 * changed / changed.sum()) >= error(costs) * (1 - 1e-6)
