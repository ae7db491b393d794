"""The graphical model: exact on junction trees, and as good a fit as the library's."""

import itertools
import math

import numpy as np
import pytest

from panelbench_marginals import fit
from panelbench_marginals.drawing import drawn, lengths_of
from panelbench_marginals.graphical import Model
from panelbench_marginals.junction import cells, growth, maximal, positions, tree, triangulated

SIZES = (3, 4, 2, 3, 2)
LOOPY = [(0,), (1,), (2,), (3,), (4,), (0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]
PAIRS = list(itertools.combinations(range(5), 2))
TRIPLES = list(itertools.combinations(range(5), 3))


def truth(seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(math.prod(SIZES), 0.3)).reshape(SIZES)


def over(joint, clique):
    """The marginal of a joint distribution."""
    return joint.sum(axis=tuple(v for v in range(joint.ndim) if v not in clique))


def fitted(cliques=LOOPY, noise=0.0, total=1000.0, stddev=1.0, seed=0):
    rng = np.random.default_rng(seed + 100)
    model = Model(SIZES, total)
    for clique in cliques:
        counts = over(truth(seed), clique) * total
        part = model.add(clique, counts + noise * rng.normal(size=counts.shape), stddev)
        part.fit(total, 2000)
    return model


def spelled_out(model):
    """The distribution of a model by its definition: the product of all potentials."""
    log = np.zeros(SIZES)
    for part in model.components:
        for clique, factor in part.factors.items():
            log = log + factor.potential.reshape([SIZES[v] if v in clique else 1 for v in range(5)])
    joint = np.exp(log - log.max())
    return joint / joint.sum()


@pytest.mark.parametrize("cliques", [LOOPY, LOOPY[:7], [*LOOPY, (1, 3), (0, 2, 4)]])
def test_every_marginal_is_that_of_the_product_of_the_potentials(cliques):
    model = fitted(cliques, noise=20.0)
    joint = spelled_out(model)
    for clique in [(v,) for v in range(5)] + PAIRS + TRIPLES:
        np.testing.assert_allclose(model.project(clique), over(joint, clique), atol=1e-9)
    for part in model.components:
        for v in part.variables:
            found = dict(part.joints(v))
            assert set(found) == set(part.variables) - {v}
            for u, values in found.items():
                np.testing.assert_allclose(values.T, model.project((v, u)), atol=1e-9)


def test_exact_marginals_come_back():
    model = fitted()
    for clique in LOOPY:
        np.testing.assert_allclose(
            1000 * model.project(clique), 1000 * over(truth(), clique), atol=0.5
        )


def test_the_fit_is_as_close_to_noisy_marginals_as_the_librarys():
    noise = 20.0
    rng = np.random.default_rng(3)
    names = [str(v) for v in range(5)]
    counts = {
        c: 1000 * over(truth(), c) + noise * rng.normal(size=over(truth(), c).shape) for c in LOOPY
    }
    model = Model(SIZES, 1000.0)
    for clique, values in counts.items():
        part = model.add(clique, values, noise)
    part.fit(1000.0, 2000)
    theirs = fit.mbi.estimation.MirrorDescent(
        marginal_oracle=fit.mbi.marginal_oracles.message_passing_shafer_shenoy
    ).estimate(
        fit.mbi.Domain(names, SIZES),
        [
            fit.mbi.LinearMeasurement(v.ravel(), tuple(map(str, c)), stddev=noise)
            for c, v in counts.items()
        ],
        known_total=1000.0,
        iters=2000,
    )

    def loss(project):
        return sum(((1000 * project(c) - v) ** 2).sum() for c, v in counts.items()) / noise**2

    def library(clique):
        wanted = tuple(map(str, clique))
        return np.asarray(theirs.project(wanted).datavector(flatten=False)) / 1000

    assert loss(model.project) <= loss(library) * 1.001


def test_two_measurements_of_a_marginal_count_by_their_precision():
    model = Model((2,), 100.0)
    model.add((0,), np.array([60.0, 40.0]), 1.0)
    part = model.add((0,), np.array([0.0, 100.0]), 2.0)
    part.fit(100.0, 2000)
    np.testing.assert_allclose(100 * model.project((0,)), [48.0, 52.0], atol=0.1)
    assert model.estimated_total() == pytest.approx(100.0)


def test_a_new_marginal_refits_only_what_it_hangs_together_with():
    model = fitted(LOOPY[:5])
    before = model.of[4]
    model.add((0, 1), 1000 * over(truth(), (0, 1)), 1.0)
    assert model.of[0] is model.of[1]
    assert model.of[4] is before
    assert len(model.components) == 4


def test_the_announced_growth_is_never_exceeded():
    rng = np.random.default_rng(5)
    sizes = tuple(rng.integers(2, 7, 9))
    model = Model(sizes, 1.0)
    for _ in range(14):
        clique = tuple(sorted(rng.choice(9, 2, replace=False).tolist()))
        own = model.of[clique[0]]
        most = cells(clique, sizes)
        if own is model.of[clique[1]]:
            most = min(
                growth(v, own.cliques, own.parents, sizes)[u][0] for v, u in (clique, clique[::-1])
            )
        exact, before = model.added_cells(clique), model.cells
        model.add(clique, np.zeros(cells(clique, sizes)), 1.0).fit(1.0, 1)
        assert model.cells - before <= min(most, exact)


def test_cliques_of_a_junction_tree_follow_their_parents_and_agree_along_it():
    edges = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (4, 5), (3, 5)]
    cliques, parents = tree(triangulated(edges, (2,) * 6))
    assert all(parent < i for i, parent in enumerate(parents))
    for i, clique in enumerate(cliques[1:], start=1):  # running intersection
        earlier = {v for c in cliques[:i] for v in c}
        assert earlier & set(clique) <= set(cliques[parents[i]])
    assert all(any(set(e) <= set(c) for c in cliques) for e in edges)
    assert maximal(cliques) == sorted(cliques)


def test_positions_are_those_of_row_major_marginals():
    at = positions((0, 2, 3), (3, 0), SIZES)
    expected = [v3 * 3 + v0 for v0 in range(3) for _ in range(2) for v3 in range(3)]
    assert at.tolist() == expected


def test_drawn_records_have_the_marginals_of_the_model_up_to_rounding():
    model = fitted(LOOPY[:7])
    records = drawn(model, 5000, np.random.default_rng(0))
    assert records.shape == (5000, 5)
    for clique in [(0,), (4,), (0, 1), (1, 2)]:
        counts = np.zeros([SIZES[v] for v in clique])
        np.add.at(counts, tuple(records[:, v] for v in clique), 1)
        # one rounding a value and one a separator cell above it
        assert np.abs(counts - 5000 * model.project(clique)).max() <= 3
    # independent variables stay so: 20 cells, five standard errors of a multinomial count
    counts = np.zeros((3, 3))
    np.add.at(counts, (records[:, 0], records[:, 3]), 1)
    expected = 5000 * model.project((0, 3))
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 3).all()


def test_a_table_ends_where_most_columns_hold_no_row():
    present = np.array([[1.0, 0.6, 0.4, 1.0], [0.2, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.5]])
    assert lengths_of(present, least=1).tolist() == [2, 1, 4]
