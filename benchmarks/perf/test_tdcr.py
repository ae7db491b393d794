"""How fast `tdcr` finds nearest neighbors: 1,000 against 5,000 tables, beside tslearn, and many.

Run with `pytest benchmarks/perf/test_tdcr.py -s`; not part of `make test`. Times are processor
time of one thread. tslearn's `cdist_dtw` is timed on a slice of the same pairs in two ways: one
call on whole tables (a single warping for all attributes, which is less work than the metric needs)
and one call for each attribute (the same number of warpings).
"""

from __future__ import annotations

import resource
import time

import numpy as np
import pytest
from tslearn.metrics import cdist_dtw, dtw_path_from_metric
from tslearn.utils import to_time_series_dataset

from panelbench_metrics.nearest import Packed, nearest_distances

QUERIES, REFERENCES, ATTRIBUTES = 1000, 5000, 4
SLICE = (40, 60)
ORACLE = (3, 400)
MANY, MOST_SECONDS = 10_000, 120.0


def trajectories(count, seed):
    """Stationary autoregressive tables of 4 to 50 rows, a level for each user."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        rows = int(rng.integers(4, 51))
        noise = rng.normal(size=(rows, ATTRIBUTES))
        table = noise.copy()
        for t in range(1, rows):
            table[t] = 0.8 * table[t - 1] + 0.6 * noise[t]
        result.append(table + rng.normal(size=ATTRIBUTES))
    return result


@pytest.fixture(scope="module")
def panels():
    return trajectories(QUERIES, 0), trajectories(REFERENCES, 1)


@pytest.fixture(scope="module")
def tslearn_seconds(panels):
    """Seconds a pair: one multivariate call, and the sum of one call for each attribute."""
    a, b = (to_time_series_dataset(side[:n]) for side, n in zip(panels, SLICE, strict=True))
    cdist_dtw(a[:2], b[:2])  # compiles

    def seconds(*attributes):
        start = time.process_time()
        for k in attributes:
            cdist_dtw(a[:, :, k], b[:, :, k])
        return (time.process_time() - start) / (SLICE[0] * SLICE[1])

    return seconds(slice(None)), seconds(*(slice(k, k + 1) for k in range(ATTRIBUTES)))


@pytest.mark.benchmark(timer=time.process_time)
def test_tdcr_is_200_times_faster_a_pair_than_tslearn(benchmark, panels, tslearn_seconds):
    weights = np.ones(ATTRIBUTES)
    nearest_distances(Packed.of(panels[0][:2]), Packed.of(panels[1][:2]), weights)  # compiles

    def search():
        return nearest_distances(Packed.of(panels[0]), Packed.of(panels[1]), weights)

    benchmark.pedantic(search, rounds=2, iterations=1)
    ours = benchmark.stats.stats.min / (QUERIES * REFERENCES)
    whole, each = (seconds / ours for seconds in tslearn_seconds)
    print(
        f"\n{ours * 1e9:.0f} ns a pair; tslearn.cdist_dtw {tslearn_seconds[0] * 1e6:.0f} us on "
        f"whole tables ({whole:.0f} times slower), {tslearn_seconds[1] * 1e6:.0f} us for "
        f"{ATTRIBUTES} attributes ({each:.0f} times slower)"
    )
    benchmark.extra_info["times_faster_than_one_call"] = whole
    benchmark.extra_info["times_faster_than_a_call_each"] = each
    assert whole >= 200


def test_tdcr_equals_the_oracle_on_a_slice(panels):
    queries, references = (side[:n] for side, n in zip(panels, ORACLE, strict=True))

    def distance(a, b):
        total = 0.0
        for k in range(ATTRIBUTES):
            path, cost = dtw_path_from_metric(a[:, [k]], b[:, [k]], metric="cityblock")
            total += cost / len(path)
        return total

    expected = [min(distance(a, b) for b in references) for a in queries]
    found = nearest_distances(Packed.of(queries), Packed.of(references), np.ones(ATTRIBUTES))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_both_distances_of_10000_tables_to_10000_take_two_cores_less_than_two_minutes():
    queries, references = (Packed.of(trajectories(MANY, seed)) for seed in (0, 1))
    weights = np.stack([np.ones(ATTRIBUTES), np.linspace(0.8, 1.2, ATTRIBUTES)])
    few = Packed.of(trajectories(2, 2))
    nearest_distances(few, few, weights)  # compiles
    start, clock = time.process_time(), time.perf_counter()
    nearest_distances(queries, references, weights, threads=2)
    seconds, passed = time.process_time() - start, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n{seconds:.0f} s of processor, {passed:.0f} s on two threads, peak {peak:.1f} GB")
    assert seconds / 2 < MOST_SECONDS
    assert peak < 4.0
