"""A03 and A05: what is incomplete is shown and not ranked; ties are ties."""

from __future__ import annotations

import csv
import json

GRID = {"repeats": 6, "mechanisms": ["fx-ok", ("fx-ok", "{ shift = 0.4 }")]}


def rows(bench):
    return list(csv.DictReader((bench.store / "fx.csv").read_text().splitlines()))


def shifted(found):
    return next(row for row in found if json.loads(row["params"])["shift"] == 0.4)


def test_a03_an_entry_with_a_failed_cell_shows_its_count_and_has_no_rank(bench):
    grid = bench.grid(repeats=6, mechanisms=["fx-ok", "fx-raise-sometimes"])
    bench.run(grid, rc=3)
    whole, partial = rows(bench)
    assert (whole["n_ok"], whole["n_planned"], whole["rank"]) == ("6", "6", "1")
    assert 0 < int(partial["n_ok"]) < 6
    assert partial["n_planned"] == "6"
    assert partial["section"] == "incomplete"
    assert partial["rank"] == partial["tie_group"] == partial["difference_to_best"] == ""


def test_a03_what_failed_throughout_still_has_its_row(bench):
    mechanisms, metrics = ["fx-ok", "fx-raise"], ["fx-gap", "fx-raising-metric"]
    bench.run(bench.grid(repeats=2, mechanisms=mechanisms, metrics=metrics), rc=3)
    whole, *failed = rows(bench)
    assert (whole["n_ok"], whole["rank"]) == ("2", "1")
    assert [(r["n_ok"], r["n_planned"], r["section"]) for r in failed] == [
        ("0", "2", "incomplete")
    ] * 3


def test_a03_failed_nan_infinite_and_deleted_give_the_same_board(bench):
    grid = bench.grid(**GRID)
    bench.run(grid)
    victim = next(
        path
        for path in sorted((bench.store / "scores").glob("*.json"))
        if json.loads(path.read_text())["subject"]["stream"]["repeat"] == 0
    )
    original = victim.read_text()
    boards = []
    for change in (
        None,
        {"status": "failed", "scores": [], "error": "it fell over"},
        {"status": "invalid", "scores": [], "error": "gap = nan"},
        {"status": "invalid", "scores": [], "error": "gap = inf"},
    ):
        if change is None:
            victim.unlink()
        else:
            victim.write_text(json.dumps({**json.loads(original), **change}))
        bench("leaderboard", grid, "--store", bench.store)
        boards.append(bench.board())
    assert boards[0] == boards[1] == boards[2] == boards[3]
    partial = [row for row in rows(bench) if row["section"] == "incomplete"]
    assert [(row["n_ok"], row["rank"]) for row in partial] == [("5", "")]


def test_a03_a_metric_that_gives_nan_or_infinity_is_invalid_and_names_the_value(bench):
    for value in ("nan", "inf", "-1"):
        grid = bench.grid(metrics=["fx-gap", ("fx-nan", f'{{ value = "{value}" }}')])
        bench.run(grid, rc=3)
        bad = [r for r in bench.records("scores").values() if r["status"] == "invalid"]
        assert any(f"gap = {float(value)}" in r["error"] for r in bad)


def test_a05_two_copies_under_two_names_share_a_tie_group(bench):
    bench.run(bench.grid(repeats=5, mechanisms=["fx-ok", "fx-ok-twin"]))
    first, second = rows(bench)
    assert first["tie_group"] == second["tie_group"] == "1"
    assert (first["rank_lower"], first["rank_upper"]) == ("1", "2")


def test_a05_one_that_is_better_by_three_standard_deviations_is_separated(bench):
    bench.run(bench.grid(repeats=5, mechanisms=["fx-ok", ("fx-ok", "{ shift = 4.0 }")]))
    better, worse = rows(bench)
    assert (better["tie_group"], worse["tie_group"]) == ("1", "2")
    assert (worse["rank_lower"], worse["rank_upper"]) == ("2", "2")
    assert float(worse["difference_lower"]) > 0


def test_a05_one_repeat_gives_no_interval_and_no_separation(bench):
    told = bench.run(bench.grid(repeats=1, mechanisms=["fx-ok", ("fx-ok", "{ shift = 4.0 }")]))
    assert "nothing is separated and nothing starred" in told.stdout
    assert told.stdout.count("*") == 1  # in the legend
    assert 'class="best"' not in (bench.store / "fx.html").read_text()
    better, worse = rows(bench)
    assert better["lower"] == better["upper"] == worse["difference_lower"] == ""
    assert better["tie_group"] == worse["tie_group"] == "1"
