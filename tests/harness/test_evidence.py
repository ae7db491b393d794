"""What an audit proves, and how often it is wrong; noise of known epsilon is the oracle."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from panelbench.accounting import Figures, gaussian_delta, gaussian_epsilon, gaussian_mu
from panelbench.audit import Game, Verdict, told_apart, verdict
from panelbench.evidence import (
    Bet,
    Discriminant,
    Hits,
    best_bet,
    guessed_epsilon,
    guessing_chance,
    highest_rate,
    lowest_rate,
)

DELTA = 1e-5


def claim(mu: float, *, gaussian: bool = True) -> Figures:
    epsilon = gaussian_epsilon(mu, DELTA)
    return Figures(epsilon=epsilon, delta=DELTA, alpha=2.0, mu=mu if gaussian else None)


def play(mu: float, figures: Figures, releases: int, seed: int) -> float:
    """The bound from releases of one number plus standard normal noise, the person at mu."""
    return judged(mu, figures, releases, seed).epsilon_lower


def judged(mu: float, figures: Figures, releases: int, seed: int) -> Verdict:
    rng = np.random.default_rng(seed)
    within, without = rng.normal(mu, 1, (releases, 1)), rng.normal(0, 1, (releases, 1))
    found = told_apart(figures, ["number"], within, without, rng)
    return verdict(found, figures)


def test_rates_are_bounded_as_clopper_and_pearson_have_it():
    hits = np.array([0, 1, 17, 99, 100])
    assert lowest_rate(hits, 100, 0.01) == pytest.approx(
        np.where(hits > 0, beta.ppf(0.01, np.maximum(hits, 1), 101 - hits), 0.0), rel=1e-9
    )
    above = beta.isf(0.01, hits + 1, np.maximum(100 - hits, 1))
    assert highest_rate(hits, 100, 0.01) == pytest.approx(np.where(hits < 100, above, 1), rel=1e-9)


def test_a_bound_on_a_rate_is_wrong_no_more_often_than_it_says():
    chance = binom.pmf(np.arange(51), 50, 0.2)
    assert chance[lowest_rate(np.arange(51), 50, 0.05) > 0.2].sum() <= 0.05
    assert chance[highest_rate(np.arange(51), 50, 0.05) < 0.2].sum() <= 0.05


@pytest.mark.parametrize("gaussian", [True, False], ids=["claims mu", "claims epsilon"])
def test_gaussian_noise_of_epsilon_one_is_bounded_below_one_in_99_of_100_audits(gaussian):
    mu = gaussian_mu(1.0, DELTA)
    found = [play(mu, claim(mu, gaussian=gaussian), 1500, seed) for seed in range(200)]
    assert np.mean(np.array(found) <= 1.0) >= 0.99


def test_a14_many_statistics_of_pure_noise_prove_nothing():
    names = [str(column) for column in range(200)]
    flagged = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        within, without = rng.normal(0, 1, (2, 200, len(names)))
        nothing = Figures(epsilon=0.0, delta=DELTA, alpha=2.0)
        found = told_apart(nothing, names, within, without, rng)
        flagged += bool(verdict(found, nothing).reason)
    assert flagged < 5  # each is with probability 1 % at most; 5 of 10 with less than 1e-7


def test_a14_no_release_that_helped_to_choose_an_event_is_counted(monkeypatch):
    used, counted = set(), set()

    def fitted(within, without):
        used.update(within[:, 0], without[:, 0])
        return Discriminant.fitted(within, without)

    def best(within, without, bound):
        used.update(within[:, 0], without[:, 0])
        return best_bet(within, without, bound)

    def hits(bet, within, without):
        counted.update(within[:, 0], without[:, 0])
        return counting(bet, within, without)

    counting = Bet.hits
    monkeypatch.setattr(Bet, "hits", hits)
    monkeypatch.setattr("panelbench.audit.best_bet", best)
    monkeypatch.setattr("panelbench.audit.Discriminant", SimpleNamespace(fitted=fitted))
    rng = np.random.default_rng(0)
    within, without = rng.normal(0, 1, (2, 50, 1))  # each release has a number of its own
    told_apart(claim(1.0), ["number"], within, without, rng)
    assert len(used) + len(counted) == 100
    assert not used & counted


def test_the_bound_on_a_gaussian_claim_reaches_two_thirds_of_epsilon_one():
    mu = gaussian_mu(1.0, DELTA)
    assert np.mean([play(mu, claim(mu), 50_000, seed) for seed in range(5)]) > 0.66


def test_the_bound_without_assumption_reaches_two_fifths_of_epsilon_four():
    mu = gaussian_mu(4.0, DELTA)
    found = [play(mu, claim(mu, gaussian=False), 20_000, seed) for seed in range(5)]
    assert np.mean(found) > 1.6


def test_half_the_noise_contradicts_a_gaussian_claim_after_ten_thousand_releases_of_either():
    mu = gaussian_mu(1.0, DELTA)
    assert all(judged(2 * mu, claim(mu), 10_000, seed).reason for seed in range(10))


def test_a_claim_of_mu_that_is_refuted_is_not_used_to_bound_epsilon():
    mu = gaussian_mu(1.0, DELTA)
    found = judged(2 * mu, claim(mu), 10_000, 0)
    assert "mu >" in found.reason
    assert found.epsilon_lower < 1.0


def test_an_event_that_separates_is_found_in_either_direction():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1, (500, 3))
    for sign in (1.0, -1.0):
        moved = noise + np.array([0.0, sign * 3.0, 0.0])
        bet = best_bet(moved, rng.normal(0, 1, (500, 3)), lambda hits: hits.mu(error=0.01))
        assert bet.statistic == 1
        assert bet.hits(moved, noise).mu(error=0.01) > 1


def test_statistics_that_tell_little_each_tell_more_combined():
    rng = np.random.default_rng(1)
    shift = np.full(10, 0.3)
    fit = [rng.normal(0, 1, (2000, 10)) + shift, rng.normal(0, 1, (2000, 10))]
    combined = Discriminant.fitted(*fit)
    fresh = [combined(rng.normal(0, 1, (2000, 10)) + at) for at in (shift, 0.0)]
    gap = (fresh[0].mean() - fresh[1].mean()) / fresh[1].std()
    assert gap == pytest.approx(0.3 * math.sqrt(10), abs=0.1)


def test_a_chance_of_guessing_is_the_binomial_tail_where_delta_is_0():
    rate = math.e / (1 + math.e)
    assert guessing_chance(80, 100, 100, 1.0, 0.0) == pytest.approx(binom.sf(79, 100, rate))
    assert guessing_chance(80, 100, 100, 1.0, 1e-3) > guessing_chance(80, 100, 100, 1.0, 0.0)


def test_randomised_response_of_epsilon_one_is_bounded_below_one_in_99_of_100_runs():
    rng, rate = np.random.default_rng(3), math.e / (1 + math.e)
    right = rng.binomial(2000, rate, 100)
    found = [guessed_epsilon(int(n), 2000, 2000, delta=0.0, error=0.01) for n in right]
    assert np.mean(np.array(found) <= 1.0) >= 0.99
    assert np.mean(found) > 0.8


def test_more_right_guesses_prove_more_and_half_of_them_nothing():
    proofs = [guessed_epsilon(n, 1000, 1000, delta=DELTA, error=0.01) for n in (500, 600, 900)]
    assert proofs[0] == 0.0
    assert proofs[0] < proofs[1] < proofs[2]


def test_mu_of_hits_is_the_difference_of_normal_quantiles_of_bounds_on_the_rates():
    hits = Hits(hits=700, trials=1000, false_hits=400, false_trials=1000)
    low, high = lowest_rate(700, 1000, 0.005), highest_rate(400, 1000, 0.005)
    assert hits.mu(error=0.01) == pytest.approx(norm.ppf(low) - norm.ppf(high))
    assert gaussian_delta(float(hits.mu(error=0.01)), 0.0) > 0.2


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"method": "pears"}, "pairs"), ({"releases": 5}, "20"), ({"seconds": 0.0}, "positive")],
)
def test_a_game_that_cannot_be_played_is_refused_with_what_to_do(wrong, word):
    with pytest.raises(ValueError, match=word):
        Game(**wrong)


def test_a_verdict_names_the_figure_that_is_contradicted():
    hits = {"hits": 500, "trials": 500, "false_hits": 0, "false_trials": 500}
    found = {"method": "pairs", "releases": 1000, "error": 0.01, "epsilon": hits}
    assert "epsilon > 4" in verdict(found, claim(0.5, gaussian=False)).reason
    assert verdict(found, SimpleNamespace(epsilon=9.0, delta=DELTA, mu=None)).reason == ""
