"""Transitions of categories, correlations, copies and invalid values, against counts by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pandas as pd
import pytest

from panelbench import DataError, UserTables
from panelbench_metrics.categories import ComplaintTransitions
from panelbench_metrics.copies import ExactCopies
from panelbench_metrics.correlation import CorrelationError
from panelbench_metrics.invalid import InvalidShare


def matrix(frame, types):
    """Row-normalised counts of adjacent types, pair by pair."""
    counts = np.zeros((len(types), len(types)))
    for _, table in frame.groupby("user"):
        wards = table["ward"].tolist()
        for a, b in itertools.pairwise(wards):
            if a in types and b in types:
                counts[types.index(a), types.index(b)] += 1
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


@pytest.mark.parametrize("top", [2, 20])
def test_transitions_are_those_of_a_loop_over_pairs(dataset, as_release, scores_of, top):
    got = scores_of(ComplaintTransitions(top=top), dataset, as_release(dataset.train))["error"]
    types = dataset.train["ward"].value_counts().index.tolist()[:top]
    expected = np.linalg.norm(matrix(dataset.test, types) - matrix(dataset.train, types))
    assert got.value == got.detail["ward"] == pytest.approx(expected, rel=1e-12)


def test_types_are_ranked_on_train_users_that_are_not_copied(dataset, as_release, scores_of):
    train = dataset.train.copy()
    train["ward"] = train["ward"].astype(object)
    train.loc[train["user"] < 60, "ward"] = "c"
    skewed = UserTables(schema=dataset.schema, train=train, test=dataset.test)
    got = scores_of(
        ComplaintTransitions(top=2), skewed, as_release(dataset.train, copied=range(60))
    )
    types = ["a", "b"]
    expected = np.linalg.norm(matrix(dataset.test, types) - matrix(dataset.train, types))
    assert got["error"].value == pytest.approx(expected, rel=1e-12)


def test_a_column_that_is_not_there_is_named(dataset, as_release, scores_of):
    with pytest.raises(DataError, match=r"'heart' is none; there are \['ward'\]"):
        scores_of(ComplaintTransitions(column="heart"), dataset, as_release(dataset.test))
    named = scores_of(ComplaintTransitions(column="ward"), dataset, as_release(dataset.test))
    assert named["error"].value == 0.0


def test_correlations_are_those_of_pandas(dataset, as_release, scores_of):
    got = scores_of(CorrelationError(), dataset, as_release(dataset.train))
    cross = [f["heart"].corr(f["pressure"]) for f in (dataset.test, dataset.train)]
    assert got["cross"].value == pytest.approx(abs(cross[0] - cross[1]), rel=1e-9)
    assert set(got["cross"].detail) == {"heart x pressure"}
    for name in ("heart", "pressure"):
        lags = [
            f[name].corr(f.groupby("user")[name].shift()) for f in (dataset.test, dataset.train)
        ]
        assert got["lag1"].detail[name] == pytest.approx(abs(lags[0] - lags[1]), rel=1e-9)


def test_a_constant_column_has_the_most_wrong_correlation(dataset, as_release, scores_of):
    got = scores_of(CorrelationError(), dataset, as_release(dataset.test.assign(heart=80.0)))
    real = dataset.test["heart"].corr(dataset.test["pressure"])
    assert got["cross"].value == pytest.approx(1.0 + abs(real))


def test_shuffled_rows_lose_the_lag_and_keep_the_cross_correlation(dataset, as_release, scores_of):
    order = np.random.default_rng(0).permutation(len(dataset.test))
    frame = dataset.test.copy()
    frame[["heart", "pressure", "ward"]] = (
        dataset.test[["heart", "pressure", "ward"]].iloc[order].to_numpy()
    )
    got = scores_of(CorrelationError(), dataset, as_release(frame))
    assert got["cross"].value == pytest.approx(0.0, abs=1e-12)
    assert got["lag1"].value > 0.3


def test_the_more_rows_are_exchanged_the_worse_are_correlations(dataset, as_release, scores_of):
    rng = np.random.default_rng(0)
    chosen, order = rng.random(len(dataset.test)), rng.permutation(len(dataset.test))
    values = {"cross": [], "lag1": []}
    for share in (0.0, 0.3, 0.6, 1.0):
        heart = dataset.test["heart"].to_numpy()
        level = np.where(chosen < share, 90.0 + 0.1 * (heart[order] - 90.0), heart)
        got = scores_of(CorrelationError(), dataset, as_release(dataset.test.assign(heart=level)))
        for component, score in got.items():
            values[component].append(score.value)
    assert values["lag1"] == sorted(values["lag1"])
    assert values["lag1"][-1] > values["lag1"][1] > 0.0
    assert max(values["cross"]) > values["cross"][0] == 0.0


def test_copied_tables_and_rows_are_counted(dataset, as_release, scores_of):
    copied = dataset.train[dataset.train["user"] < 30]
    fresh = dataset.train[dataset.train["user"].between(30, 59)].assign(
        heart=lambda f: f["heart"] + 0.001, pressure=lambda f: f["pressure"] + 0.001
    )
    release = as_release(pd.concat([copied, fresh]), copied=range(30))
    got = scores_of(ExactCopies(), dataset, release)
    in_train = set(map(str, dataset.train[["heart", "pressure", "ward"]].to_numpy().tolist()))
    rows, chance = (
        np.mean(
            [str(row) in in_train for row in f[["heart", "pressure", "ward"]].to_numpy().tolist()]
        )
        for f in (release.frame, dataset.test)
    )
    assert got["rows"].value == pytest.approx(rows - chance)
    alone = {str(t) for t in lists(dataset.train)}
    share = np.mean([str(t) in alone for t in lists(release.frame)])
    expected = share - np.mean([str(t) in alone for t in lists(dataset.test)])
    assert got["tables"].value == pytest.approx(expected)
    assert got["tables"].value >= 0.5


def lists(frame):
    return [t[["heart", "pressure", "ward"]].to_numpy().tolist() for _, t in frame.groupby("user")]


def test_the_order_of_rows_makes_another_table_and_the_same_rows(dataset, as_release, scores_of):
    long = dataset.train[dataset.train.groupby("user")["user"].transform("size") > 3]
    got = scores_of(ExactCopies(), dataset, as_release(long.assign(time=-long["time"])))
    assert got["tables"].value == 0.0
    assert got["rows"].detail["release"] == 1.0


def test_more_copies_score_higher(dataset, as_release, scores_of):
    values = []
    for users in (0, 20, 60, 120):
        fresh = dataset.train["user"] >= users
        frame = dataset.train.assign(heart=dataset.train["heart"] + 0.01 * fresh)
        got = scores_of(ExactCopies(), dataset, as_release(frame))
        values.append(got["tables"].value)
    assert values == sorted(values)
    assert values[-1] > values[1]


def test_zeros_of_either_sign_are_one_value(tables, one_column, as_release, scores_of):
    dataset = tables(one_column([0.0, 1.0]), one_column([5.0], first=9))
    got = scores_of(ExactCopies(), dataset, as_release(one_column([-0.0, 1.0]), dataset.schema))
    assert got["tables"].value == 1.0


def test_values_outside_the_bounds_are_counted(dataset, as_release, scores_of):
    frame = dataset.test.copy()
    known = frame.index[frame["heart"].notna()]
    frame.loc[known[:10], "heart"] = 301.0
    got = scores_of(InvalidShare(), dataset, as_release(frame))
    assert got["cells"].detail == pytest.approx({"heart": 10 / len(known), "pressure": 0.0})
    assert got["cells"].value == pytest.approx(5 / len(known))
    assert got["tables"].value == 0.0
    assert "rejected" not in got


def test_broken_numbers_and_long_tables_are_counted(dataset, as_release, scores_of):
    heart = dataclasses.replace(dataset.schema["heart"], integer=True)
    schema = dataclasses.replace(
        dataset.schema, columns=(heart, *dataset.schema.columns[1:]), max_rows=12
    )
    whole = {s: getattr(dataset, s).round({"heart": 0}) for s in ("train", "test")}
    panel = UserTables(schema=schema, **whole)
    frame = pd.concat([panel.test, panel.test.assign(time=panel.test["time"] + 0.5, heart=80.5)])
    got = scores_of(InvalidShare(), panel, as_release(frame, schema))
    rows = frame.groupby("user").size()
    assert got["tables"].value == pytest.approx((rows > 12).mean())
    half = frame["heart"].notna() & (frame["heart"] % 1 != 0)
    assert got["cells"].detail["heart"] == pytest.approx(half.sum() / frame["heart"].notna().sum())


def test_rejected_rows_are_told_by_the_release(dataset, as_release, scores_of):
    info = {"rows_generated": 200, "rows_accepted": 150}
    release = dataclasses.replace(as_release(dataset.test), info=info)
    assert scores_of(InvalidShare(), dataset, release)["rejected"].value == 0.25


@pytest.mark.parametrize("top", [1, 1001])
def test_a_top_out_of_range_is_refused(top):
    with pytest.raises(ValueError, match=f"between 2 and 1000, got {top}"):
        ComplaintTransitions(top=top)


def test_the_scale_of_transitions_covers_the_most_types():
    assert ComplaintTransitions.components["error"].upper == math.sqrt(2000)
