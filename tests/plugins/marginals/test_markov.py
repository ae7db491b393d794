"""Markov and Direct (Across): what they spend, and that what was measured comes back."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from panelbench import Budget, GaussianEvent, NeighboringRelation, PrivacyUnit
from panelbench.accounting import excess, settle
from panelbench.binning import Binning
from panelbench.bounds import public_bounds
from panelbench.flatten import flatten
from panelbench.testing import tiny_tables
from panelbench_marginals.across import DirectAcross
from panelbench_marginals.clusters import clustered, described
from panelbench_marginals.markov import Markov
from panelbench_marginals.pooled import onto_simplex

RELATIONS = pytest.mark.parametrize("relation", list(NeighboringRelation))
BUDGET = Budget.approximate_dp(2.0, 1e-5)
HUGE = Budget.zero_concentrated_dp(1e6)
MECHANISMS = [
    Markov(bins=5),
    Markov(bins=5, order=2),
    Markov(bins=5, types=3),
    DirectAcross(horizon=3, bins=5, pairs=5),
]
EACH = pytest.mark.parametrize("mechanism", MECHANISMS, ids=["one", "two", "types", "across"])


def release(mechanism, data=None, budget=BUDGET, seed=0):
    return mechanism.release(data or tiny_tables(), budget, rng=np.random.default_rng(seed))


@EACH
@RELATIONS
def test_the_ledger_composes_exactly_to_the_budget(mechanism, relation):
    budget = dataclasses.replace(BUDGET, relation=relation)
    found = release(mechanism, budget=budget)
    assert excess(found.guarantee, budget, unit=PrivacyUnit.USER) is None
    assert settle(found.guarantee, delta=1e-5, alpha=2.0).epsilon == pytest.approx(2.0)
    assert all(isinstance(event, GaussianEvent) for event in found.guarantee.ledger)


def histograms(mechanism, data, kinds=None):
    schema = data.schema
    wide = flatten(data.train, schema, steps=schema.max_rows, pad=True)
    limits = {c.name: public_bounds(c) for c in schema.numeric}
    binning = Binning.of(
        schema, steps=schema.max_rows, bounds=limits, bins=mechanism.bins, pad=False
    )
    codes = {name: binning.encode(wide, name) for name in binning.coders}
    if kinds is None:
        kinds = np.arange(len(wide.lengths)) % mechanism.types
    return mechanism._histograms(wide, binning, codes, kinds)


@pytest.mark.parametrize("mechanism", MECHANISMS[:3], ids=["one", "two", "types"])
def test_one_user_moves_every_histogram_by_at_most_one(mechanism):
    data = tiny_tables(users=40)
    whole = histograms(mechanism, data)
    last = data.train["user"].max()  # so that the types of the others stay
    fewer = dataclasses.replace(data, train=data.train[data.train["user"] != last])
    for key, counts in histograms(mechanism, fewer).items():
        moved = whole[key] - counts
        assert (moved >= -1e-12).all()
        assert moved.sum() <= 1 + 1e-12
        assert moved.sum() == pytest.approx(1.0)  # and it is attained
        assert np.linalg.norm(moved) <= 1 + 1e-12


@RELATIONS
def test_finding_types_charges_counts_and_sums_together(relation):
    factor = math.sqrt(2) if relation is NeighboringRelation.REPLACE_ONE else 1.0
    points = np.random.default_rng(0).uniform(-1, 1, (50, 9)) / 3
    assert np.linalg.norm(points, axis=1).max() <= 1
    _, event = clustered(points, 2, mu=0.5, relation_factor=factor, rng=np.random.default_rng(0))
    # one count of 1 and one point of norm 1 in each of four rounds
    assert event.l2_sensitivity == pytest.approx(math.sqrt(2) * factor)
    assert event.count * (event.l2_sensitivity / event.stddev) ** 2 == pytest.approx(0.25)


def test_a_users_point_has_norm_one_at_most():
    data = tiny_tables()
    schema = data.schema
    wide = flatten(data.train, schema, steps=schema.max_rows, pad=True)
    limits = {c.name: (0.0, 0.1) for c in schema.numeric}  # most values lie beyond
    binning = Binning.of(schema, steps=schema.max_rows, bounds=limits, bins=4, pad=False)
    codes = {name: binning.encode(wide, name) for name in binning.coders}
    assert np.linalg.norm(described(wide, binning, codes), axis=1).max() <= 1 + 1e-12


def test_without_noise_lengths_and_transitions_come_back():
    data = tiny_tables(users=3000)
    mechanism = Markov(bins=8, clip="bounds", tables=3000)
    found = release(mechanism, data, HUGE)
    back = dataclasses.replace(data, train=found.frame, test=data.test.iloc[:0])
    true, drawn = histograms(mechanism, data), histograms(mechanism, back)
    for key in [("length",), ("first", "level"), ("next", "state"), ("row", "level", "state")]:
        distance = np.abs(true[key] / true[key].sum() - drawn[key] / drawn[key].sum()).sum() / 2
        assert distance < 0.1, key


def two_kinds(users, seed=0):
    """Half of the users go up from the bottom, half go down; only the start says which."""
    rng = np.random.default_rng(seed)
    data = tiny_tables()
    frames = []
    for user in range(users):
        up = user % 2 == 0
        level = np.clip((-8 if up else 8) + (1 if up else -1) * 1.5 * np.arange(12), -10, 10)
        frames.append(
            pd.DataFrame(
                {
                    "user": user,
                    "time": np.arange(12.0),
                    "level": np.clip(level + rng.normal(0, 0.3, 12), -10, 10),
                    "count": 5.0,
                    "state": "calm",
                }
            )
        )
    frame = pd.concat(frames, ignore_index=True)
    return dataclasses.replace(data, train=frame, test=frame.iloc[:0])


def test_types_keep_the_direction_that_one_chain_forgets():
    data = two_kinds(600)

    def wrong_turns(types):
        found = release(
            Markov(bins=8, clip="bounds", types=types, tables=600),
            data,
            Budget.approximate_dp(500.0, 1e-5),
        ).frame
        wide = found.pivot_table(index="user", columns="time", values="level")
        rising = wide[0.0] < 0
        return (wide[11.0] < wide[5.0])[rising].mean()

    assert wrong_turns(2) < 0.2 < wrong_turns(1)


def test_the_nearest_point_of_the_simplex_is_found():
    rng = np.random.default_rng(3)
    noisy = rng.normal(0, 1, (4, 5))
    found = onto_simplex(noisy, 3.0)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(3.0)
    for _ in range(200):
        other = rng.dirichlet(np.full(20, 0.3)).reshape(4, 5) * 3
        assert np.linalg.norm(other - noisy) >= np.linalg.norm(found - noisy) - 1e-12


def test_across_measures_all_of_direct_and_random_pairs_within_steps():
    mechanism = DirectAcross(horizon=4, bins=5, pairs=6)
    schema = tiny_tables().schema
    cliques = mechanism.measured(schema, np.random.default_rng(0))
    assert cliques[:12] == [(v,) for v in range(12)]
    assert cliques[12:21] == [(c * 4 + k, c * 4 + k + 1) for c in range(3) for k in range(3)]
    assert len(cliques) == 12 + 9 + 6
    assert all((two - one) % 4 == 0 for one, two in cliques[21:])
    assert cliques != mechanism.measured(schema, np.random.default_rng(1))
    small = dataclasses.replace(mechanism, max_model_size=0.004)
    info = release(small).info
    assert info["model_cells"] <= 0.004 * 2**20 / 8
    assert info["marginals"] < 27


def test_across_brings_pairs_of_columns_back_that_direct_does_not_know():
    data = tiny_tables(users=1500)
    for pairs, least in ((60, 0.7), (1, 0.0)):
        mechanism = DirectAcross(horizon=3, bins=5, pairs=pairs, clip="bounds", tables=1500)
        frame = release(mechanism, data, HUGE, seed=1).frame
        agree = (frame["state"] == "full") == (frame["level"] > 1.0)
        assert agree.mean() > least
    assert agree.mean() < 0.7  # one pair in nine: states and levels are nearly independent


@pytest.mark.parametrize(
    ("mechanism", "wrong"),
    [(Markov, {"order": 3}), (Markov, {"type_share": 0.95}), (DirectAcross, {"pairs": 0})],
)
def test_a_wrong_parameter_is_refused_by_name(mechanism, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        mechanism(**wrong)
