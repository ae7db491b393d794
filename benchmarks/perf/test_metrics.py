"""How long each metric of user tables takes on 10,000 synthetic and 10,000 test tables.

Run with `pytest benchmarks/perf/test_metrics.py -s`; not part of `make test`. Times are processor
time, with the parameters as they are by default (metrics that sample take 2,000 tables of each
side) and, for those, of all tables too. `tdcr` has a module of its own.
"""

from __future__ import annotations

import resource
import time

import numpy as np
import pytest

from panelbench import Budget
from panelbench.catalog import installed
from panelbench.loader import load

TABLES = 10_000
SECONDS, GIGABYTES = 60.0, 4.0
PANELS = ("hmm", "nyc311-like")
METRICS = {
    name: cls
    for (kind, name), cls in load(installed()["metrics"]).items()
    if kind == "metric" and cls.kind == "user-tables" and name != "tdcr"
}
SAMPLING = [name for name, cls in METRICS.items() if "max_tables" in cls.__dataclass_fields__]


@pytest.fixture(scope="module", params=PANELS)
def panel(request):
    """A dataset with 10,000 test tables, and as many real ones as a release."""
    source = load(installed()["datasets"])["dataset", request.param]
    dataset = source(users=2 * TABLES, test_users=TABLES).load(rng=np.random.default_rng(0))
    subsample = load(installed()["references"])["mechanism", "real-subsample"](size=TABLES)
    release = subsample.release(dataset, Budget.unlimited(), rng=np.random.default_rng(1))
    return request.param, dataset, release


def measured(metric, dataset, release):
    start = time.process_time()
    scores = list(metric.score(dataset, release, rng=np.random.default_rng(2)))
    seconds = time.process_time() - start
    return scores, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_takes_less_than_a_minute_and_four_gigabytes(panel, name):
    where, dataset, release = panel
    scores, seconds, peak = measured(METRICS[name](), dataset, release)
    print(f"\n{name} on {where}: {seconds:.1f} s, peak {peak:.1f} GB, {len(scores)} scores")
    assert seconds < SECONDS
    assert peak < GIGABYTES


@pytest.mark.parametrize("name", SAMPLING)
def test_a_metric_that_samples_can_take_all_tables(panel, name):
    where, dataset, release = panel
    _, seconds, peak = measured(METRICS[name](max_tables=TABLES), dataset, release)
    print(f"\n{name} of all tables on {where}: {seconds:.1f} s, peak {peak:.1f} GB")
    assert peak < GIGABYTES
