"""`--beside`: one's own grid with the entries that others published."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

TWO = ["fx-ok", ("fx-ok", "{ shift = 0.5 }"), "fx-nonprivate"]
GRID = {"repeats": 3, "budgets": "epsilon = [0.5, 4.0]"}


@pytest.fixture(scope="module")
def published(new_bench):
    """An archive of three entries at two budgets, and the lines of its board."""
    bench = new_bench()
    grid = bench.grid(mechanisms=TWO, **GRID)
    bench.run(grid)
    bench("publish", grid, "--store", bench.store, "--to", bench.folder)
    return bench.folder / "fx.jsonl.gz", sorted(bench.board())


def own(bench, **parts):
    """A grid of a newcomer's own, run in a store of its own."""
    grid = bench.grid(**{"mechanisms": TWO[1:2], **GRID, **parts}, name="mine")
    bench.run(grid)
    return grid, "--store", bench.store


def test_the_board_is_that_of_one_grid_with_all_of_them(bench, published):
    archive, lines = published
    grid = own(bench)
    alone = bench.board("mine")
    told = bench("leaderboard", *grid, "--beside", archive)
    assert sorted(bench.board("mine-beside")) == lines
    assert bench.board("mine") == alone
    assert "Published in fx.jsonl.gz, and not computed with this grid: fixtures" in told.stdout


def test_entries_at_other_budgets_are_left_out(bench, published):
    archive, lines = published
    bench("leaderboard", *own(bench, budgets="epsilon = [4.0]"), "--beside", archive)
    found = bench.board("mine-beside")
    assert 0 < len(found) < len(lines)
    assert not any('"epsilon": "0.5"' in line for line in found)


def test_another_name_of_the_data_and_another_metric_are_no_hindrance(bench, published):
    archive, _ = published
    grid = own(bench, datasets=[("tiny", '{}\nlabel = "mine"')], metrics=["fx-gap", "fx-count"])
    told = bench("leaderboard", *grid, "--beside", archive).stdout
    assert "Not scored there, or by other code: fixtures-plugin/fx-count." in told
    assert all('"dataset": "mine"' in line for line in bench.board("mine-beside"))
    counted = [line for line in bench.board("mine-beside") if "fx-count" in line]
    assert {"fx-nonprivate" in line for line in counted} == {False}


def test_what_is_published_with_others_entries_verifies_and_can_be_used_again(bench, published):
    archive, lines = published
    out = bench.folder / "out"
    grid = own(bench)
    bench("publish", *grid, "--beside", archive, "--to", out)
    assert "All is as it says." in bench("verify", out).stdout
    assert "not computed with this grid" in (out / "mine.html").read_text()
    bench("leaderboard", *grid, "--beside", out / "mine.jsonl.gz")
    assert sorted(bench.board("mine-beside")) == lines


def test_two_published_boards_become_one(bench, published):
    archive, lines = published
    grid = own(bench)
    bench("publish", *grid, "--to", bench.folder / "one")
    first = bench.folder / "one" / "mine.jsonl.gz"
    before = json.loads(gzip.decompress(first.read_bytes()).splitlines()[0])["versions"]
    out = bench.folder / "both"
    bench("publish", first, "--store", bench.store, "--beside", archive, "--to", out)
    assert "All is as it says." in bench("verify", out).stdout
    assert len((out / "mine.csv").read_text().splitlines()) == 1 + len(lines)
    grid = own(bench)
    bench("publish", *grid, "--beside", archive, "--to", bench.folder / "again")
    joined = (bench.folder / "again" / "mine.jsonl.gz").read_bytes()
    assert before["fixtures-plugin"]
    assert json.loads(gzip.decompress(joined).splitlines()[0])["versions"] == before


@pytest.mark.parametrize(
    ("parts", "lacks"),
    [
        ({"datasets": [("tiny", "{ users = 80 }")]}, "is on the data of this grid"),
        ({"budgets": "epsilon = [1.0]", "mechanisms": ["fx-ok"]}, ""),
        ({"metrics": ["fx-count"]}, "was scored by a metric of this grid"),
    ],
)
def test_what_cannot_be_compared_says_why(bench, published, parts, lacks):
    archive, _ = published
    done = bench("leaderboard", *own(bench, **parts), "--beside", archive, rc=1 if lacks else 0)
    assert lacks in done.stderr


def test_scores_by_other_code_of_a_metric_do_not_count(bench, published):
    archive, _ = published
    changed = bench.folder / "fixtures_plugin.py"
    shutil.copy(bench.plugins[0], changed)
    with changed.open("a") as stream:
        stream.write("\n# another state of the code\n")
    bench.plugins = [changed]
    done = bench("leaderboard", *own(bench), "--beside", archive, rc=1)
    assert "was scored by a metric of this grid with the code that it has here" in done.stderr
