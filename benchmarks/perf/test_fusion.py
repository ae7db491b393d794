"""How long the learnt fusion takes: training for one budget, and a step online.

Run with `make perf`. Training is timed once, whole: feature, schedule, policy and estimator for one
budget on simulated traffic, with all vehicles reporting. The online loop gets the sums of reports,
or the reports themselves, releases a step and estimates. Times are processor time of one thread.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from panelbench import Budget, Split
from panelbench_datasets.traffic_sim import TrafficSim
from panelbench_fusion import online
from panelbench_fusion.adaptive import Adaptive
from panelbench_fusion.adaptive_ppo import AdaptivePpo
from panelbench_fusion.deployed import Window
from panelbench_fusion.estimator import Regularisation
from panelbench_fusion.feature import Feature
from panelbench_fusion.listener import Exported
from panelbench_fusion.tabled import Lattice, TabledFeature

BUDGET = Budget.renyi_dp(2.0, 1.5)
MOST_TRAINING_SECONDS = 180
MOST_STEP_MILLISECONDS = 0.2


@pytest.fixture(scope="module")
def traffic():
    return TrafficSim().load(rng=np.random.default_rng(1)).for_mechanism()


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("mechanism", [Adaptive, AdaptivePpo], ids=lambda one: one.name)
def test_training_takes_at_most_three_minutes(benchmark, traffic, mechanism):
    one = mechanism(draws=1)
    benchmark.pedantic(
        one.release, (traffic, BUDGET), {"rng": np.random.default_rng(0)}, rounds=1, iterations=1
    )
    print(f"\n{mechanism.name}: trained in {benchmark.stats.stats.min:.0f} s")
    if mechanism is Adaptive:
        assert benchmark.stats.stats.min <= MOST_TRAINING_SECONDS


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("reports", [False, True], ids=["from sums", "from reports"])
def test_a_step_online_takes_at_most_a_fifth_of_a_millisecond(benchmark, traffic, reports):
    fixed = Feature.of(traffic.schema, count_weight=0.7, values=("speed",))
    lattice = Lattice.of(fixed)
    table = np.random.default_rng(0).normal(size=(lattice.cells, 2))
    feature = TabledFeature(lattice=lattice, table=table / np.linalg.norm(table, axis=1).max())
    ready = online.prepare(
        traffic,
        feature,
        Regularisation(shrinkage=0.9, ridge=0.1),
        BUDGET,
        online.Shape(rank=12, memory=32, width=32, start="uniform"),
        rng=np.random.default_rng(0),
    )
    weights = Exported.of(ready.trained())
    first = traffic.episodes(Split.TEST)[0]
    seen, there = traffic.observations[first], traffic.present[first]
    sums = feature.sums(seen, there)

    def window() -> None:
        run = Window(weights, rng=np.random.default_rng(0))
        for k, one in enumerate(sums):
            run.step(feature.sums(seen[k], there[k]) if reports else one)

    benchmark.pedantic(window, rounds=30, iterations=1, warmup_rounds=2)
    milliseconds = 1e3 * benchmark.stats.stats.min / len(sums)
    print(f"\n{milliseconds:.3f} ms a step {'from reports' if reports else 'from sums'}")
    assert milliseconds <= MOST_STEP_MILLISECONDS
