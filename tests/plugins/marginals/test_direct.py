"""Direct: what it spends, what it reads, what it gives back."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panelbench import (
    Budget,
    Column,
    ColumnKind,
    Established,
    GaussianEvent,
    NeighboringRelation,
    PrivacyUnit,
    Schema,
    UserTables,
    bounds,
    coders,
)
from panelbench.accounting import excess, settle
from panelbench.binning import Binning
from panelbench.flatten import Wide, flatten, unflatten
from panelbench_marginals import chains, fit
from panelbench_marginals.direct import Direct

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
RELATIONS = pytest.mark.parametrize("relation", list(NeighboringRelation))
HUGE = Budget.zero_concentrated_dp(1e7)
COLUMNS = (
    Column(name="pressure", unit="mmHg", lower=0.0, upper=300.0, nullable=True),
    Column(name="score", lower=0.0, upper=10.0, integer=True),
    Column(name="place", kind=ColumnKind.CATEGORICAL, categories=("a", "b", "c"), nullable=True),
)
SCHEMA = Schema(columns=COLUMNS, unit=PrivacyUnit.USER, min_rows=2, max_rows=8)
IRREGULAR = dataclasses.replace(SCHEMA, regular=False, time_unit="minute")
SMALL = {"horizon": 4, "bins": 8}


def tables(rng, lengths, schema=SCHEMA):
    """Users with the given numbers of rows, values that follow each other."""
    frames = []
    for user, rows in enumerate(lengths):
        level = rng.normal(120, 20) + np.cumsum(rng.normal(0, 10, rows))
        gap = rng.exponential(60, rows) + 0.1
        frames.append(
            pd.DataFrame(
                {
                    "user": user,
                    "time": np.arange(rows, dtype=float) if schema.regular else np.cumsum(gap),
                    "pressure": np.where(rng.random(rows) < 0.1, np.nan, np.clip(level, 0, 300)),
                    "score": rng.integers(0, 11, rows).astype(float),
                    "place": rng.choice(np.array(["a", "b", "c", None], object), rows),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def dataset(rng, count=60, schema=SCHEMA):
    frame = tables(rng, rng.integers(2, 9, count), schema)
    return UserTables(schema=schema, train=frame, test=frame.iloc[:0])


def without(data, user):
    return dataclasses.replace(data, train=data.train[data.train["user"] != user])


def exact(data, mechanism):
    """The exact marginals the mechanism counts, in one vector, and how many they are."""
    steps = min(mechanism.horizon, data.schema.max_rows)
    wide = flatten(data.train, data.schema, steps=steps, pad=mechanism.pad)
    limits = {c.name: bounds.public_bounds(c) for c in data.schema.numeric}
    of = Binning.of(data.schema, steps=steps, bounds=limits, bins=mechanism.bins, pad=mechanism.pad)
    counted = [chains.counted(of.encode(wide, name), of.sizes(name)) for name in of.coders]
    return np.concatenate([c.vector() for c in counted]), sum(c.marginals for c in counted)


@pytest.mark.parametrize("clip", ["bounds", "dp"])
@RELATIONS
@pytest.mark.parametrize(
    "budget",
    [
        Budget.approximate_dp(1.0, 1e-5),
        Budget.renyi_dp(2.0, 1.5),
        Budget.zero_concentrated_dp(0.1),
    ],
    ids=["dp", "rdp", "zcdp"],
)
def test_the_ledger_composes_exactly_to_the_budget(budget, relation, clip):
    budget = dataclasses.replace(budget, relation=relation)
    data = dataset(np.random.default_rng(0))
    release = Direct(**SMALL, clip=clip, iterations=50).release(
        data, budget, rng=np.random.default_rng(1)
    )
    assert excess(release.guarantee, budget, unit=PrivacyUnit.USER) is None
    found = settle(release.guarantee, delta=budget.delta, alpha=budget.alpha)
    for name in ("epsilon", "b_g", "rho"):
        if getattr(budget, name) is not None:
            assert getattr(found, name) == pytest.approx(getattr(budget, name), rel=1e-9)


@RELATIONS
@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("schema", [SCHEMA, IRREGULAR], ids=["regular", "irregular"])
def test_one_user_moves_all_marginals_by_no_more_than_is_charged(relation, pad, schema):
    rng = np.random.default_rng(2)
    data = dataset(rng, 30, schema)
    mechanism = Direct(**SMALL, pad=pad)
    whole, marginals = exact(data, mechanism)
    largest = 0.0
    for user in range(30):
        fewer = without(data, user)
        other = fewer
        if relation is REPLACE:
            newcomer = tables(rng, [rng.integers(2, 9)], schema).assign(user=99)
            other = dataclasses.replace(data, train=pd.concat([fewer.train, newcomer]))
        moved, same = exact(other, mechanism)
        assert same == marginals
        largest = max(largest, float(np.linalg.norm(whole - moved)))
    sensitivity = 1.0 if relation is ADD else math.sqrt(2)
    assert largest <= sensitivity * math.sqrt(marginals) * (1 + 1e-12)
    if relation is ADD:
        assert largest == pytest.approx(math.sqrt(marginals))  # and it is attained


def test_a_user_adds_at_most_one_to_the_histogram_for_bounds():
    rng = np.random.default_rng(3)
    data = dataset(rng, 1)
    for rows in (2, 5, 8):
        one = dataclasses.replace(data, train=tables(rng, [rows]))
        wide = flatten(one.train, SCHEMA, steps=4, pad=True)
        assert bounds.one_value_each(wide, COLUMNS[0], rng).sum() <= 1
    nothing = dataclasses.replace(wide, cells={"pressure": np.full((1, 4), np.nan)})
    assert bounds.one_value_each(nothing, COLUMNS[0], rng).sum() == 0


def test_replace_one_costs_a_factor_of_the_square_root_of_two_in_noise():
    data = dataset(np.random.default_rng(4))
    stddev = [
        Direct(**SMALL, iterations=50)
        .release(
            data,
            Budget.approximate_dp(1.0, 1e-5, relation=relation),
            rng=np.random.default_rng(0),
        )
        .info["stddev"]
        for relation in (ADD, REPLACE)
    ]
    assert stddev[1] == pytest.approx(math.sqrt(2) * stddev[0])


@pytest.mark.parametrize("pad", [False, True])
def test_ledger_guarantee_and_sizes_do_not_depend_on_the_data(pad):
    rng = np.random.default_rng(5)
    data = dataset(rng)
    short = UserTables(schema=SCHEMA, train=tables(rng, [2, 3]), test=data.test)
    releases = [
        Direct(**SMALL, pad=pad, iterations=50, tables=20).release(
            one, Budget.approximate_dp(1.0, 1e-5), rng=np.random.default_rng(0)
        )
        for one in (data, without(data, 7), short)
    ]
    assert releases[0].guarantee == releases[1].guarantee == releases[2].guarantee
    assert {r.frame["user"].nunique() for r in releases} == {20}
    assert releases[0].info["marginals"] == 3 * (4 + 3)


def test_the_number_of_tables_is_what_the_noisy_marginals_say_up_to_the_limit():
    data = dataset(np.random.default_rng(6), 200)
    budget = Budget.approximate_dp(8.0, 1e-5)
    mechanism = Direct(**SMALL, pad=True, iterations=50)
    release = mechanism.release(data, budget, rng=np.random.default_rng(0))
    estimated = release.info["estimated_users"]
    assert release.frame["user"].nunique() == round(estimated) != 200
    assert estimated == pytest.approx(200, abs=40)
    few = dataclasses.replace(mechanism, max_tables=11)
    assert few.release(data, budget, rng=np.random.default_rng(0)).frame["user"].nunique() == 11


@pytest.mark.parametrize("pad", [False, True])
def test_without_noise_the_true_marginals_come_back(pad):
    data = dataset(np.random.default_rng(7), 400)
    mechanism = Direct(**SMALL, pad=pad, clip="bounds", iterations=4000, tables=20_000)
    release = mechanism.release(data, HUGE, rng=np.random.default_rng(0))
    back = UserTables(schema=SCHEMA, train=release.frame, test=data.test)
    # one-way, two-way and, with padding, lengths: total variation per marginal
    true, marginals = exact(data, mechanism)
    found, _ = exact(back, mechanism)
    users = 400 if pad else int((data.train["user"].value_counts() >= 4).sum())
    distance = np.abs(true / users - found / 20_000).sum() / 2 / marginals
    assert distance < 0.05


def test_with_padding_the_lengths_come_back_and_respect_the_smallest():
    data = dataset(np.random.default_rng(8), 600)
    release = Direct(**SMALL, pad=True, iterations=2000, tables=20_000).release(
        data, HUGE, rng=np.random.default_rng(0)
    )
    lengths = release.frame["user"].value_counts()
    true = np.minimum(data.train["user"].value_counts(), 4)
    assert lengths.min() == 2
    for rows in (2, 3, 4):
        # binomial error of 20,000 draws: five standard errors are 0.018
        assert (lengths == rows).mean() == pytest.approx((true == rows).mean(), abs=0.025)


@pytest.mark.parametrize("schema", [SCHEMA, IRREGULAR], ids=["regular", "irregular"])
@pytest.mark.parametrize("clip", ["bounds", "dp", "paper"])
def test_released_values_are_valid_for_the_schema(schema, clip):
    data = dataset(np.random.default_rng(9), 80, schema)
    release = Direct(**SMALL, pad=True, clip=clip, iterations=50).release(
        data, Budget.approximate_dp(1.0, 1e-5), rng=np.random.default_rng(0)
    )
    frame = release.frame  # SyntheticTables checks categories, missing values and time order
    for column in schema.numeric:
        values = frame[column.name].dropna()
        assert values.between(column.lower, column.upper).all()
    assert (frame["score"] == frame["score"].round()).all()
    assert frame["pressure"].isna().any()
    if schema.regular:
        assert set(frame["time"]) <= {0.0, 1.0, 2.0, 3.0}


def test_the_papers_clip_is_not_private_and_says_why():
    data = dataset(np.random.default_rng(10))
    budget = Budget.approximate_dp(1.0, 1e-5)
    release = Direct(**SMALL, clip="paper", iterations=50).release(
        data, budget, rng=np.random.default_rng(0)
    )
    assert release.guarantee.established is Established.NONE
    assert "99th percentile" in release.guarantee.note
    assert excess(release.guarantee, budget, unit=PrivacyUnit.USER) is not None


def test_one_seed_gives_one_release_and_global_randomness_is_left_alone():
    data = dataset(np.random.default_rng(11))
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - that is what must not move
    one, two = (
        Direct(**SMALL, iterations=50).release(data, HUGE, rng=np.random.default_rng(3))
        for _ in range(2)
    )
    pd.testing.assert_frame_equal(one.frame, two.frame)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002 - likewise


@given(lengths=st.lists(st.integers(2, 8), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_flattening_and_back_keeps_the_first_rows(lengths, seed):
    schema = IRREGULAR if seed % 2 else SCHEMA
    data = dataset(np.random.default_rng(seed), 1, schema)
    frame = dataclasses.replace(
        data, train=tables(np.random.default_rng(seed), lengths, schema)
    ).train
    back = unflatten(flatten(frame, schema, steps=4, pad=True), schema)
    first = frame.groupby("user").head(4).reset_index(drop=True)
    pd.testing.assert_frame_equal(back, first, check_dtype=False)


def test_users_with_fewer_rows_are_left_out_unless_padded():
    frame = tables(np.random.default_rng(12), [2, 4, 8, 3])
    data = UserTables(schema=SCHEMA, train=frame, test=frame.iloc[:0])
    assert flatten(data.train, SCHEMA, steps=4, pad=False).lengths.tolist() == [4, 4]
    assert flatten(data.train, SCHEMA, steps=4, pad=True).lengths.tolist() == [2, 4, 4, 3]


CODERS = [
    coders.column_coder(COLUMNS[0], lower=0.0, upper=300.0, bins=32),
    coders.column_coder(COLUMNS[1], lower=0.0, upper=10.0, bins=32),
    coders.column_coder(COLUMNS[1], lower=0.0, upper=10.0, bins=4),
    coders.column_coder(COLUMNS[1], lower=3.1, upper=3.4, bins=4),
    coders.column_coder(COLUMNS[2], lower=0.0, upper=1.0, bins=32),
    coders.HourOfDay(per_day=1440.0),
    coders.Gaps(per_day=1440.0),
]


@pytest.mark.parametrize("coder", CODERS, ids=lambda c: f"{type(c).__name__}-{c.size}")
def test_a_decoded_bin_is_encoded_as_the_same_bin(coder):
    codes = np.tile(np.arange(coder.size), 200)
    values = coder.decode(codes, np.random.default_rng(13))
    np.testing.assert_array_equal(coder.encode(values), codes)


def test_missing_values_have_a_bin_of_their_own_and_values_beyond_the_bounds_go_to_the_edges():
    pressure, *_ = CODERS
    codes = pressure.encode(np.array([-5.0, 0.0, 300.0, 999.0, np.nan]))
    assert codes.tolist() == [0, 0, 31, 31, 32]


def test_whole_numbers_get_at_most_one_bin_each():
    assert CODERS[1].size == 11
    drawn = CODERS[2].decode(np.repeat(np.arange(4), 500), np.random.default_rng(0))
    assert sorted(set(drawn)) == list(range(11))


def test_noise_has_the_stated_size():
    chain = chains.counted(np.zeros((0, 40), dtype=int), (50,) * 40)
    noise = chains.noisy(chain, 3.0, np.random.default_rng(14)).vector()
    # 99,500 numbers; five standard errors: false alarm 6e-7
    assert noise.std() == pytest.approx(3.0, rel=5 / math.sqrt(2 * len(noise)))


def test_steps_with_fewer_bins_get_no_mass_in_the_padding():
    rng = np.random.default_rng(15)
    codes = np.stack([rng.integers(0, 3, 500), rng.integers(0, 6, 500)], axis=1)
    chain = chains.counted(codes, (3, 6))
    wide = chains.counted(rng.integers(0, 9, (500, 2)), (9, 9))
    found, _ = fit.fitted([chain, wide], 500.0, iterations=2000)
    assert found.two[0].shape == (3, 6)
    assert found.two[0].sum() == pytest.approx(500.0)
    np.testing.assert_allclose(found.two[0], chain.two[0], atol=3.0)


def test_a_horizon_of_one_row_needs_no_pairs():
    data = dataset(np.random.default_rng(16))
    release = Direct(horizon=1, bins=8, iterations=50).release(
        data, HUGE, rng=np.random.default_rng(0)
    )
    assert release.info["marginals"] == 3
    assert (release.frame["time"] == 0).all()


def test_noisy_bounds_keep_the_public_ones_where_noise_drowns_the_data():
    rng = np.random.default_rng(17)
    column = COLUMNS[0]
    assert bounds.noisy_bounds(rng.normal(0, 1e-9, 64), 5.0, column) == (0.0, 300.0)
    values = rng.normal(120, 10, 5000)
    wide = Wide(cells={"pressure": values[:, None]}, lengths=np.ones(5000, dtype=int))
    histogram = bounds.one_value_each(wide, column, rng)
    low, high = bounds.noisy_bounds(histogram + rng.normal(0, 5.0, 64), 5.0, column)
    assert 70 < low < 100
    assert 140 < high < 170


def test_what_cannot_be_done_is_said_in_advance():
    budget = Budget.approximate_dp(1.0, 1e-5)
    assert Direct().supports(SCHEMA, budget) is None
    assert "limited" in Direct().supports(SCHEMA, Budget.unlimited())
    steps = dataclasses.replace(IRREGULAR, time_unit="visit")
    assert "visit" in Direct().supports(steps, budget)
    open_ended = dataclasses.replace(SCHEMA, columns=(Column(name="cost"),))
    assert "cost" in Direct().supports(open_ended, budget)
    assert Direct(clip="paper").supports(open_ended, budget) is None


@pytest.mark.parametrize(
    "wrong", [{"clip": "p99"}, {"horizon": 0}, {"clip_share": 1.0}, {"tables": 0}, {"bins": 0}]
)
def test_a_wrong_parameter_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Direct(**wrong)


def test_the_ledger_is_one_gaussian_event_for_the_marginals_after_one_for_the_bounds():
    data = dataset(np.random.default_rng(18))
    release = Direct(**SMALL, iterations=50).release(data, HUGE, rng=np.random.default_rng(0))
    clipping, marginals = release.guarantee.ledger
    assert isinstance(clipping, GaussianEvent)
    assert (clipping.count, marginals.count) == (2, 21)
