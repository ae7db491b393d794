"""Classifiers that tell synthetic from real, against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from panelbench_metrics.two_sample import (
    CLASSIFIERS,
    ClassifierTwoSample,
    area_under_curve,
    auc_of,
    handcrafted,
)


@pytest.mark.parametrize("levels", [3, 1000])
def test_the_auc_is_that_of_scikit_learn(levels):
    rng = np.random.default_rng(levels)
    for _ in range(20):
        negative = rng.integers(0, levels, 30) / levels
        positive = rng.integers(0, levels, 17) / levels + 0.1
        labels = np.repeat([0, 1], [30, 17])
        expected = roc_auc_score(labels, np.concatenate((negative, positive)))
        assert area_under_curve(negative, positive) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_equal_samples_cannot_be_told_apart(classifier):
    sample = np.random.default_rng(1).normal(size=(60, 5))
    assert auc_of(classifier, sample, sample.copy(), seed=3) == 0.5


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_a_larger_shift_is_told_more_surely(classifier):
    rng = np.random.default_rng(2)
    real, other = rng.normal(size=(2, 400, 5))
    aucs = []
    for shift in (0.0, 0.5, 1.0, 3.0):
        moved = other.copy()
        moved[:, 1] += shift
        aucs.append(auc_of(classifier, real, moved, seed=0))
    assert aucs == sorted(aucs)
    # one distribution: 120 a side, standard deviation 1 / sqrt(6 * 120) = 0.037; 5 of them, 6e-7
    assert abs(aucs[0] - 0.5) < 5 * 0.0375
    assert aucs[-1] > 0.95


def test_features_are_those_of_a_table(dataset):
    features = handcrafted(dataset.test, dataset.schema)
    assert features.shape == (60, 1 + 7 + 7 + 4)
    table = dataset.test[dataset.test["user"] == dataset.test["user"].iloc[-1]]
    heart = table["heart"].dropna().to_numpy()
    expected = [
        len(table),
        table["heart"].isna().mean(),
        heart.mean(),
        heart.std(ddof=1),
        heart.min(),
        heart.max(),
        np.median(heart),
        heart[-1] - heart[0],
    ]
    assert features[-1, :8] == pytest.approx(expected)
    wards = [table["ward"].isna().mean(), *((table["ward"] == w).mean() for w in "abc")]
    assert features[-1, 15:] == pytest.approx(wards)


def test_order_shows_in_features_and_not_in_embeddings(dataset, as_release, scores_of):
    backwards = as_release(dataset.test.assign(time=-dataset.test["time"]))
    got = scores_of(ClassifierTwoSample(), dataset, backwards)
    assert got["embedding"].value == pytest.approx(0.0, abs=0.02)


def test_components_are_means_of_those_of_each_classifier(dataset, as_release, scores_of):
    got = scores_of(ClassifierTwoSample(), dataset, as_release(dataset.train))
    for kind in ("embedding", "handcrafted"):
        each = [got[f"{classifier} {kind}"] for classifier in CLASSIFIERS]
        assert got[kind].value == pytest.approx(np.mean([score.value for score in each]))
        assert got[kind].floor == pytest.approx(np.mean([score.floor for score in each]))
        for score in each:
            assert abs(score.detail["AUC"] - 0.5) == score.value


def test_too_few_tables_score_the_worst(dataset, as_release, scores_of):
    few = dataset.test[dataset.test["user"] < dataset.test["user"].iloc[0] + 3]
    got = scores_of(ClassifierTwoSample(), dataset, as_release(few))
    assert {score.value for score in got.values()} == {0.5}


def test_fewer_than_four_tables_are_refused():
    with pytest.raises(ValueError, match="at least 4, got 3"):
        ClassifierTwoSample(max_tables=3)
