"""Nearest neighbors under normalised warping, against tslearn's paths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from tslearn.metrics import dtw_path_from_metric

from panelbench_metrics import kernel
from panelbench_metrics.nearest import CELLS, Packed, _bounds, _Grid, nearest_distances

KINDS = ("walks", "noise", "ties", "constant", "skewed", "tiny", "huge")


def some_tables(kind, count, rng, attributes=3, most=14):
    """Tables of 1 to `most` rows."""
    result = []
    for _ in range(count):
        shape = (int(rng.integers(1, most + 1)), attributes)
        result.append(
            {
                "walks": lambda s=shape: rng.normal(size=s).cumsum(axis=0) + rng.normal(size=s[1]),
                "noise": lambda s=shape: rng.normal(size=s),
                "ties": lambda s=shape: rng.integers(0, 3, s) * 0.1,
                "constant": lambda s=shape: np.full(s, float(rng.integers(0, 4))),
                "skewed": lambda s=shape: rng.exponential(size=s) ** 6,
                "tiny": lambda s=shape: rng.normal(size=s) * 2e-45,
                "huge": lambda s=shape: rng.normal(size=s) * 1e45,
            }[kind]()
        )
    return result


def column(*values):
    return np.array(values, dtype=float)[:, None]


def oracle(a, b, weights):
    """The distance of two tables by tslearn, path by path."""
    total = 0.0
    for k, weight in enumerate(weights):
        path, cost = dtw_path_from_metric(a[:, [k]], b[:, [k]], metric="cityblock")
        total += weight * (cost / len(path))
    return total


def nearest(queries, references, weights, **options):
    return nearest_distances(Packed.of(queries), Packed.of(references), weights, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_pair_has_the_distance_of_the_oracle(kind):
    rng = np.random.default_rng(1)
    weights = np.array([1.0, 0.25, 3.0])
    for a, b in zip(*(some_tables(kind, 30, rng) for _ in "ab"), strict=True):
        expected = oracle(a, b, weights)
        assert nearest([a], [b], weights)[0] == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_of_many_is_that_of_the_oracle(kind):
    rng = np.random.default_rng(2)
    queries, references = some_tables(kind, 5, rng), some_tables(kind, 30, rng)
    weights = np.array([1.0, 0.25, 3.0])
    expected = [min(oracle(a, b, weights) for b in references) for a in queries]
    assert nearest(queries, references, weights) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("kind", KINDS)
def test_stopping_early_never_changes_a_bit(kind):
    rng = np.random.default_rng(3)
    queries = some_tables(kind, 40, rng, attributes=4, most=50)
    references = some_tables(kind, 150, rng, attributes=4, most=50)
    weights = np.array([1.0, 0.5, 2.0, 1.0])
    # one reference at a time leaves nothing to stop for
    each = [nearest(queries, [reference], weights) for reference in references]
    assert (nearest(queries, references, weights) == np.min(each, axis=0)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_no_bound_exceeds_the_distance(kind):
    rng = np.random.default_rng(8)
    queries, references = (some_tables(kind, 12, rng, attributes=1) for _ in "ab")
    for query, reference in zip(queries, references, strict=True):
        assert_bounded(query, reference)


def test_no_bound_exceeds_the_distance_along_a_long_path():
    # five rows meet the first value, then the last row meets five: 10 cells for 6 rows
    assert_bounded(column(1, 1, 1, 1, 1, 0), column(1.9, 0, 0, 0, 0, 0))


def test_no_bound_exceeds_the_distance_where_float32_is_coarse():
    assert_bounded(column(0, 0, 0, 0, 0, 1e-50), column(0.75e-45))


def assert_bounded(query, reference):
    packed = Packed.of([query]), Packed.of([reference])
    edges = [np.unique(np.concatenate((query, reference)))]
    edges[0] = np.quantile(edges[0], np.linspace(0.0, 1.0, CELLS + 1), method="lower")
    grids = (_Grid.of(side, edges) for side in packed)
    bound = _bounds(*grids, slice(0, 1))[0, 0, 0]
    assert bound <= nearest_distances(*packed, np.ones(1))[0] * (1.0 + 1e-12)


def test_queries_far_outside_the_references_are_handled():
    rng = np.random.default_rng(4)
    queries = [table + 1e6 for table in some_tables("walks", 5, rng)]
    references = some_tables("walks", 30, rng)
    weights = np.ones(3)
    expected = [min(oracle(a, b, weights) for b in references) for a in queries]
    assert nearest(queries, references, weights) == pytest.approx(expected, rel=1e-9)


def test_ties_prefer_the_diagonal_then_a_step_in_the_first_series():
    # into the last cell, the diagonal step and the one in the first series cost 5
    assert nearest([column(0, 1)], [column(5, 0)], np.ones(1))[0] == 6 / 2
    # two ways to cost 3, of 5 cells by a step in the first series and of 4 by one in the second
    assert nearest([column(0, 2, 0)], [column(0, 1, 0, 2)], np.ones(1))[0] == 3 / 5


def test_a_copy_is_at_distance_zero_and_a_skipped_copy_is_not():
    rng = np.random.default_rng(5)
    references = some_tables("noise", 20, rng)
    weights = np.ones(3)
    assert (nearest(references, references, weights) == 0.0).all()
    skipped = nearest(references, references, weights, skip=np.arange(20))
    expected = [
        nearest([references[i]], references[:i] + references[i + 1 :], weights)[0]
        for i in range(20)
    ]
    assert list(skipped) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_several_distances_in_one_search_are_those_of_one_each(kind):
    rng = np.random.default_rng(9)
    queries, references = (some_tables(kind, count, rng) for count in (20, 80))
    weights = np.array([[1.0, 1.0, 1.0], [0.0, 5.0, 1e-3], [3.0, 0.01, 0.5]])
    skip = rng.integers(-1, 80, 20)
    each = [nearest(queries, references, row, skip=skip) for row in weights]
    assert (nearest(queries, references, weights, skip=skip) == each).all()


def test_skipping_the_only_reference_is_infinitely_far():
    table = np.zeros((3, 1))
    assert nearest([table], [table], np.ones(1), skip=np.array([0]))[0] == np.inf


def test_threads_do_not_change_the_result():
    rng = np.random.default_rng(6)
    queries, references = some_tables("walks", 150, rng), some_tables("walks", 40, rng)
    one = nearest(queries, references, np.ones(3))
    assert (nearest(queries, references, np.ones(3), threads=2) == one).all()


def test_numba_caps_the_threads(monkeypatch):
    def refuse(_):
        raise AssertionError

    monkeypatch.setattr(numba, "get_num_threads", lambda: 1)
    monkeypatch.setattr("panelbench_metrics.nearest.ThreadPoolExecutor", refuse)
    tables = some_tables("walks", 5, np.random.default_rng(7))
    assert (nearest(tables, tables, np.ones(3), threads=8) == 0.0).all()


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="at least one row"):
        Packed.of([np.zeros((2, 1)), np.zeros((0, 1))])


def test_a_missing_value_is_refused():
    with pytest.raises(ValueError, match="finite"):
        Packed.of([np.array([[np.nan]])])


def test_code_that_cannot_be_kept_is_compiled_all_the_same(tmp_path):
    source = tmp_path / "kernel.py"
    source.write_text(
        "from panelbench_metrics.kernel import compiled\nF = compiled(lambda x: x + 1)"
    )
    script = (
        "import numba.core.caching as c; c.CacheImpl._locator_classes = [];"
        "import runpy; print(runpy.run_path('kernel.py')['F'](1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "2", done.stderr


def test_all_compiled_code_is_in_one_file():
    # numba renews kept code when the file of a function changes, and looks at no other file
    package = Path(kernel.__file__).parent
    assert [f.name for f in package.glob("*.py") if "@compiled" in f.read_text()] == ["kernel.py"]
