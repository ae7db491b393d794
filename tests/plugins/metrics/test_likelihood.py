"""Likelihoods under the true model, against hmmlearn and sums over all paths."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, wasserstein_distance

from panelbench.testing import tiny_visits
from panelbench_metrics.likelihood import HmmLikelihood, log_likelihoods

LEVELS = ("a", "b", "c")


def a_model(rng, states=3, columns=2, types=1, levels=LEVELS):
    """Random true parameters."""
    root = rng.normal(size=(states, columns, columns))
    covariances = root @ root.transpose(0, 2, 1) + 0.3 * np.eye(columns)
    return {
        "numeric": [f"x{k}" for k in range(columns)],
        "categorical": "level",
        "levels": list(levels),
        "weights": rng.dirichlet(np.ones(types)).tolist(),
        "initial": rng.dirichlet(np.ones(states), types).tolist(),
        "transition": rng.dirichlet(np.ones(states), (types, states)).tolist(),
        "means": rng.normal(size=(states, columns)).tolist(),
        "covariances": covariances.tolist(),
        "emission": rng.dirichlet(np.ones(len(levels)), states).tolist(),
    }


def some_tables(rng, truth, lengths, missing=0.0):
    """Random tables over the columns of a model, categories in another order than its levels."""
    rows = int(np.sum(lengths))
    values = rng.normal(0.0, 2.0, (rows, len(truth["numeric"])))
    values[rng.random(values.shape) < missing] = np.nan
    codes = rng.integers(0, len(truth["levels"]), rows)
    codes[rng.random(rows) < missing] = -1
    order = pd.Index(truth["levels"][::-1])
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(len(lengths)), lengths),
            **dict(zip(truth["numeric"], values.T, strict=True)),
            "level": pd.Categorical.from_codes(codes, categories=order),
        }
    )


def by_all_paths(table, truth):
    """The likelihood of one table as a sum over types and state paths."""
    rows, states = len(table), len(truth["means"])
    densities = np.ones((rows, states))
    for t, s in itertools.product(range(rows), range(states)):
        row = table.iloc[t]
        values = row[truth["numeric"]].to_numpy(dtype=float)
        known = ~np.isnan(values)
        if known.any():
            covariance = np.array(truth["covariances"][s])[np.ix_(known, known)]
            mean = np.array(truth["means"][s])[known]
            densities[t, s] = multivariate_normal(mean, covariance).pdf(values[known])
        if row["level"] in truth["levels"]:
            densities[t, s] *= truth["emission"][s][truth["levels"].index(row["level"])]
    total = 0.0
    for kind, weight in enumerate(truth["weights"]):
        for path in itertools.product(range(states), repeat=rows):
            p = weight * truth["initial"][kind][path[0]]
            p *= np.prod([truth["transition"][kind][a][b] for a, b in itertools.pairwise(path)])
            total += p * np.prod([densities[t, s] for t, s in enumerate(path)])
    return np.log(total)


@pytest.mark.parametrize("types", [1, 2])
def test_a_table_has_the_likelihood_of_all_its_paths(types):
    rng = np.random.default_rng(types)
    truth = a_model(rng, types=types)
    frame = some_tables(rng, truth, [1, 4, 2, 5], missing=0.3)
    expected = [by_all_paths(table, truth) for _, table in frame.groupby("user")]
    assert log_likelihoods(frame, truth) == pytest.approx(expected, rel=1e-10)


def test_hmmlearn_gives_the_same_likelihoods():
    hmm = pytest.importorskip("hmmlearn.hmm")
    rng = np.random.default_rng(5)
    truth = a_model(rng, states=4, columns=5, levels=("only",))
    frame = some_tables(rng, truth, rng.integers(1, 51, 40))
    model = hmm.GaussianHMM(n_components=4, covariance_type="full")
    model.startprob_ = np.array(truth["initial"][0])
    model.transmat_ = np.array(truth["transition"][0])
    model.means_, model.covars_ = np.array(truth["means"]), np.array(truth["covariances"])
    expected = [
        model.score(table[truth["numeric"]].to_numpy()) for _, table in frame.groupby("user")
    ]
    assert log_likelihoods(frame, truth) == pytest.approx(expected, rel=1e-10)


def test_a_row_without_values_changes_nothing_but_time():
    rng = np.random.default_rng(6)
    truth = a_model(rng)
    frame = some_tables(rng, truth, [3])
    longer = pd.concat([frame, some_tables(rng, truth, [2], missing=1.1)], ignore_index=True)
    whole = log_likelihoods(longer.assign(user=0), truth)
    assert whole == pytest.approx(log_likelihoods(frame, truth), rel=1e-12)


def test_impossible_and_absurd_tables_have_a_finite_score(as_release, scores_of):
    dataset = tiny_visits()
    absurd = dataset.test.assign(latitude=1e308, longitude=-1e308)
    got = scores_of(HmmLikelihood(), dataset, as_release(absurd, dataset.schema))
    assert all(np.isfinite(score.value) for score in got.values())
    assert got["gap"].value > 1e100


def test_the_scores_are_differences_of_likelihoods(as_release, scores_of):
    dataset = tiny_visits()
    release = as_release(dataset.train, dataset.schema)
    got = scores_of(HmmLikelihood(), dataset, release)
    a, b = (log_likelihoods(f, dataset.extra["hmm"]) for f in (dataset.test, dataset.train))
    rows = [f.groupby("user").size().to_numpy() for f in (dataset.test, dataset.train)]
    assert got["gap"].value == pytest.approx(abs(a.mean() - b.mean()))
    per_row = abs((a / rows[0]).mean() - (b / rows[1]).mean())
    assert got["per-row"].value == pytest.approx(per_row)
    assert got["w1"].value == pytest.approx(wasserstein_distance(a, b))


def test_tables_cut_to_rows_are_scored_at_equal_length(as_release, scores_of):
    dataset = tiny_visits()
    release = as_release(dataset.train, dataset.schema)
    got = scores_of(HmmLikelihood(rows=6), dataset, release)
    cut = [f[f.groupby("user").cumcount() < 6] for f in (dataset.test, dataset.train)]
    cut = [f[f.groupby("user")["user"].transform("size") == 6] for f in cut]
    a, b = (log_likelihoods(f, dataset.extra["hmm"]) for f in cut)
    assert got["gap"].value == pytest.approx(abs(a.mean() - b.mean()))
    assert got["per-row"].value == pytest.approx(got["gap"].value / 6)


def test_data_without_a_true_model_has_no_score(dataset, as_release, scores_of):
    assert not scores_of(HmmLikelihood(), dataset, as_release(dataset.test))
