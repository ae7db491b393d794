"""The queue has the moments that it tells."""

from __future__ import annotations

import numpy as np
import pytest

from panelbench_datasets.queue_sim import QueueSim


@pytest.fixture(scope="module")
def queue():
    source = QueueSim(people=30.0, stay=0.95, train=3000, validation=1, test=1, steps=15)
    return source.load(rng=np.random.default_rng(3))


def test_the_count_has_the_mean_and_the_autocovariance_that_it_tells(queue):
    """3,000 independent windows: a covariance of 30 has a standard error of about 0.8."""
    moments = queue.extra["moments"]
    count = queue.state[:3000]
    assert count.mean() == pytest.approx(moments["mean"], abs=0.5)
    found = np.cov(count.T)
    told = np.array(moments["autocovariance"])
    for lag in (0, 1, 5, 14):
        assert np.diag(found, lag).mean() == pytest.approx(told[lag], abs=3.2)


def test_the_count_is_poisson(queue):
    count = queue.state[:3000, -1]
    assert count.var() / count.mean() == pytest.approx(1.0, abs=4 * np.sqrt(2 / 3000))


def test_everybody_comes_once_and_the_state_is_how_many_are_there(queue):
    changes = np.diff(np.pad(queue.present, ((0, 0), (1, 1), (0, 0))).astype(int), axis=1)
    assert ((changes == 1).sum(axis=1) <= 1).all()
    assert (queue.present.sum(axis=-1) == queue.state).all()


@pytest.mark.parametrize("wrong", [{"people": 0.0}, {"stay": 1.0}, {"test": 0}])
def test_impossible_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        QueueSim(**wrong)
