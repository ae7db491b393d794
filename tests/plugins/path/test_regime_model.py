"""Facts about the model of `path/regimes`: its expectations, and what one user can change."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from panelbench_path.regime_fit import (
    Release,
    Start,
    improved,
    matched_tables,
    regressed,
    revived,
)
from panelbench_path.regime_model import FIRST, GAP, NEVER, SEEN, Chain, Rows, emissions, posteriors
from panelbench_path.regime_moments import Layout, contributions

LAYOUT = Layout(regimes=2, columns=3, sizes=(3,), whole=True)


def chain(**changes: Any) -> Chain:
    """Two regimes over three numbers and one category."""
    rng = np.random.default_rng(0)
    half = rng.standard_normal((2, 3, 3))
    model = Chain(
        initial=np.array([0.7, 0.3]),
        transition=np.array([[0.9, 0.1], [0.2, 0.8]]),
        means=np.array([[0.5, -0.5, 0.0], [-0.6, 0.3, 0.4]]),
        covariances=half @ half.transpose(0, 2, 1) + 0.3 * np.eye(3),
        memory=np.array([[0.4, 0.2], [0.0, 0.0], [0.1, 0.5]]),
        spread=np.array([[1.0, 0.3, 0.2], [0.3, 1.0, 0.1], [0.2, 0.1, 1.0]]),
        missing=np.array([[[0.1, 0.6, 0.8, 0.2]] * 3, [[0.3, 0.2, 0.5, 0.4]] * 3]),
        tables=(np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]]),),
        sticky=np.array([0.25]),
    )
    return dataclasses.replace(model, **changes)


def drawn(model: Chain, users: int, seed: int = 0, most: int = 6) -> Rows:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, most + 1, users)
    scores, codes = model.drawn(lengths, rng)
    return Rows.of(scores, codes, lengths)


def some(rows: Rows, user: int) -> Rows:
    """The rows of one user."""
    own = slice(rows.starts[user], rows.starts[user] + rows.lengths[user])
    return Rows(
        lengths=rows.lengths[user : user + 1],
        scores=rows.scores[own],
        memory=rows.memory[own],
        blank=rows.blank[own],
        state=rows.state[own],
        codes=tuple(c[own] for c in rows.codes),
        codes_above=tuple(c[own] for c in rows.codes_above),
    )


def test_memory_is_the_last_earlier_value_and_the_mean_of_all() -> None:
    scores = np.array([[[1.0], [np.nan], [3.0], [5.0]], [[np.nan], [2.0], [0.0], [0.0]]])
    rows = Rows.of(scores, [np.array([[0, 1, 1, 0], [2, 0, 0, 0]])], np.array([4, 2]))
    np.testing.assert_array_equal(rows.memory[:, 0, 0], [0, 1, 1, 3, 0, 0])
    np.testing.assert_array_equal(rows.memory[:, 0, 1], [0, 1, 1, 2, 0, 0])
    np.testing.assert_array_equal(rows.blank[:, 0], [True, False, False, False, True, True])
    np.testing.assert_array_equal(rows.state[:, 0], [FIRST, SEEN, GAP, SEEN, FIRST, NEVER])
    np.testing.assert_array_equal(rows.codes_above[0], [-1, 0, 1, 1, -1, 2])


def test_emissions_are_normal_densities_of_what_is_there() -> None:
    model = chain()
    rows = drawn(model, 40)
    found = emissions(model, rows, rows.patterns())
    for row, k in itertools.product(range(0, len(rows.scores), 7), range(2)):
        seen = ~np.isnan(rows.scores[row])
        expected = 0.0
        if seen.any():
            pull = model.memory.sum(axis=1) * (rows.blank[row] & seen)
            covariance = model.covariances[k] + np.outer(pull, pull) * model.spread
            mean = model.means[k] + (rows.memory[row] * model.memory).sum(axis=1)
            expected = multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(
                rows.scores[row, seen]
            )
        for column in range(3):
            chance = model.missing[k, column, rows.state[row, column]]
            expected += math.log(1 - chance if seen[column] else chance)
        code, above = rows.codes[0][row], rows.codes_above[0][row]
        own = model.tables[0][k, code]
        expected += math.log(own if above < 0 else 0.75 * own + 0.25 * (code == above))
        assert found[row, k] == pytest.approx(expected, rel=1e-9)


def test_posteriors_equal_a_sum_over_all_paths() -> None:
    model = chain()
    rows = drawn(model, 12, most=4)
    found = emissions(model, rows, rows.patterns())
    chances, moves, likelihood = posteriors(model, found, rows.lengths)
    for user, (start, length) in enumerate(zip(rows.starts, rows.lengths, strict=True)):
        total, regime, pair = 0.0, np.zeros((length, 2)), np.zeros((2, 2))
        for path in itertools.product(range(2), repeat=int(length)):
            weight = model.initial[path[0]]
            for a, b in itertools.pairwise(path):
                weight *= model.transition[a, b]
            weight *= math.exp(sum(found[start + t, k] for t, k in enumerate(path)))
            total += weight
            for t, k in enumerate(path):
                regime[t, k] += weight
            for a, b in itertools.pairwise(path):
                pair[a, b] += weight
        assert likelihood[user] == pytest.approx(math.log(total))
        np.testing.assert_allclose(chances[start : start + length], regime / total, atol=1e-9)
        np.testing.assert_allclose(moves[user], pair / total / max(length - 1, 1), atol=1e-9)


def test_what_is_missing_is_expected_given_the_rest() -> None:
    # One regime, no memory: the sums are those of the conditional normal distribution.
    model = chain(
        initial=np.array([1.0]),
        transition=np.ones((1, 1)),
        means=np.array([[0.5, -0.5, 0.0]]),
        covariances=chain().covariances[:1],
        memory=np.zeros((3, 2)),
        missing=np.full((1, 3, 4), 0.2),
        tables=(np.full((1, 3), 1 / 3),),
    )
    rows = Rows.of(np.array([[[1.0, np.nan, 2.0]]]), [np.array([[0]])], np.array([1]))
    layout = dataclasses.replace(LAYOUT, regimes=1)
    vectors, _ = contributions(model, rows, rows.patterns(), layout)
    parts = layout.split(vectors[0])
    covariance, mean = model.covariances[0], model.means[0]
    seen = np.array([0, 2])
    gain = covariance[1, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
    middle = mean[1] + gain @ (np.array([1.0, 2.0]) - mean[seen])
    np.testing.assert_allclose(parts["mean"][0], [1.0, middle, 2.0])
    square = parts["square"][0] / layout.twice
    rest = covariance[1, 1] - gain @ covariance[seen, 1]
    np.testing.assert_allclose(square, [1, middle, 2, middle**2 + rest, 2 * middle, 4])


def test_exact_steps_never_lower_the_likelihood() -> None:
    # Equal lengths, because every user counts the same; memory has a step of its own kind.
    truth = chain(memory=np.zeros((3, 2)))
    rng = np.random.default_rng(1)
    lengths = np.full(300, 5)
    rows = Rows.of(*truth.drawn(lengths, rng), lengths)
    model = dataclasses.replace(truth, means=truth.means * 0.2, transition=np.full((2, 2), 0.5))
    patterns, seen = rows.patterns(), []
    for _ in range(8):
        vectors, likelihood = contributions(model, rows, patterns, LAYOUT)
        seen.append(likelihood.sum())
        model = improved(model, vectors.sum(axis=0), LAYOUT, users=300.0, error=1e-9)
    assert (np.diff(seen) > -1e-6 * abs(seen[0])).all()
    assert seen[-1] > seen[0] + 20


def test_memory_is_found_where_there_is_some() -> None:
    truth = chain(covariances=np.tile(0.3 * np.eye(3), (2, 1, 1)), missing=np.zeros((2, 3, 4)))
    lengths = np.full(600, 12)
    rows = Rows.of(*truth.drawn(lengths, np.random.default_rng(2)), lengths)
    start = Start.measured(rows, Release(clip=1e9, stddev=0.0), 600.0, np.random.default_rng(0))
    model, patterns = dataclasses.replace(truth, memory=np.zeros((3, 2))), rows.patterns()
    for _ in range(12):
        vectors, _ = contributions(model, rows, patterns, LAYOUT)
        sums = vectors.sum(axis=0)
        model = improved(model, sums, LAYOUT, users=600.0, error=1e-9, gram=start.gram)
    np.testing.assert_allclose(model.memory.sum(axis=1), truth.memory.sum(axis=1), atol=0.12)


def test_memory_never_explodes() -> None:
    weights = regressed(np.tile(np.eye(2), (2, 1, 1)), np.array([[3.0, 1.0], [-1.0, 0.5]]), 0.0)
    np.testing.assert_allclose(weights, [[0.7425, 0.2475], [0.0, 0.5]])


def test_what_a_user_adds_depends_on_that_user_alone() -> None:
    model = chain()
    rows = drawn(model, 30)
    for whole in (False, True):
        layout = dataclasses.replace(LAYOUT, whole=whole)
        together, _ = contributions(model, rows, rows.patterns(), layout)
        for user in (0, 7, 29):
            alone = some(rows, user)
            own, _ = contributions(model, alone, alone.patterns(), layout)
            np.testing.assert_allclose(own[0], together[user], atol=1e-12)


def test_one_user_changes_no_sum_by_more_than_the_bound() -> None:
    model = chain()
    rows = drawn(model, 50)
    vectors, _ = contributions(model, rows, rows.patterns(), LAYOUT)
    vectors[3] *= 1e6
    release = Release(clip=1.2, stddev=0.0)
    rng = np.random.default_rng(0)
    whole = release.of(vectors, rng)
    norms = [
        np.linalg.norm(whole - release.of(np.delete(vectors, user, axis=0), rng))
        for user in range(50)
    ]
    assert max(norms) == pytest.approx(1.2)
    noisy = Release(clip=1.2, stddev=3.0).of(vectors, rng) - whole
    assert noisy.std() == pytest.approx(3.0, rel=0.2)


def test_first_moments_are_cut_like_all_else() -> None:
    rows = drawn(chain(), 20)
    exact = Start.measured(rows, Release(clip=1e9, stddev=0.0), 20.0, np.random.default_rng(0))
    cut = Start.measured(rows, Release(clip=0.5, stddev=0.0), 20.0, np.random.default_rng(0))
    assert np.abs(cut.pulled).sum() < np.abs(exact.pulled).sum()


def test_a_regime_that_died_takes_half_of_the_largest() -> None:
    layout = dataclasses.replace(LAYOUT, whole=False)
    rows = drawn(chain(), 60)
    vectors, _ = contributions(chain(), rows, rows.patterns(), layout)
    parts = layout.split(vectors.sum(axis=0))
    for part in parts.values():
        part[1] = 0.0
    sums = layout.joined({name: part[None] for name, part in parts.items()})[0]
    after = layout.split(revived(chain(), sums, layout, 60.0))
    np.testing.assert_allclose(after["share"], parts["share"][0] / 2)
    np.testing.assert_allclose(after["mean"].sum(axis=0), parts["mean"][0])
    assert np.abs(after["mean"][0] - after["mean"][1]).max() > 0.1


def test_categories_have_the_measured_shares() -> None:
    model = chain()
    lengths = np.full(2000, 5)
    wanted = np.array([0.5, 0.1, 0.4])
    (table,) = matched_tables(model, [wanted], lengths)
    model = dataclasses.replace(model, tables=(table,), sticky=np.zeros(1))
    _, (codes,) = model.drawn(lengths, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(codes.ravel()) / codes.size, wanted, atol=0.02)
