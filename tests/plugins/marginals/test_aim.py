"""AIM: what it spends, what it chooses, and that its choices help."""

import dataclasses
import math

import numpy as np
import pytest

from panelbench import Budget, NeighboringRelation, PrivacyUnit, UserTables
from panelbench.accounting import excess, settle
from panelbench.testing import tiny_tables
from panelbench_marginals.aim import Aim, Rounds
from panelbench_marginals.graphical import Model
from panelbench_marginals.selection import Candidates, counted, weights_of, workload_of

RELATIONS = pytest.mark.parametrize("relation", list(NeighboringRelation))
SMALL = {"horizon": 3, "bins": 6, "rounds": 40}
BUDGET = Budget.approximate_dp(2.0, 1e-5)


def release(mechanism, data=None, budget=BUDGET, seed=0):
    return mechanism.release(data or tiny_tables(), budget, rng=np.random.default_rng(seed))


def correlated(users=4000, seed=0):
    """Codes of four variables: 0 and 1 nearly equal, 2 and 3 on their own."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, users)
    second = np.where(rng.random(users) < 0.95, first, rng.integers(0, 4, users))
    return np.stack([first, second, rng.integers(0, 4, users), rng.integers(0, 4, users)], axis=1)


@RELATIONS
@pytest.mark.parametrize(
    "budget",
    [BUDGET, Budget.renyi_dp(2.0, 0.5), Budget.zero_concentrated_dp(0.1)],
    ids=["dp", "rdp", "zcdp"],
)
@pytest.mark.parametrize("clip", ["bounds", "dp"])
def test_the_ledger_settles_to_the_budget(budget, relation, clip):
    budget = dataclasses.replace(budget, relation=relation)
    found = release(Aim(**SMALL, clip=clip), budget=budget)
    assert excess(found.guarantee, budget, unit=PrivacyUnit.USER) is None
    figures = settle(found.guarantee, delta=budget.delta, alpha=budget.alpha)
    for name in ("epsilon", "b_g", "rho"):
        if getattr(budget, name) is not None:
            assert getattr(figures, name) == pytest.approx(getattr(budget, name), rel=1e-6)


@pytest.mark.parametrize("anneal", [0.0, 0.3, 1.0])
def test_rounds_never_spend_more_than_their_rho_and_all_of_it(anneal):
    rng = np.random.default_rng(1)
    rounds = Rounds(rho=0.2, sigma=40.0)
    spent = 0.0
    while rounds.open:
        rounds.begin()
        spent += 1 / (2 * rounds.sigma**2) + rounds.epsilon**2 / 8
        assert spent <= 0.2 * (1 + 1e-12)
        if rng.random() < anneal:
            rounds.anneal()
    assert spent == pytest.approx(0.2)


def test_replace_one_doubles_the_variance_of_every_measurement():
    events = [
        release(
            Aim(**SMALL), budget=dataclasses.replace(BUDGET, relation=relation)
        ).guarantee.ledger[1]
        for relation in NeighboringRelation
    ]
    assert events[1].stddev == pytest.approx(math.sqrt(2) * events[0].stddev)
    assert events[1].l2_sensitivity == pytest.approx(math.sqrt(2))


def test_one_user_moves_scores_by_no_more_than_their_sensitivity():
    codes = correlated(50)
    sizes = (4,) * 4
    weights = weights_of(workload_of(sizes, degree=2, max_cells=16, most=None), 4)
    model = Model(sizes, 50.0)
    model.add((0, 1), counted(codes, (0, 1), sizes), 1.0).fit(50.0, 200)

    def scores(some):
        found = Candidates(some, model, weights)
        for part in model.components:
            found.refresh(model, part)
        return found.error * found.weight

    largest = max(weights.values())
    added = np.concatenate([codes, codes[:1]])
    replaced = np.concatenate([codes[1:], (codes[:1] + 1) % 4])
    assert np.abs(scores(added) - scores(codes)).max() <= largest
    assert np.abs(scores(replaced) - scores(codes)).max() <= 2 * largest


@pytest.mark.parametrize("degree", [2, 3])
def test_errors_kept_from_round_to_round_are_those_computed_anew(degree):
    rng = np.random.default_rng(2)
    sizes = (3, 2, 4, 3, 2)
    codes = np.stack([rng.integers(0, s, 200) for s in sizes], axis=1)
    model = Model(sizes, 200.0)
    weights = weights_of(workload_of(sizes, degree=degree, max_cells=100, most=None), 5)
    kept = Candidates(codes, model, weights)
    for part in model.components:
        kept.refresh(model, part)
    for clique in [(0,), (0, 1), (2, 3), (1, 2), (0, 3), (3,)]:
        noisy = counted(codes, clique, sizes) + rng.normal(0, 5, [sizes[v] for v in clique])
        part = model.add(clique, noisy, 5.0)
        part.fit(200.0, 100)
        kept.refresh(model, part)
    anew = [np.abs(counted(codes, c, sizes) - 200 * model.project(c)).sum() for c in kept.cliques]
    np.testing.assert_allclose(kept.error, anew, rtol=1e-9)
    measured = {c for part in model.components for c in part.cliques}
    for clique, growth in zip(kept.cliques, kept.growth, strict=True):
        assert (growth == 0) == any(set(clique) <= set(c) for c in measured)


def test_the_choice_falls_on_what_the_model_has_worst():
    codes, sizes = correlated(), (4,) * 4
    model = Model(sizes, 4000.0)
    candidates = Candidates(
        codes, model, weights_of(workload_of(sizes, degree=2, max_cells=16, most=None), 4)
    )
    for part in model.components:
        candidates.refresh(model, part)
    picks = {
        candidates.choose(
            model,
            cells=1e6,
            noise=10.0,
            epsilon=1.0,
            l1_sensitivity=1.0,
            rng=np.random.default_rng(seed),
        )
        for seed in range(20)
    }
    # the next best is worse by about 2,500 counts, so others have a chance of e^-1000
    assert {candidates.cliques[i] for i in picks} == {(0, 1)}
    none = candidates.choose(
        model, cells=0.0, noise=10.0, epsilon=1.0, l1_sensitivity=1.0, rng=np.random.default_rng(0)
    )
    assert len(candidates.cliques[none]) == 1  # what would grow the model is not allowed


def test_the_model_stays_within_its_size_limit():
    for limit in (0.001, 0.01):
        info = release(
            Aim(**SMALL, max_model_size=limit), budget=Budget.approximate_dp(50.0, 1e-5)
        ).info
        assert info["model_cells"] <= max(limit * 2**20 / 8, 60)
        assert info["rounds"] >= 1


def test_more_budget_brings_the_workload_closer():
    data = tiny_tables(users=2000)

    def error(epsilon):
        mechanism = Aim(horizon=4, bins=6, clip="bounds", tables=4000)
        found = release(mechanism, data, Budget.approximate_dp(epsilon, 1e-5)).frame
        true = data.train.groupby("user").head(4)
        tables = [
            np.histogram2d(
                frame["level"][:-1], frame["level"][1:], bins=6, range=[(-10, 10), (-10, 10)]
            )[0]
            for frame in (true, found)
        ]
        return np.abs(tables[0] / tables[0].sum() - tables[1] / tables[1].sum()).sum()

    errors = [error(epsilon) for epsilon in (0.1, 1.0, 100.0)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.15


def test_the_number_of_marginals_and_their_cells_are_limited_by_parameters():
    assert len(workload_of((10,) * 6, degree=2, max_cells=100, most=None)) == 15
    assert len(workload_of((10,) * 6, degree=3, max_cells=100, most=None)) == 0
    assert len(workload_of((10,) * 6, degree=2, max_cells=100, most=7)) == 7
    info = release(Aim(**SMALL, max_marginals=4)).info
    assert info["workload"] == 4


def test_padding_keeps_short_tables_and_gives_some_back():
    data = tiny_tables(users=2000)
    found = release(Aim(horizon=6, bins=4, pad=True), data, Budget.approximate_dp(50.0, 1e-5))
    lengths = found.frame["user"].value_counts()
    true = np.minimum(data.train["user"].value_counts(), 6)
    assert lengths.min() >= 4
    for rows in (4, 5, 6):  # 0.11, 0.11 and 0.78 of the users
        assert (lengths == rows).mean() == pytest.approx((true == rows).mean(), abs=0.06)


def test_nobody_with_enough_rows_is_no_error():
    data = tiny_tables()
    short = UserTables(schema=data.schema, train=data.train.groupby("user").head(4), test=data.test)
    found = release(Aim(horizon=12, bins=6, rounds=20, max_tables=50), short)
    assert 1 <= found.frame["user"].nunique() <= 50


@pytest.mark.parametrize(
    "wrong", [{"degree": 1}, {"max_model_size": 0.0}, {"rounds": 0}, {"clip": "p99"}]
)
def test_a_wrong_parameter_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Aim(**wrong)
