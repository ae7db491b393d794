"""Values are checked at birth, and survive a trip through JSON and arrays."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from panelbench import (
    Budget,
    BudgetError,
    Column,
    ColumnKind,
    DataError,
    Established,
    Estimates,
    ExponentialEvent,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    NeighboringRelation,
    PrivacyUnit,
    SampledGaussianEvent,
    Scale,
    Schema,
    SensorStreams,
    Split,
    SyntheticTables,
    UserTables,
)
from panelbench.testing import tiny_streams, tiny_tables

NONE = Guarantee(
    established=Established.NONE,
    unit=PrivacyUnit.USER,
    relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Budget.approximate_dp(0.0, 1e-5),
        lambda: Budget.approximate_dp(float("nan"), 1e-5),
        lambda: Budget.approximate_dp(1.0, 0.0),
        lambda: Budget.approximate_dp(1.0, 1.0),
        lambda: Budget.renyi_dp(1.0, 1.0),
        lambda: Budget.renyi_dp(2.0, -1.0),
        lambda: dataclasses.replace(Budget.approximate_dp(1.0, 1e-5), rho=1.0),
        lambda: GaussianEvent(stddev=0.0, l2_sensitivity=1.0),
        lambda: GaussianEvent(stddev=float("inf"), l2_sensitivity=1.0),
        lambda: GaussianEvent(stddev=1.0, l2_sensitivity=1.0, count=0),
        lambda: LaplaceEvent(scale=-1.0, l1_sensitivity=1.0),
        lambda: ExponentialEvent(epsilon=0.0),
        lambda: SampledGaussianEvent(stddev=1.0, clipping_norm=1.0, sampling_probability=0.0),
        lambda: dataclasses.replace(NONE, ledger=(ExponentialEvent(epsilon=1.0),)),
        lambda: dataclasses.replace(NONE, established=Established.DECLARED),
        lambda: dataclasses.replace(
            NONE,
            established=Established.DECLARED,
            declared=Budget.approximate_dp(1.0, 1e-5, relation=NeighboringRelation.REPLACE_ONE),
        ),
    ],
)
def test_a_malformed_budget_event_or_guarantee_is_refused_at_birth(make):
    with pytest.raises(BudgetError):
        make()


def test_a_guarantee_survives_json():
    guarantee = Guarantee(
        established=Established.SETTLED,
        unit=PrivacyUnit.SENSOR_TRAJECTORY,
        relation=NeighboringRelation.REPLACE_ONE,
        ledger=(
            GaussianEvent(stddev=2.0, l2_sensitivity=1.0, count=3),
            SampledGaussianEvent(stddev=1.0, clipping_norm=0.5, sampling_probability=0.1),
            LaplaceEvent(scale=1.0, l1_sensitivity=1.0),
            ExponentialEvent(epsilon=0.1),
        ),
        public=("the horizon",),
        note="per window",
    )
    assert Guarantee.from_json(json.loads(json.dumps(guarantee.to_json()))) == guarantee
    declared = dataclasses.replace(
        NONE, established=Established.DECLARED, declared=Budget.renyi_dp(2.0, 1.0)
    )
    assert Guarantee.from_json(json.loads(json.dumps(declared.to_json()))) == declared


@pytest.mark.parametrize(
    "make",
    [
        lambda: Column(name=""),
        lambda: Column(name="user"),
        lambda: Column(name="a", lower=1.0, upper=1.0),
        lambda: Column(name="a", lower=float("inf")),
        lambda: Column(name="a", categories=("x",)),
        lambda: Column(name="a", kind=ColumnKind.CATEGORICAL),
        lambda: Column(name="a", kind=ColumnKind.CATEGORICAL, categories=("x", "x")),
        lambda: Schema(columns=(), unit=PrivacyUnit.USER, min_rows=1, max_rows=2),
        lambda: Schema(columns=(Column(name="a"),), unit=PrivacyUnit.USER, min_rows=3, max_rows=2),
    ],
)
def test_a_malformed_schema_is_refused_at_birth(make):
    with pytest.raises(DataError):
        make()


def changed(**columns) -> pd.DataFrame:
    return tiny_tables().train.assign(**columns)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (lambda: changed(other=1), "must have the columns"),
        (lambda: changed(level=np.nan), "row 0 is missing"),
        (lambda: changed(level=np.inf), "is infinite"),
        (lambda: changed(level="high"), "column 'level'"),
        (lambda: changed(state="weird"), "'weird' is not among the 3 categories"),
        (lambda: changed(time=0.0), "two rows of one user have the same time"),
        (lambda: changed(time=np.nan), "a time is missing"),
        (
            lambda: changed(user=100),
            "has .* rows, the schema promises|same time|in train and in test",
        ),
    ],
)
def test_a_malformed_frame_is_refused_in_one_sentence(frame, said):
    with pytest.raises(DataError, match=said):
        dataclasses.replace(tiny_tables(), train=frame())


def test_a_user_in_two_splits_is_refused():
    tables = tiny_tables()
    with pytest.raises(DataError, match="is in train and in test"):
        dataclasses.replace(tables, test=tables.train)


def test_rows_are_sorted_and_the_input_is_not_touched():
    tables = tiny_tables()
    shuffled = tables.train.sample(frac=1, random_state=0)
    before = shuffled.copy()
    again = dataclasses.replace(tables, train=shuffled)
    pd.testing.assert_frame_equal(again.train, tables.train)
    pd.testing.assert_frame_equal(shuffled, before)


@pytest.mark.parametrize("dataset", [tiny_tables(), tiny_streams()], ids=["tables", "streams"])
def test_a_dataset_survives_arrays_and_json(dataset):
    arrays, meta = dataset.to_arrays()
    again = type(dataset).from_arrays(arrays, json.loads(json.dumps(meta)))
    assert again.schema == dataset.schema
    for name, array in again.to_arrays()[0].items():
        np.testing.assert_array_equal(array, arrays[name])


def test_a_mechanism_sees_neither_test_users_nor_extra_facts():
    tables = dataclasses.replace(tiny_tables(), extra={"truth": 1}, repairs={"dropped": 2})
    seen = tables.for_mechanism()
    assert len(seen.test) == 0
    assert seen.extra == seen.repairs == {}
    assert isinstance(seen, UserTables)


def test_a_mechanism_sees_the_sensors_but_not_the_state_of_test_episodes():
    streams = tiny_streams()
    seen = streams.for_mechanism()
    assert np.isnan(seen.state[streams.episodes(Split.TEST)]).all()
    assert np.isfinite(seen.state[streams.episodes(Split.TRAIN)]).all()
    assert isinstance(seen, SensorStreams)


@pytest.mark.parametrize(
    ("estimate", "spent"),
    [
        (np.zeros((2, 3)), np.zeros(3)),
        (np.full((1, 2, 3), np.nan), np.zeros(3)),
        (np.zeros((1, 2, 3)), np.zeros(2)),
        (np.zeros((1, 2, 3)), -np.ones(3)),
    ],
)
def test_malformed_estimates_are_refused(estimate, spent):
    with pytest.raises(DataError):
        Estimates(estimate=estimate, spent=spent, guarantee=NONE)


def test_an_empty_release_is_refused():
    tables = tiny_tables()
    with pytest.raises(DataError, match="no rows"):
        SyntheticTables(schema=tables.schema, frame=tables.train.iloc[:0], guarantee=NONE)


def test_a_scale_whose_perfect_value_is_impossible_is_refused():
    with pytest.raises(ValueError, match="lies outside"):
        Scale(lower=0.0, upper=1.0, perfect=2.0)
