"""What every mechanism over user tables here keeps: nothing private leaks around the noise."""

import dataclasses
import time

import numpy as np
import pytest

from panelbench import Budget, UserTables
from panelbench.testing import tiny_tables
from panelbench_marginals.across import DirectAcross
from panelbench_marginals.aim import Aim
from panelbench_marginals.direct import Direct
from panelbench_marginals.markov import Markov

MECHANISMS = {
    "direct": Direct(horizon=3, bins=6, iterations=50),
    "direct, padded": Direct(horizon=5, bins=6, pad=True, iterations=50),
    "direct-across": DirectAcross(horizon=3, bins=6, pairs=6, iterations=50),
    "aim": Aim(horizon=3, bins=6),
    "aim, padded": Aim(horizon=5, bins=6, pad=True),
    "markov": Markov(bins=6),
    "markov of order two, types": Markov(bins=6, order=2, types=3),
}
EACH = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=list(MECHANISMS))


def canary(data):
    """The data with one user of ten rows or more whose every value is as extreme as can be.

    As many users as before, so that the random numbers fall on the same places.
    """
    rows = data.train["user"].map(data.train["user"].value_counts())
    mine = data.train["user"] == data.train["user"][rows >= 10].iloc[0]
    train = data.train.copy()
    for column in data.schema.numeric:
        train.loc[mine, column.name] = column.upper
    train.loc[mine, "state"] = "full"
    return dataclasses.replace(data, train=train)


@EACH
def test_a_user_with_extreme_values_changes_nothing_that_is_not_noised(mechanism):
    """At epsilon 1e-3 noise is thousands of times what a user adds: only a leak would show."""
    data = tiny_tables()
    mechanism = dataclasses.replace(mechanism, tables=40)
    budget = Budget.approximate_dp(1e-3, 1e-5)
    one, two = (
        mechanism.release(d, budget, rng=np.random.default_rng(5)) for d in (data, canary(data))
    )
    assert one.guarantee == two.guarantee
    assert one.schema == two.schema
    assert set(one.info) == set(two.info)
    for name in ("bounds", "marginals", "histograms", "stddev", "workload", "steps"):
        assert one.info.get(name) == two.info.get(name), name
    assert one.frame["user"].nunique() == two.frame["user"].nunique()
    # the same noise leads to nearly the same tables
    assert one.frame["level"].mean() == pytest.approx(two.frame["level"].mean(), abs=0.5)


@EACH
@pytest.mark.parametrize("data", ["many", "nobody"])
def test_a_tiny_budget_ends_soon_with_few_tables(mechanism, data):
    """Noise on the number of users must not become millions of tables, nor rounds without end."""
    tables = tiny_tables()
    if data == "nobody":  # too short for every horizon that is not padded
        short = tables.train.groupby("user").head(4)
        tables = UserTables(schema=tables.schema, train=short, test=tables.test)
        if not isinstance(mechanism, Markov):
            mechanism = dataclasses.replace(mechanism, horizon=8)
    before = time.process_time()
    for seed in range(3):
        found = mechanism.release(
            tables, Budget.approximate_dp(0.01, 1e-5), rng=np.random.default_rng(seed)
        )
        assert 1 <= found.frame["user"].nunique() <= mechanism.max_tables
        assert len(found.frame) <= mechanism.max_tables * tables.schema.max_rows
    assert time.process_time() - before < 300  # a bound, not a speed: rounds end
