"""`leaderboard --against`: every entry's paired difference to one of them."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def grid(bench):
    mechanisms = ["fx-ok", ("fx-ok", "{ shift = 0.5 }"), "fx-nonprivate"]
    grid = bench.grid(repeats=3, budgets="epsilon = [0.5, 4.0]", mechanisms=mechanisms)
    bench.run(grid)
    return grid


def test_differences_are_those_of_the_means_and_paired(bench, grid):
    entry = "fixtures-plugin/fx-ok"
    told = bench("leaderboard", grid, "--store", bench.store, "--against", entry, "--json").stdout
    rows = json.loads(told)
    means = {
        (row["mechanism"], row["params"], row["epsilon"]): row["mean"]
        for row in json.loads(bench("leaderboard", grid, "--store", bench.store, "--json").stdout)
    }
    shifted = [row for row in rows if "0.5" in row["params"]]
    assert {row["epsilon"] for row in shifted} == {0.5, 4.0}
    for row in shifted:
        base = next(
            mean for (name, params, epsilon), mean in means.items()
            if name == row["mechanism"] and params != row["params"] and epsilon == row["epsilon"]
        )  # fmt: skip
        assert row["by"]["mean"] == pytest.approx(row["mean"] - base)
        assert row["share"] == pytest.approx((row["mean"] - base) / base)


def test_an_entry_that_is_not_there_is_said_with_the_nearest(bench, grid):
    told = bench("leaderboard", grid, "--store", bench.store, "--against", "fx-okay", rc=1).stderr
    assert "Unknown entry 'fx-okay'" in told


def test_the_text_has_a_line_for_each_other_entry_and_budget(bench, grid):
    entry = "fixtures-plugin/fx-nonprivate"
    told = bench("leaderboard", grid, "--store", bench.store, "--against", entry).stdout
    assert told.count("eps 0.5") == 2
    assert told.count("eps 4") == 2
