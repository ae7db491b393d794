"""A13: what every metric of tables promises about its scale."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from panelbench import USER_TABLES, DataError, Direction
from panelbench_metrics.categories import ComplaintTransitions
from panelbench_metrics.copies import ExactCopies
from panelbench_metrics.correlation import CorrelationError
from panelbench_metrics.hours import HourOfDayW1
from panelbench_metrics.invalid import InvalidShare
from panelbench_metrics.length import LengthW1
from panelbench_metrics.likelihood import HmmLikelihood
from panelbench_metrics.marginal import MarginalW1
from panelbench_metrics.mauve import Mauve
from panelbench_metrics.plugin import register_metrics
from panelbench_metrics.spatial import SpatialJsd
from panelbench_metrics.tdcr import Tdcr
from panelbench_metrics.transition import TransitionError
from panelbench_metrics.two_sample import ClassifierTwoSample

METRICS = [
    MarginalW1(),
    TransitionError(),
    Tdcr(),
    LengthW1(),
    Mauve(seeds=2),
    ClassifierTwoSample(),
    ComplaintTransitions(),
]
OTHERS = [CorrelationError(), ExactCopies(), InvalidShare()]  # what the damage below may not touch
ELSEWHERE = [HmmLikelihood(), HourOfDayW1(), SpatialJsd()]  # other data: test_likelihood and so on
CUT = [Tdcr, TransitionError, Mauve, ClassifierTwoSample, ComplaintTransitions, CorrelationError]


def damaged(frame, share, rng):
    """Spoil a share of the tables: cut, shuffle and shift them, and lose values."""
    users = frame["user"].unique()
    spoilt = frame["user"].isin(users[rng.permutation(len(users))[: round(share * len(users))]])
    first = ~frame.duplicated("user")
    frame = frame[~spoilt | first | (rng.random(len(frame)) < 0.3)].copy()
    spoilt = spoilt[frame.index].to_numpy()
    for name, shift in (("heart", 30.0), ("pressure", -40.0)):
        values = frame[name].to_numpy(copy=True)
        values[spoilt] = rng.permutation(values[spoilt]) + shift
        values[spoilt & (rng.random(len(values)) < 0.3)] = np.nan
        frame[name] = values
    frame["ward"] = frame["ward"].astype(object).where(~spoilt, "c")
    return frame


def test_every_metric_is_registered():
    tables = {metric for metric in register_metrics() if metric.kind == USER_TABLES}
    assert tables == {type(metric) for metric in (*METRICS, *OTHERS, *ELSEWHERE)}


@pytest.mark.parametrize("metric", METRICS + OTHERS, ids=lambda m: m.name)
def test_a13_the_test_users_themselves_are_perfect(metric, dataset, as_release, scores_of):
    got = scores_of(metric, dataset, as_release(dataset.test))
    perfect = {component: scale.perfect for component, scale in metric.components.items()}
    perfect = {component: perfect[component] for component in got}
    # the area that is mauve's is a sum of 27 terms
    rounding = 1e-12 if metric.name == "mauve" else 0.0
    values = {component: score.value for component, score in got.items()}
    assert values == pytest.approx(perfect, abs=rounding, rel=0.0)


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_a13_more_damage_is_never_better(metric, dataset, as_release, scores_of):
    levels = (0.0, 0.2, 0.5, 1.0)
    means = {}
    for level in levels:
        for repeat in range(1 if metric.name == "classifier-two-sample" else 5):
            release = as_release(damaged(dataset.test, level, np.random.default_rng(repeat)))
            for component, score in scores_of(metric, dataset, release).items():
                means.setdefault(component, {}).setdefault(level, []).append(score.value)
    for component, by_level in means.items():
        sign = 1.0 if metric.components[component].direction is Direction.LOWER else -1.0
        values = [sign * float(np.mean(by_level[level])) for level in levels]
        assert values == sorted(values), component
        assert values[-1] > values[1], component


@pytest.mark.parametrize("metric", METRICS + OTHERS, ids=lambda m: m.name)
def test_a13_scores_of_poor_releases_stay_on_the_scale(metric, dataset, as_release, scores_of):
    poor = {
        "one row": dataset.test.iloc[:1],
        "one-row tables": dataset.test.groupby("user").head(1),
        "everything missing": dataset.test.assign(heart=np.nan, pressure=np.nan, ward=None),
        "one value": dataset.test.assign(heart=0.0, pressure=1e9, ward="a"),
        "train itself": dataset.train,
    }
    for name, frame in poor.items():
        for component, score in scores_of(metric, dataset, as_release(frame)).items():
            scale = metric.components[component]
            assert scale.lower <= score.value <= scale.upper, name
            assert math.isfinite(score.value), name
            assert score.floor is None or scale.lower <= score.floor <= scale.upper, name
            assert all(math.isfinite(value) for value in score.detail.values()), name


@pytest.mark.parametrize("metric", METRICS + OTHERS, ids=lambda m: m.name)
def test_a_seed_decides_every_digit(metric, dataset, as_release, scores_of):
    release = as_release(dataset.train[dataset.train["user"] < 30], copied=range(30))
    first, again = (scores_of(metric, dataset, release, seed=3) for _ in "ab")
    assert first == again


@pytest.mark.parametrize(
    "metric", [m for m in METRICS if m.name != "classifier-two-sample"], ids=lambda m: m.name
)
def test_real_users_score_near_the_floor(metric, dataset, as_release, scores_of):
    release = as_release(dataset.train[dataset.train["user"] < 60], copied=range(60))
    spoilt = as_release(damaged(release.frame, 0.5, np.random.default_rng(0)), copied=range(60))
    good, bad = (scores_of(metric, dataset, r) for r in (release, spoilt))
    for component, score in good.items():
        assert abs(score.value - score.floor) < abs(bad[component].value - score.floor), component


@pytest.mark.parametrize("cls", CUT, ids=lambda c: c.name)
def test_rows_cut_both_sides_and_drop_shorter_tables(cls, dataset, as_release, scores_of):
    def cut(frame, rows=5):
        long = frame[frame.groupby("user")["user"].transform("size") >= rows]
        return long[long.groupby("user").cumcount() < rows]

    by_hand = dataclasses.replace(dataset, train=cut(dataset.train), test=cut(dataset.test))
    release, copied = dataset.train[dataset.train["user"] < 60], range(60)
    got = scores_of(cls(rows=5), dataset, as_release(release, copied=copied))
    expected = scores_of(cls(), by_hand, as_release(cut(release), copied=copied))
    assert got == {n: dataclasses.replace(s, panels={}) for n, s in expected.items()}


def test_rows_that_no_table_has_are_refused(dataset, as_release, scores_of):
    with pytest.raises(DataError, match="No table of the test has 13 rows; give a smaller `rows`"):
        scores_of(TransitionError(rows=13), dataset, as_release(dataset.test))
    short = as_release(dataset.test.groupby("user").head(1))
    with pytest.raises(DataError, match="No table of the release has 2 rows"):
        scores_of(TransitionError(rows=2), dataset, short)


@pytest.mark.parametrize("cls", [*CUT, HmmLikelihood], ids=lambda c: c.name)
def test_rows_below_one_are_refused(cls):
    with pytest.raises(ValueError, match="rows must be at least 1, or left out"):
        cls(rows=0)
