"""The two references: real rows and no rows at all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from panelbench import (
    Budget,
    Column,
    ColumnKind,
    DataError,
    Established,
    NeighboringRelation,
    PrivacyUnit,
    Role,
    Schema,
    UserTables,
)
from panelbench_references.plugin import register_mechanisms
from panelbench_references.real_subsample import RealSubsample
from panelbench_references.schema_uniform import SchemaUniform

SCHEMA = Schema(
    columns=(
        Column(name="x", lower=-2.0, upper=6.0, nullable=True),
        Column(name="n", lower=0.5, upper=3.5, integer=True),
        Column(name="c", kind=ColumnKind.CATEGORICAL, categories=("a", "b", "c")),
    ),
    unit=PrivacyUnit.USER,
    min_rows=2,
    max_rows=5,
)
UNLIMITED = Budget.unlimited()


def frame(users):
    """Table of user u: two to five rows, all with x = u / 1000."""
    rows = np.array([2 + u % 4 for u in users])
    user = np.repeat(users, rows)
    time = np.concatenate([np.arange(r, dtype=float) for r in rows])
    return pd.DataFrame({"user": user, "time": time, "x": user / 1000, "n": 1.0, "c": "a"})


@pytest.fixture(scope="module")
def dataset():
    return UserTables(
        schema=SCHEMA, train=frame(np.arange(10, 410, 2)), test=frame(np.arange(1001, 1011))
    )


def subsample(dataset, seed=0, **fields):
    return RealSubsample(**fields).release(dataset, UNLIMITED, rng=np.random.default_rng(seed))


def uniform(dataset, seed=0, **fields):
    return SchemaUniform(**fields).release(dataset, UNLIMITED, rng=np.random.default_rng(seed))


def test_the_plugin_registers_references_and_a_baseline():
    roles = {mechanism.name: mechanism.role for mechanism in register_mechanisms()}
    assert roles == {
        "real-subsample": Role.REFERENCE,
        "schema-uniform": Role.BASELINE,
        "llm-prompting": Role.REFERENCE,
    }


def test_a_subsample_is_made_of_the_tables_of_its_copied_users(dataset):
    release = subsample(dataset, size=30)
    train = dataset.train
    real = train[train["user"].isin(release.copied_users)]
    for column in ("time", "x", "n", "c"):
        assert sorted(release.frame[column]) == sorted(real[column])
    tables = release.frame.groupby("user")
    assert (tables["x"].min() == tables["x"].max()).all()
    originals = np.rint(tables["x"].first().to_numpy() * 1000).astype(int)
    assert sorted(originals) == list(release.copied_users)
    assert (tables.size().to_numpy() == 2 + originals % 4).all()


def test_what_remains_of_train_is_disjoint_from_a_subsample(dataset):
    release = subsample(dataset, size=100)
    remaining = dataset.train[~dataset.train["user"].isin(release.copied_users)]
    assert remaining["user"].nunique() == 100
    assert not set(remaining["x"]) & set(release.frame["x"])


@pytest.mark.parametrize("size", [100, 1000, 10_000])
def test_subsamples_of_the_published_sizes_are_disjoint_from_the_rest(size):
    many = UserTables(schema=SCHEMA, train=frame(np.arange(20_000)), test=frame(np.array([30_000])))
    release = subsample(many, size=size)
    remaining = many.train[~many.train["user"].isin(release.copied_users)]
    assert release.frame["user"].nunique() == size
    assert remaining["user"].nunique() == 20_000 - size
    assert not set(remaining["x"]) & set(release.frame["x"])


def test_a_subsample_draws_without_replacement(dataset):
    copied = subsample(dataset, size=100).copied_users
    assert len(np.unique(copied)) == len(copied) == 100


def test_users_of_a_subsample_are_numbered_from_zero_without_their_order(dataset):
    release = subsample(dataset, size=50)
    assert sorted(release.frame["user"].unique()) == list(range(50))
    order = release.frame.groupby("user")["x"].first().to_numpy()
    assert (np.diff(order) < 0).any()


def test_a_subsample_leaves_at_least_half_of_the_users_and_says_so(dataset):
    release = subsample(dataset, size=1000)
    assert release.info == {"asked": 1000, "taken": 100, "training_users": 200}
    assert len(release.copied_users) == 100


def test_one_training_user_is_too_few_for_a_subsample():
    small = UserTables(schema=SCHEMA, train=frame(np.array([1])), test=frame(np.array([2])))
    with pytest.raises(DataError, match="at least two"):
        subsample(small)


def test_every_user_is_as_likely_to_be_in_a_subsample(dataset):
    draws = 400
    counts = np.zeros(1000)
    for seed in range(draws):
        counts[subsample(dataset, seed=seed, size=50).copied_users] += 1
    taken = counts[np.arange(10, 410, 2)]
    # binomial(400, 1/4), standard deviation 8.7; five and a half of them over 200 users: below 1e-5
    assert np.abs(taken - draws / 4).max() < 5.5 * np.sqrt(draws * 0.25 * 0.75)


def test_a_subsample_claims_no_privacy(dataset):
    guarantee = subsample(dataset).guarantee
    assert guarantee.established is Established.NONE


def test_a_subsample_sees_no_test_user(dataset):
    whole, hidden = subsample(dataset, size=20), subsample(dataset.for_mechanism(), size=20)
    pd.testing.assert_frame_equal(whole.frame, hidden.frame)


def test_the_schema_alone_decides_a_uniform_release(dataset):
    other = dataclasses.replace(dataset, train=frame(np.array([5])))
    pd.testing.assert_frame_equal(uniform(dataset).frame, uniform(other).frame)


def test_a_uniform_release_settles_with_an_empty_ledger(dataset):
    budget = Budget.unlimited(relation=NeighboringRelation.REPLACE_ONE)
    release = SchemaUniform().release(dataset, budget, rng=np.random.default_rng(0))
    assert release.guarantee.established is Established.SETTLED
    assert release.guarantee.ledger == ()
    assert release.guarantee.relation is NeighboringRelation.REPLACE_ONE


def test_uniform_cells_cover_bounds_categories_and_lengths(dataset):
    frame = uniform(dataset, tables=4000).frame
    lengths = frame.groupby("user").size().value_counts()
    assert set(lengths.index) == {2, 3, 4, 5}
    # each share has a standard deviation below 0.5 / sqrt(4000); 5.5 of them: below 1e-6
    assert np.abs(lengths.to_numpy() / 4000 - 0.25).max() < 5.5 * 0.5 / np.sqrt(4000)
    assert set(frame["n"]) == {1.0, 2.0, 3.0}
    assert set(frame["c"]) == {"a", "b", "c"}
    rows = len(frame)
    x = (frame["x"].to_numpy() + 2.0) / 8.0
    assert x.min() >= 0.0
    assert x.max() <= 1.0
    assert abs(x.mean() - 0.5) < 5.5 * np.sqrt(1 / 12 / rows)
    for column, size in (("n", 3), ("c", 3)):
        shares = frame[column].value_counts(normalize=True).to_numpy()
        assert np.abs(shares - 1 / size).max() < 5.5 * 0.5 / np.sqrt(rows)


def test_uniform_times_count_from_zero(dataset):
    for _, table in uniform(dataset, tables=20).frame.groupby("user"):
        assert list(table["time"]) == list(range(len(table)))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (Column(name="y", lower=0.0), "column 'y' lacks them"),
        (Column(name="y", lower=0.2, upper=0.8, integer=True), "no whole number"),
    ],
)
def test_a_column_without_usable_bounds_is_not_supported(column, reason):
    schema = Schema(columns=(column,), unit=PrivacyUnit.USER, min_rows=1, max_rows=1)
    assert reason in SchemaUniform().supports(schema, UNLIMITED)


def test_a_schema_with_bounds_is_supported():
    assert SchemaUniform().supports(SCHEMA, UNLIMITED) is None


@pytest.mark.parametrize("make", [lambda: RealSubsample(size=0), lambda: SchemaUniform(tables=0)])
def test_sizes_below_one_are_refused(make):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        make()
