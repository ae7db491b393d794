"""Facts about `path/cells`: what is measured and charged, and that every table is valid."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array

from panelbench import (
    Budget,
    Column,
    ColumnKind,
    Established,
    GaussianEvent,
    NeighboringRelation,
    PrivacyUnit,
    SampledGaussianEvent,
    Schema,
    UserTables,
)
from panelbench.accounting import settle
from panelbench.flatten import flatten
from panelbench.panels import tiny_tables
from panelbench_path import cumulative, measuring, tilting, tuned_cells
from panelbench_path.cells import CLIP, Cells, CellsNonprivate, Noise
from panelbench_path.layout import FIRST_CATEGORY, MISSING, NONE, neighbors
from panelbench_path.potentials import Potentials, lifts
from panelbench_path.transformer import Shape, Transformer

BUDGET = Budget.approximate_dp(2.0, 1e-3)


@pytest.fixture(autouse=True)
def _small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Transformer(Shape(width=16, layers=1, heads=2, inner=16))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def load() -> Transformer:
        model = Transformer(Shape(width=16, layers=1, heads=2, inner=16))
        model.load_state_dict(state)
        return model

    monkeypatch.setattr(tuned_cells, "load", load)


def clocked() -> UserTables:
    """Tables with irregular times and one column that is always missing."""
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
        {
            "user": user,
            "time": 600.0 + 90.0 * row + float(rng.random()),
            "gone": np.nan,
            "kind": kind,
        }
        for user in range(40)
        for row, kind in enumerate(rng.choice(np.array(["a", "b", None]), rng.integers(1, 6)))
    ]
    frame = pd.DataFrame(rows)
    return UserTables(schema=schema, train=frame, test=frame.iloc[:0])


DATA = {"tiny": tiny_tables(), "clocked": clocked()}


def vector(part: measuring.Masses) -> np.ndarray:
    """What noise is added to."""
    if part.grid is None:
        return part.masses
    own = cumulative.root(len(part.masses)) @ part.masses
    return own if part.missing is None else np.append(own, part.missing)


def wide(data: UserTables, frame: pd.DataFrame | None = None) -> Any:
    frame = data.train if frame is None else frame
    return flatten(frame, data.schema, steps=data.schema.max_rows, pad=True)


def test_the_root_of_prefix_sums_is_one() -> None:
    matrix = cumulative.root(50)
    np.testing.assert_allclose(matrix @ matrix, np.tril(np.ones((50, 50))), atol=1e-9)


def test_no_histogram_of_mass_one_is_longer_than_the_sensitivity_of_sums() -> None:
    rng = np.random.default_rng(0)
    own = rng.dirichlet(np.full(40, 0.05), 500) @ cumulative.root(40).T
    bound = cumulative.l2_sensitivity(40)
    assert np.linalg.norm(own, axis=1).max() <= bound + 1e-12
    assert np.linalg.norm(own[1:] - own[:-1], axis=1).max() <= math.sqrt(2) * bound + 1e-12


def test_a_cumulative_histogram_has_a_small_error_everywhere() -> None:
    rng = np.random.default_rng(1)
    histogram = rng.multinomial(2000, np.full(256, 1 / 256)).astype(float)
    exact = np.append(0.0, histogram.cumsum()) / 2000
    stddev = 5.0 * cumulative.l2_sensitivity(256)
    error = [
        np.abs(cumulative.measured(histogram, stddev=stddev, rng=rng).cdf - exact).max()
        for _ in range(20)
    ]
    # A plain histogram with noise of 5 a cell is off by 5 * sqrt(128) / 2000 = 0.028 in the middle.
    assert np.mean(error) < 0.028
    clean = cumulative.measured(histogram, stddev=0.0, rng=rng)
    np.testing.assert_allclose(clean.cdf, exact, atol=1e-9)
    assert clean.total == pytest.approx(2000)


@pytest.mark.parametrize("name", DATA)
def test_one_user_moves_no_measured_histogram_by_more_than_what_is_charged(name: str) -> None:
    data = DATA[name]
    charged = measuring.sensitivities(data.schema)
    whole = measuring.masses(wide(data), data.schema)
    assert {part.name for part in whole} == set(charged)
    largest = dict.fromkeys(charged, 0.0)
    for user in data.train["user"].unique()[:25]:
        rest = data.train[data.train["user"] != user].reset_index(drop=True)
        for before, after in zip(
            whole, measuring.masses(wide(data, rest), data.schema), strict=True
        ):
            moved = float(np.linalg.norm(vector(before) - vector(after)))
            largest[before.name] = max(largest[before.name], moved)
    for part, moved in largest.items():
        assert moved <= charged[part] * (1 + 1e-9), part
    assert largest["length"] > 0.5


@pytest.mark.parametrize("name", DATA)
def test_one_user_adds_at_most_one_to_each_histogram_of_transitions_and_pairs(name: str) -> None:
    data = DATA[name]
    book = measured(data).codebook
    names = len(book.names)
    statistics = tilting.Statistics.of(book.bias(), columns=names, groups=3, timed=book.clock)
    table = wide(data)
    shares = statistics.shares(book.encode(table), table.lengths).toarray()
    columns = len(statistics.sizes)
    blocks = [size**2 for size in statistics.sizes] + [
        statistics.sizes[a] * statistics.sizes[b]
        for a in range(columns)
        for b in range(a + 1, columns)
    ]
    assert len(blocks) == statistics.count
    assert sum(blocks) == shares.shape[1]
    for block in np.split(shares, np.cumsum(blocks)[:-1], axis=1):
        assert (block >= 0).all()
        assert block.sum(axis=1).max() <= 1 + 1e-9


def measured(data: UserTables, *, matched: bool = True) -> measuring.Measured:
    return measuring.measure(
        measuring.masses(wide(data), data.schema),
        data.schema,
        stddev_of=dict.fromkeys(measuring.sensitivities(data.schema), 0.0),
        rng=np.random.default_rng(0),
        matched=matched,
    )


@pytest.mark.parametrize("name", DATA)
def test_decoded_values_have_the_tokens_they_came_from(name: str) -> None:
    data = DATA[name]
    book = measured(data, matched=False).codebook
    table = wide(data)
    tokens = book.encode(table)
    cells = book.decode(tokens, table.lengths, np.random.default_rng(0))
    again = book.encode(dataclasses.replace(table, cells=cells))
    assert (again == tokens)[table.present].all()


def test_without_noise_numeric_bins_hold_equal_shares() -> None:
    data = tiny_tables(users=600)
    found = measured(data)
    tokens = found.codebook.encode(wide(data))[..., 0][wide(data).present]
    shares = np.unique(tokens, return_counts=True)[1] / len(tokens)
    assert len(shares) == 32
    assert shares.max() < 2.5 / 32
    assert found.users == pytest.approx(300)


def test_matched_values_have_the_measured_marginal_whatever_the_model_drew() -> None:
    data = tiny_tables(users=600)
    book = measured(data).codebook
    table = wide(data)
    tokens = book.encode(table)
    tokens[..., 0] = np.random.default_rng(0).choice(
        tokens[:, 0, 0], tokens.shape[:2]
    )  # too narrow
    values = book.decode(tokens, table.lengths, np.random.default_rng(0))["level"]
    real = table.cells["level"]
    weight = np.broadcast_to(1 / table.lengths[:, None], values.shape)[table.present]
    for level in (-4.0, -1.0, 0.0, 2.0):
        own, true = (float(weight @ (v[table.present] < level)) / 300 for v in (values, real))
        assert own == pytest.approx(true, abs=0.02)


def test_weights_reach_the_measured_means_and_no_further_than_noise_allows() -> None:
    rng = np.random.default_rng(0)
    shares = csr_array(rng.dirichlet(np.ones(4), 500))
    target = np.array([0.4, 0.2, 0.2, 0.2])
    close = tilting.weights(shares, target, 1e-4)
    np.testing.assert_allclose(close @ shares.toarray(), target, atol=1e-3)
    np.testing.assert_allclose(tilting.weights(shares, target, 1e3), 1 / 500, rtol=1e-3)


def test_selection_does_not_rest_on_few_tables() -> None:
    rng = np.random.default_rng(0)
    shares, lengths = csr_array(rng.dirichlet(np.full(30, 0.1), 300)), rng.integers(4, 6, 300)
    far = np.eye(30)[0]  # no mixture of many candidates has these means
    plain = tilting.within_lengths(tilting.weights(shares, far, 1e-3), lengths)
    assert tilting.effective(plain) < 0.1
    chances, share = tilting.careful(shares, far, 1e-3, lengths)
    assert share == pytest.approx(tilting.effective(chances))
    assert share >= tilting.LEAST_EFFECTIVE
    assert chances @ shares.toarray()[:, 0] > shares.toarray()[:, 0].mean()


def test_selection_leaves_lengths_as_they_were_drawn() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 9, 400)
    chances = tilting.within_lengths(rng.dirichlet(np.ones(400)), lengths)
    shares = np.bincount(lengths, weights=chances)
    np.testing.assert_allclose(shares, np.bincount(lengths) / 400, atol=1e-12)


def test_a_length_whose_tables_have_no_weight_is_drawn_all_the_same() -> None:
    lengths = np.array([4, 4, 5])
    chances = tilting.within_lengths(np.array([0.5, 0.5, 0.0]), lengths)
    np.testing.assert_allclose(chances, 1 / 3)


def test_noise_alone_lifts_nothing() -> None:
    rng = np.random.default_rng(0)
    chance = np.outer([4.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0]) * 10
    noisy = lifts(chance + 30.0 * rng.standard_normal(chance.shape), 30.0)
    assert np.abs(noisy).max() < 0.7
    clear = lifts(1000.0 * np.eye(4) + 50.0, 10.0)
    assert clear[0, 0] > 1.0
    assert clear[0, 1] < -1.0


@pytest.mark.parametrize("name", DATA)
def test_scores_are_the_same_for_a_window_and_for_one_cell_after_the_other(name: str) -> None:
    data = DATA[name]
    book, table = measured(data).codebook, wide(data)
    tokens, columns = book.encode(table), len(book.names)
    statistics = tilting.Statistics.of(book.bias(), columns=columns, groups=3, timed=book.clock)
    sums = np.asarray(statistics.shares(tokens, table.lengths).sum(axis=0))
    potentials = Potentials.of(statistics, sums, 0.1)
    rows = table.lengths
    read = neighbors(tokens, rows, starts=rows * 0, window=99, clock=book.clock)
    whole = potentials.scores(read)
    for row, column in ((0, 1), (1, 0), (1, columns - 1), (2, columns - 1)):
        place = row * columns + column
        earlier = tokens[:, row, :column].copy()
        if book.clock and row == 0:
            earlier[:, :1] = NONE
        one = potentials.at(column, read["above"][:, place], earlier)
        there = rows > row
        np.testing.assert_allclose(one[there], whole[there, place], atol=1e-6)


def test_a_candidate_is_taken_about_as_often_as_its_weight_says() -> None:
    chances = np.array([0.5, 0.3, 0.15, 0.05])
    counts = np.bincount(tilting.drawn(chances, 10, np.random.default_rng(0)), minlength=4)
    assert counts.sum() == 10
    assert (np.abs(counts - 10 * chances) <= 1).all()


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_the_ledger_spends_the_budget_and_lists_every_measurement(
    relation: NeighboringRelation,
) -> None:
    budget = dataclasses.replace(BUDGET, relation=relation)
    schema = DATA["tiny"].schema
    release = Cells(steps=2, batch=20, over=1.0).release(
        DATA["tiny"].for_mechanism(), budget, rng=np.random.default_rng(0)
    )
    assert release.guarantee.established is Established.SETTLED
    figures = settle(release.guarantee, delta=budget.delta, alpha=budget.alpha)
    assert 0.98 * 2.0 < figures.epsilon <= 2.0 * (1 + 1e-9)
    ledger = release.guarantee.ledger
    gaussian = sum(e.count for e in ledger if isinstance(e, GaussianEvent))
    assert gaussian == len(measuring.sensitivities(schema)) + 3 + 3
    sampled = [e for e in ledger if isinstance(e, SampledGaussianEvent)]
    assert [(e.count, e.clipping_norm) for e in sampled] == [(2, CLIP)]
    factor = math.sqrt(2) if relation is NeighboringRelation.REPLACE_ONE else 1.0
    first = next(e for e in ledger if isinstance(e, GaussianEvent))
    assert first.l2_sensitivity == pytest.approx(factor * cumulative.l2_sensitivity(9))
    frame = release.frame
    assert frame["level"].between(-10, 10).all()
    assert frame.groupby("user").size().between(4, 12).all()


def test_noise_follows_from_public_metadata_alone() -> None:
    schema = DATA["tiny"].schema
    renyi = Budget.renyi_dp(8.0, 1.0)  # settled in closed form, so quick
    one = Noise.of(Cells(batch=20), schema, renyi)
    assert one == Noise.of(Cells(batch=20), schema, renyi)
    more = dataclasses.replace(schema, nominal_users=240)
    assert Noise.of(Cells(batch=20), more, renyi).sampling < one.sampling


@pytest.mark.parametrize("name", DATA)
def test_every_drawn_table_is_valid(name: str) -> None:
    data = DATA[name]
    mechanism = CellsNonprivate(steps=2, batch=20, over=2.0, tables=30)
    assert mechanism.supports(data.schema, Budget.unlimited()) is None
    release = mechanism.release(
        data.for_mechanism(), Budget.unlimited(), rng=np.random.default_rng(0)
    )
    assert release.guarantee.established is Established.NONE
    assert release.frame["user"].nunique() == 30
    rows = release.frame.groupby("user").size()
    assert rows.between(data.schema.min_rows, data.schema.max_rows).all()
    if name == "clocked":
        assert release.frame["gone"].isna().mean() > 0.9


def test_a_release_is_the_same_again_from_the_same_seed() -> None:
    frames = [
        CellsNonprivate(steps=2, batch=20, over=1.0, tables=10)
        .release(DATA["tiny"].for_mechanism(), Budget.unlimited(), rng=np.random.default_rng(7))
        .frame
        for _ in range(2)
    ]
    pd.testing.assert_frame_equal(frames[0], frames[1])


def test_a_cell_can_hold_its_own_tokens_only() -> None:
    book = measured(DATA["tiny"]).codebook
    bias = book.bias()
    allowed = [set(np.flatnonzero(np.isfinite(row)).tolist()) for row in bias[:3]]
    assert MISSING not in allowed[0]
    assert MISSING in allowed[1]
    assert allowed[2] == {FIRST_CATEGORY, FIRST_CATEGORY + 1, FIRST_CATEGORY + 2}


def test_budgets_without_an_accountant_for_sampled_steps_are_refused() -> None:
    schema = DATA["tiny"].schema
    replace = NeighboringRelation.REPLACE_ONE
    assert "zCDP" in str(Cells().supports(schema, Budget.zero_concentrated_dp(1.0)))
    assert "Renyi" in str(Cells().supports(schema, Budget.renyi_dp(2.0, 1.0, relation=replace)))
    assert Cells().supports(schema, Budget.renyi_dp(2.0, 1.0)) is None
    assert Cells().supports(schema, BUDGET) is None


def test_too_many_categories_are_refused() -> None:
    names = tuple(f"c{k}" for k in range(65))
    column = Column(name="code", kind=ColumnKind.CATEGORICAL, categories=names)
    schema = Schema(columns=(column,), unit=PrivacyUnit.USER, min_rows=1, max_rows=2)
    assert "64 categories" in str(Cells().supports(schema, BUDGET))


@pytest.mark.parametrize(
    "change",
    [
        {"tune": "some"},
        {"engine": "jax"},
        {"steps": 0},
        {"tilt_share": 0.9},
        {"over": 0.5},
        {"tables": 0},
    ],
)
def test_parameters_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Cells(**change)
