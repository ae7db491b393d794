"""Votes: what one user changes, and who wins."""

import math

import numpy as np
import pytest

from panelbench import NeighboringRelation
from panelbench.testing import tiny_tables, tiny_visits
from panelbench_path.selection import chosen, described, vote_sensitivity, votes_of
from panelbench_path.serialise import Form


def points(count, seed):
    return np.random.default_rng(seed).normal(size=(count, 3))


@pytest.mark.parametrize("user", range(5))
def test_a_user_moves_the_votes_by_the_root_of_their_number(user):
    real, candidates = points(40, 0), points(60, 1)
    with_user = votes_of(real, candidates, 7)
    without = votes_of(np.delete(real, user, axis=0), candidates, 7)
    assert set(with_user - without) == {0.0, 1.0}
    distance = np.linalg.norm(with_user - without)
    assert distance == pytest.approx(math.sqrt(7))
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    assert distance == pytest.approx(vote_sensitivity(7, relation))


def test_another_user_in_the_same_place_moves_them_by_at_most_the_root_of_twice_that():
    real, candidates = points(40, 0), points(60, 1)
    far = real.copy()
    far[0] = -5 * real[0]
    distance = np.linalg.norm(votes_of(real, candidates, 7) - votes_of(far, candidates, 7))
    assert distance == pytest.approx(vote_sensitivity(7, NeighboringRelation.REPLACE_ONE))


def test_each_user_votes_for_the_nearest_candidates():
    candidates = np.array([[0.0], [1.0], [2.0], [10.0]])
    assert votes_of(np.array([[0.4], [9.0]]), candidates, 2).tolist() == [1, 1, 1, 1]


def test_top_keeps_the_most_votes_and_proportional_draws_by_them():
    rng = np.random.default_rng(0)
    votes = np.array([5.0, -3.0, 9.0, 1.0])
    assert chosen(votes, 2, "top", rng).tolist() == [0, 2]
    drawn = np.array([chosen(votes, 1, "proportional", rng)[0] for _ in range(4000)])
    share = np.bincount(drawn, minlength=4) / 4000
    assert np.allclose(share, np.array([5, 0, 9, 1]) / 15, atol=0.04)  # 5 standard errors


def test_a_draw_repeats_no_candidate():
    votes = np.array([0.0, 0.0, 1.0, -1.0])
    picked = chosen(votes, 4, "proportional", np.random.default_rng(0))
    assert picked.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("panel", [tiny_tables(), tiny_visits()], ids=["regular", "irregular"])
@pytest.mark.parametrize("how", ["rows", "course"])
def test_a_description_is_of_one_table_alone(panel, how):
    form = Form.of(panel.schema)
    tables = form.encode(panel.train)[:9]
    together = described(tables, form, how)
    apart = np.concatenate([described([table], form, how) for table in tables])
    assert np.allclose(together, apart)


def test_the_mean_row_is_blind_to_order_and_the_course_is_not():
    panel = tiny_tables()
    form = Form.of(panel.schema)
    table = form.encode(panel.train)[0]
    turned = table[::-1].copy()
    assert np.allclose(*(described([t], form, "rows") for t in (table, turned)))
    assert not np.allclose(*(described([t], form, "course") for t in (table, turned)))
