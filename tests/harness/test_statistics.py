"""Intervals, separation and ranks equal independent references."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from panelbench.statistics import interval, paired_p, separated, standings


def by_repeat(values):
    return {repeat: (value,) for repeat, value in enumerate(values)}


def test_the_interval_is_student_t():
    values = [3.1, 2.7, 3.9, 3.3, 2.2]
    low, high = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    found = interval([[value] for value in values])
    assert (found.lower, found.upper) == pytest.approx((low, high), abs=1e-9)


def test_one_value_has_no_interval():
    assert interval([[4.0]]).lower is None


def test_the_paired_p_value_is_that_of_the_paired_t_test():
    a, b = [1.0, 2.0, 4.0, 3.0], [1.5, 2.6, 3.9, 4.2]
    assert paired_p(by_repeat(a), by_repeat(b)) == pytest.approx(stats.ttest_rel(a, b).pvalue)


def test_only_shared_repeats_are_paired():
    a = {0: [1.0], 1: [2.0], 2: [4.0]}
    b = {1: [2.5], 2: [4.6], 3: [100.0]}
    assert paired_p(a, b) == pytest.approx(stats.ttest_rel([2.0, 4.0], [2.5, 4.6]).pvalue)
    assert paired_p({0: [1.0]}, {0: [2.0]}) == 1.0


def test_entries_without_randomness_separate_unless_they_are_equal():
    assert paired_p(by_repeat([1.0, 1.0]), by_repeat([2.0, 2.0])) == 0.0
    assert paired_p(by_repeat([1.0, 1.0]), by_repeat([1.0, 1.0])) == 1.0


def test_holm_stops_at_the_first_that_is_not_small_enough():
    p = {("a", "b"): 0.01, ("a", "c"): 0.03, ("b", "c"): 0.04}
    assert separated(p) == {("a", "b")}
    assert separated({("a", "b"): 0.01, ("a", "c"): 0.02, ("b", "c"): 0.04}) == set(p)


def test_under_no_difference_a_false_separation_is_as_rare_as_promised():
    """Family-wise 5 %: of 400 boards of four equal entries at most 36 separate anything.

    P(Binomial(400, 0.05) > 36) < 1e-3; the seed is fixed.
    """
    rng = np.random.default_rng(5)
    false = 0
    for _ in range(400):
        entries = {name: by_repeat(rng.normal(size=6)) for name in "abcd"}
        found = standings(entries, lower=True)
        false += any(place.tie_group > 1 or place.rank_lower > 1 for place in found.values())
    assert false <= 36


@pytest.mark.parametrize(("lower", "best"), [(True, "a"), (False, "c")])
def test_the_direction_decides_who_is_best(lower, best):
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.01, (3, 5))
    entries = {
        n: by_repeat(m + noise[i]) for i, (n, m) in enumerate(zip("abc", (1, 2, 3), strict=True))
    }
    found = standings(entries, lower=lower)
    assert found[best].rank == 1
    assert found[best].difference is None
    assert sorted(place.tie_group for place in found.values()) == [1, 2, 3]
    sign = 1 if lower else -1
    assert all(sign * p.difference.lower > 0 for n, p in found.items() if n != best)


def test_rank_intervals_hold_what_is_not_separated():
    entries = {
        "a": by_repeat([1.0, 1.1, 0.9, 1.0]),
        "b": by_repeat([1.1, 1.0, 1.0, 0.9]),
        "c": by_repeat([9.0, 9.1, 9.0, 8.9]),
    }
    found = standings(entries, lower=True)
    assert [(p.rank_lower, p.rank_upper) for p in found.values()] == [(1, 2), (1, 2), (3, 3)]


def test_equal_means_share_a_rank():
    entries = {
        "a": by_repeat([0.0, 0.0]),
        "b": by_repeat([0.0, 0.0]),
        "c": by_repeat([0.1 + 0.2, 0.3]),
        "d": by_repeat([0.3, 0.1 + 0.2]),
        "e": by_repeat([0.31, 0.3]),
    }
    for names in ("abcde", "edcba"):
        found = standings({name: entries[name] for name in names}, lower=True)
        assert [found[name].rank for name in "abcde"] == [1, 1, 3, 3, 5]


def test_an_entry_ties_with_the_best_by_its_own_test_whoever_ranks_between():
    entries = {
        "a": by_repeat([1.0, 1.1, 0.9, 1.0]),
        "b": by_repeat([2.0, 2.1, 1.9, 2.0]),
        "c": by_repeat([0.5, 9.0, 0.8, 5.0]),
        "d": by_repeat([7.0, 7.1, 6.9, 7.0]),
    }
    found = standings(entries, lower=True)
    assert {name: place.rank for name, place in found.items()} == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert {n: place.tie_group for n, place in found.items()} == {"a": 1, "b": 2, "c": 1, "d": 3}


def test_with_one_repeat_the_interval_is_over_cases():
    values = [3.1, 2.7, 3.9, 3.3]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    found = interval([values])
    assert (found.lower, found.upper) == pytest.approx((low, high))


def test_repeats_that_are_equal_add_nothing_to_the_interval_over_cases():
    values = [3.1, 2.7, 3.9, 3.3]
    one, three = interval([values]), interval([values, values, values])
    assert (three.lower, three.upper) == pytest.approx((one.lower, one.upper))


def test_the_interval_over_repeats_and_cases_covers_both_draws():
    """Mean 0 lies inside in at least 93 % of 2,000 two-way samples (95 % is promised).

    P(Binomial(2000, 0.95) < 1860) < 1e-4; the seed is fixed. Intervals over repeats alone cover
    under a half here.
    """
    rng = np.random.default_rng(3)
    covered = alone = 0
    for _ in range(2000):
        table = rng.normal(size=(4, 1)) / 4 + rng.normal(size=12) + rng.normal(size=(4, 12))
        found = interval(table.tolist())
        covered += found.lower <= 0 <= found.upper
        means = interval(table.mean(axis=1, keepdims=True).tolist())
        alone += means.lower <= 0 <= means.upper
    assert covered >= 1860
    assert alone < 1800


def test_cases_are_paired_between_entries():
    """A small effect beside a large spread of cases is seen, because cases are the same ones."""
    rng = np.random.default_rng(4)
    cases = rng.normal(0, 10, 20)
    first = {0: cases + rng.normal(0, 0.1, 20), 1: cases + rng.normal(0, 0.1, 20)}
    second = {repeat: values + 0.5 for repeat, values in first.items()}
    second = {repeat: values + rng.normal(0, 0.1, 20) for repeat, values in second.items()}
    assert paired_p(first, second) < 1e-6
    found = standings({"a": first, "b": second}, lower=True)
    assert found["b"].difference.lower < 0.5 < found["b"].difference.upper
    assert found["b"].difference.upper - found["b"].difference.lower < 0.5
