"""Facts about `path/regimes`: what it spends, and what comes out."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from panelbench import (
    Budget,
    Column,
    ColumnKind,
    Established,
    NeighboringRelation,
    PrivacyUnit,
    Schema,
    UserTables,
)
from panelbench.accounting import settle
from panelbench.flatten import flatten
from panelbench.panels import tiny_tables
from panelbench_datasets.hmm import Hmm
from panelbench_path import measuring
from panelbench_path.codebook import Quantiles
from panelbench_path.regime_fit import (
    Release,
)
from panelbench_path.regimes import (
    APART_CLIP,
    START_CLIP,
    Noise,
    Regimes,
    RegimesNonprivate,
    decoded,
    rows_of,
)

BUDGET = Budget.approximate_dp(2.0, 1e-3)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_the_ledger_spends_the_budget(relation: NeighboringRelation) -> None:
    budget = dataclasses.replace(BUDGET, relation=relation)
    data = tiny_tables()
    release = Regimes().release(data.for_mechanism(), budget, rng=np.random.default_rng(0))
    assert release.guarantee.established is Established.SETTLED
    figures = settle(release.guarantee, delta=budget.delta, alpha=budget.alpha)
    assert 0.999 * 2.0 < figures.epsilon <= 2.0 * (1 + 1e-9)
    factor = 2.0 if relation is NeighboringRelation.REPLACE_ONE else 1.0
    later = release.guarantee.ledger[-3:]
    assert [e.l2_sensitivity for e in later] == [  # type: ignore[union-attr]
        factor * clip for clip in (START_CLIP, APART_CLIP, Regimes().clip)
    ]
    assert [e.count for e in later] == [1, 4, 8]  # type: ignore[union-attr]


def test_noise_is_that_of_the_ledger_and_follows_from_metadata_alone() -> None:
    schema = tiny_tables().schema
    for budget in (Budget.renyi_dp(2.0, 0.5), Budget.zero_concentrated_dp(0.3)):
        noise = Noise.of(Regimes(), schema, budget)
        assert noise == Noise.of(Regimes(), schema, budget)
        stddevs = [e.stddev for e in noise.ledger]  # type: ignore[union-attr]
        used = [*noise.marginals.values()]
        used += [r.stddev for r in (noise.start, noise.apart, noise.whole)]
        assert stddevs == used


def test_what_is_released_is_what_the_ledger_charges(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[float, float]] = []
    own = Release.of

    def counted(self: Release, vectors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        calls.append((self.clip, self.stddev))
        sums = own(self, vectors, rng)
        again = own(dataclasses.replace(self, stddev=0.0), vectors, np.random.default_rng(0))
        if self.stddev * math.sqrt(len(sums)) > 1:
            spread = np.abs(sums - again).mean() / self.stddev  # 0.8 for normal noise
            assert 0.3 < spread < 1.6
        return sums

    marginals: list[dict[str, float]] = []
    measure = measuring.measure

    def noted(*args: Any, stddev_of: dict[str, float], **more: Any) -> measuring.Measured:
        marginals.append(stddev_of)
        return measure(*args, stddev_of=stddev_of, **more)

    monkeypatch.setattr(Release, "of", counted)
    monkeypatch.setattr(measuring, "measure", noted)
    release = Regimes(apart=2, steps=3).release(
        tiny_tables().for_mechanism(), BUDGET, rng=np.random.default_rng(0)
    )
    charged = [
        (e.l2_sensitivity, e.stddev)  # type: ignore[union-attr]
        for e in release.guarantee.ledger
        for _ in range(e.count)  # type: ignore[union-attr]
    ]
    (used,) = marginals
    sensitivities = measuring.sensitivities(tiny_tables().schema)
    assert [(sensitivities[n], used[n]) for n in used] + calls == charged


def test_marginals_get_the_noise_they_are_said_to_get() -> None:
    data = tiny_tables()
    table = flatten(data.train, data.schema, steps=data.schema.max_rows, pad=True)
    exact = measuring.masses(table, data.schema)
    quiet = dict.fromkeys(measuring.sensitivities(data.schema), 1e-9)
    loud = dict.fromkeys(quiet, 40.0)
    found = [
        measuring.measure(exact, data.schema, stddev_of=s, rng=np.random.default_rng(0))
        for s in (quiet, loud)
    ]
    assert found[0].users == pytest.approx(data.train["user"].nunique())
    loud_codes = found[1].codebook.codes
    for name, code in found[0].codebook.codes.items():
        if isinstance(code, Quantiles):
            assert np.abs(code.cdf - loud_codes[name].cdf).max() > 0.01  # type: ignore[union-attr]
        else:
            assert np.abs(code.shares - loud_codes[name].shares).max() > 0.01
    assert np.abs(found[0].lengths - found[1].lengths).max() > 0.01


def seen_by_half(seed: int = 0) -> UserTables:
    """Half of the users have ten low values, the others one high one and nine missing."""
    rng = np.random.default_rng(seed)
    users, steps = 400, 10
    values = np.where(np.arange(users)[:, None] % 2 == 0, 0.25, 0.75) + rng.uniform(
        -0.2, 0.2, (users, steps)
    )
    values[1::2, 1:] = np.nan
    frame = pd.DataFrame(
        {
            "user": np.repeat(np.arange(users), steps),
            "time": np.tile(np.arange(float(steps)), users),
            "x": values.ravel(),
        }
    )
    column = Column(name="x", lower=0.0, upper=1.0, nullable=True)
    schema = Schema(columns=(column,), unit=PrivacyUnit.USER, min_rows=steps, max_rows=steps)
    return UserTables(schema=schema, train=frame, test=frame.iloc[:0])


def test_values_keep_their_place_where_some_users_are_seldom_seen() -> None:
    data = seen_by_half()
    table = flatten(data.train, data.schema, steps=10, pad=True)
    quiet = dict.fromkeys(measuring.sensitivities(data.schema), 0.0)
    book = measuring.measure(
        measuring.masses(table, data.schema),
        data.schema,
        stddev_of=quiet,
        rng=np.random.default_rng(0),
    ).codebook
    rows = rows_of(table, book)
    scores = rows.scores.reshape(400, 10, 1)
    back = decoded(
        scores, [], book=book, lengths=table.lengths, rng=np.random.default_rng(0)
    ).cells["x"]
    there = ~np.isnan(back)
    assert (there == ~np.isnan(table.cells["x"])).all()
    assert np.abs(back - table.cells["x"])[there].max() < 0.03


def test_a_heavy_value_is_one_score_in_the_middle_of_its_mass() -> None:
    data = seen_by_half()
    data = dataclasses.replace(
        data, train=data.train.assign(x=data.train["x"].mask(data.train["x"] < 0.5, 0.0))
    )
    table = flatten(data.train, data.schema, steps=10, pad=True)
    book = measuring.measure(
        measuring.masses(table, data.schema),
        data.schema,
        stddev_of=dict.fromkeys(measuring.sensitivities(data.schema), 0.0),
        rng=np.random.default_rng(0),
    ).codebook
    lowest = np.nanmin(rows_of(table, book).scores)
    assert lowest == pytest.approx(float(norm.ppf(0.25)), abs=0.02)


def test_gaps_are_learnt_from_gaps_and_not_from_the_time_of_day() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "user": np.repeat(np.arange(400), 2),
            "time": np.tile([600.0, 605.0], 400),
            "x": rng.uniform(0, 1, 800),
        }
    )
    schema = Schema(
        columns=(Column(name="x", lower=0.0, upper=1.0),),
        unit=PrivacyUnit.USER,
        min_rows=2,
        max_rows=2,
        time_unit="minute",
        regular=False,
    )
    data = UserTables(schema=schema, train=frame, test=frame.iloc[:0])
    made = RegimesNonprivate(tables=300).release(
        data.for_mechanism(), Budget.unlimited(), rng=np.random.default_rng(0)
    )
    gaps = made.frame.groupby("user")["time"].diff().dropna()
    assert (gaps > 60).mean() < 0.05


@pytest.mark.parametrize("short", [0.0, 0.6])
def test_categories_stay_as_long_as_they_do_however_many_users_have_one_row(short: float) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for user in range(500):
        kind = "ab"[user % 2]
        for step in range(1 if user < 500 * short else 6):
            kind = kind if rng.random() < 0.9 else "ab"[int(rng.integers(2))]
            rows.append({"user": user, "time": float(step), "kind": kind})
    frame = pd.DataFrame(rows)
    column = Column(name="kind", kind=ColumnKind.CATEGORICAL, categories=("a", "b"))
    schema = Schema(columns=(column,), unit=PrivacyUnit.USER, min_rows=1, max_rows=6)
    data = UserTables(schema=schema, train=frame, test=frame.iloc[:0])
    made = RegimesNonprivate(regimes=1, steps=20, tables=2000).release(
        data.for_mechanism(), Budget.unlimited(), rng=np.random.default_rng(0)
    )
    above = made.frame.groupby("user")["kind"].shift(1)
    assert (made.frame["kind"] == above)[above.notna()].mean() == pytest.approx(0.95, abs=0.05)


def test_no_user_is_a_dataset_like_any_other() -> None:
    data = tiny_tables()
    nobody = UserTables(schema=data.schema, train=data.train.iloc[:0], test=data.test)
    release = Regimes(tables=5).release(
        nobody.for_mechanism(), BUDGET, rng=np.random.default_rng(0)
    )
    assert release.frame["user"].nunique() == 5
    assert release.guarantee.ledger == Noise.of(Regimes(tables=5), data.schema, BUDGET).ledger


def test_the_ceiling_is_exact_whatever_budget_is_given() -> None:
    release = RegimesNonprivate(tables=5).release(
        tiny_tables().for_mechanism(), BUDGET, rng=np.random.default_rng(0)
    )
    assert release.guarantee.established is Established.NONE
    unlimited = Noise.of(RegimesNonprivate(), tiny_tables().schema, Budget.unlimited())
    assert unlimited.whole == Release(clip=math.inf, stddev=0.0)


def kinds_only() -> UserTables:
    """Irregular times, a category, and a number that is always missing."""
    rng = np.random.default_rng(3)
    schema = Schema(
        columns=(
            Column(name="gone", lower=0.0, upper=1.0, nullable=True),
            Column(name="kind", kind=ColumnKind.CATEGORICAL, categories=("a", "b"), nullable=True),
        ),
        unit=PrivacyUnit.USER,
        min_rows=1,
        max_rows=5,
        time_unit="minute",
        regular=False,
    )
    rows = [
        {"user": user, "time": 600.0 + 90.0 * row, "gone": np.nan, "kind": kind}
        for user in range(40)
        for row, kind in enumerate(rng.choice(np.array(["a", "b", None]), rng.integers(1, 6)))
    ]
    frame = pd.DataFrame(rows)
    return UserTables(schema=schema, train=frame, test=frame.iloc[:0])


def without_numbers() -> UserTables:
    schema = Schema(
        columns=(Column(name="kind", kind=ColumnKind.CATEGORICAL, categories=("a", "b")),),
        unit=PrivacyUnit.USER,
        min_rows=2,
        max_rows=2,
    )
    rows = {"user": np.repeat(range(30), 2), "time": [0.0, 1.0] * 30, "kind": ["a", "b"] * 30}
    frame = pd.DataFrame(rows)
    return UserTables(schema=schema, train=frame, test=frame.iloc[:0])


@pytest.mark.parametrize("make", [tiny_tables, kinds_only, without_numbers])
@pytest.mark.parametrize("epsilon", [0.01, 2.0, math.inf])
def test_every_table_is_valid_at_every_budget(make: Any, epsilon: float) -> None:
    data = make()
    limited = math.isfinite(epsilon)
    budget = Budget.approximate_dp(epsilon, 1e-3) if limited else Budget.unlimited()
    mechanism = (Regimes if limited else RegimesNonprivate)(tables=20)
    assert mechanism.supports(data.schema, budget) is None
    release = mechanism.release(data.for_mechanism(), budget, rng=np.random.default_rng(0))
    assert release.frame["user"].nunique() == 20
    rows = release.frame.groupby("user").size()
    assert rows.between(data.schema.min_rows, data.schema.max_rows).all()
    assert limited == (release.guarantee.established is Established.SETTLED)


def test_categories_follow_each_other_as_they_do_in_the_data() -> None:
    frame = (
        RegimesNonprivate(steps=12)
        .release(
            without_numbers().for_mechanism(), Budget.unlimited(), rng=np.random.default_rng(0)
        )
        .frame
    )
    pairs = frame.groupby("user")["kind"].agg("".join)
    assert (pairs == "ab").mean() > 0.8


def test_a_release_is_the_same_again_from_the_same_seed() -> None:
    frames = [
        Regimes(tables=10)
        .release(tiny_tables().for_mechanism(), BUDGET, rng=np.random.default_rng(7))
        .frame
        for _ in range(2)
    ]
    pd.testing.assert_frame_equal(frames[0], frames[1])


def test_columns_go_together_where_regimes_are_known_to_be_there() -> None:
    data = Hmm(users=3000, test_users=200).load(rng=np.random.default_rng(1))
    budget = Budget.approximate_dp(4.0, 1e-4)
    release = Regimes().release(data.for_mechanism(), budget, rng=np.random.default_rng(0))
    names = [column.name for column in data.schema.numeric]
    real, made = data.train[names].corr(), release.frame[names].corr()
    assert np.abs(real - made).to_numpy().mean() < 0.05
    lag = {
        key: f[names].corrwith(f.groupby("user")[names].shift(1))
        for key, f in (("real", data.train), ("made", release.frame))
    }
    assert np.abs(lag["real"] - lag["made"]).mean() < 0.08


@pytest.mark.parametrize(
    "change",
    [
        {"regimes": 0},
        {"steps": 0},
        {"clip": 0.0},
        {"clip": math.inf},
        {"memory": 2.0},
        {"apart_share": 0.9},
        {"start_share": 0.0},
        {"tables": 0},
    ],
)
def test_parameters_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Regimes(**change)
