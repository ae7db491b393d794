"""MAUVE, against mauve-text where a developer has it, and against its definition.

mauve-text is under the GPL and needs faiss, so it is no dependency and no test requirement. With
mauve-text 0.4.0 the areas of 200 random pairs of distributions over 2 to 200 clusters agreed to
2.3e-16. On two samples of 1,000 Gaussian vectors of 30 columns, the second shifted by 0, 0.2, 0.5,
1 and 2 in one, it gave 0.965, 0.950, 0.926, 0.855 and 0.352 as the mean over five seeds, ours with
five restarts 0.962, 0.956, 0.931, 0.862 and 0.371, with spreads over seeds of 0.006 to 0.029.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.metrics import auc

from panelbench_metrics.embedding import embed
from panelbench_metrics.mauve import Mauve, area, mauve

SEEDS = range(5)


def samples(shift, count=400, size=20, seed=0):
    rng = np.random.default_rng(seed)
    p, q = rng.normal(size=(2, count, size))
    q[:, 0] += shift
    return p, q


@pytest.mark.parametrize("clusters", [2, 5, 50, 200])
def test_the_area_is_that_of_mauve_text(clusters):
    pytest.importorskip("mauve")
    oracle = sys.modules["mauve.compute_mauve"]
    rng = np.random.default_rng(clusters)
    for _ in range(50):
        p, q = rng.dirichlet(np.full(clusters, 0.3), 2)
        curve = oracle.get_divergence_curve_for_multinomials(
            p, q, np.linspace(1e-6, 1 - 1e-6, 25), 5
        )
        x, y = curve.T
        assert area(p, q) == pytest.approx(auc(x[::-1], y[::-1]), abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0, 2.0])
def test_the_score_is_that_of_mauve_text_up_to_the_seed(shift):
    oracle = pytest.importorskip("mauve")
    p, q = samples(shift)
    theirs = [
        oracle.compute_mauve(p_features=p, q_features=q, seed=seed, verbose=False).mauve
        for seed in SEEDS
    ]
    ours = [mauve(p, q, seed=seed, restarts=5) for seed in SEEDS]
    # two means of five scores; the deviation of either is its spread over the square root of five
    error = np.hypot(np.std(theirs, ddof=1), np.std(ours, ddof=1)) / np.sqrt(5)
    assert abs(np.mean(theirs) - np.mean(ours)) < 5 * error + 0.005


def test_the_area_of_two_clusters_is_that_of_the_integral():
    p, q = np.array([0.7, 0.3]), np.array([0.2, 0.8])

    def kl(a, b):
        return np.sum(a * np.log(a / b))

    w = np.linspace(1e-6, 1 - 1e-6, 25)
    mixtures = w[:, None] * p + (1 - w[:, None]) * q
    x = [1.0, *(np.exp(-5 * kl(q, r)) for r in mixtures), 0.0]
    y = [0.0, *(np.exp(-5 * kl(p, r)) for r in mixtures), 1.0]
    assert area(p, q) == pytest.approx(-np.trapezoid(y, x), rel=1e-12)
    assert area(q, p) == pytest.approx(np.trapezoid(x, y), rel=1e-12)


def test_disjoint_distributions_have_hardly_any_area():
    assert area(np.array([1.0, 0.0]), np.array([0.0, 1.0])) < 0.01


def test_equal_samples_score_one():
    p, _ = samples(0.0)
    assert mauve(p, p.copy(), seed=0) == pytest.approx(1.0, abs=1e-12)


def test_a_larger_shift_scores_lower():
    scores = [np.mean([mauve(*samples(s), seed=seed) for seed in SEEDS]) for s in (0.0, 0.5, 1, 2)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.9
    assert scores[-1] < 0.4


def test_vectors_that_are_all_equal_score_one():
    assert mauve(np.ones((5, 3)), np.ones((4, 3)), seed=0) == 1.0


def test_only_directions_count():
    p, q = samples(1.0)
    assert mauve(p, q, seed=1) == pytest.approx(mauve(3 * p, 0.1 * q, seed=1), abs=1e-6)


def test_the_score_is_the_mean_over_seeds_and_its_spread_is_told(dataset, as_release, scores_of):
    release = as_release(dataset.train)
    got = scores_of(Mauve(seeds=3), dataset, release, seed=9)["mauve"]
    rng = np.random.default_rng(9)
    rng.choice(120, size=120, replace=False)
    rng.integers(2**63)
    seeds = rng.integers(2**31, size=3)
    real, fake = embed("hashed", (dataset.test, dataset.train), dataset.schema, dataset.train)
    each = [mauve(real, fake, seed=int(seed)) for seed in seeds]
    assert got.value == pytest.approx(np.mean(each))
    assert got.detail["spread"] == pytest.approx(np.std(each))
    assert got.detail["test tables"] == 60


@pytest.mark.parametrize("name", ["max_tables", "seeds", "restarts"])
def test_counts_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        Mauve(**{name: 0})
