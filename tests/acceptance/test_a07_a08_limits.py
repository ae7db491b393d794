"""A07 and A08: limits are kept, and a child that dies takes nobody with it."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest


def only(records) -> dict:
    (record,) = records.values()
    return record


def prepare(bench):
    """Make the dataset, for which a machine under load may need longer than a short limit."""
    bench("plan", bench.grid(name="first"), "--store", bench.store)


def test_a07_a_sleeper_is_ended_by_its_time_limit(bench):
    prepare(bench)
    grid = bench.grid(mechanisms=["fx-sleep"], limits="seconds = 2")
    bench.run(grid, rc=3)
    record = only(bench.records())
    assert (record["status"], record["phase"]) == ("timeout", "release")
    assert 2 <= record["seconds"]["total"] < 3


def test_a07_a_hog_is_ended_by_its_memory_limit(bench):
    grid = bench.grid(mechanisms=["fx-hog"], limits="seconds = 60\nmemory_mb = 512")
    bench.run(grid, rc=3)
    record = only(bench.records())
    assert (record["status"], record["phase"]) == ("oom", "release")
    assert record["peak_mb"] > 512


def test_a07_a_log_without_end_is_ended_before_it_fills_the_disk(bench):
    prepare(bench)
    bench.run(bench.grid(mechanisms=["fx-chatty"], limits="seconds = 60"), rc=3)
    record = only(bench.records())
    assert (record["status"], record["phase"]) == ("failed", "release")
    assert "printed more than 64 MB" in record["error"]
    assert (bench.store / record["log"]).stat().st_size < 2**30


def test_a07_memory_that_a_grandchild_takes_counts(bench):
    hog = ("fx-hog", "{ apart = true }")
    grid = bench.grid(mechanisms=[hog], limits="seconds = 60\nmemory_mb = 512")
    bench.run(grid, rc=3)
    assert only(bench.records())["status"] == "oom"


@pytest.mark.parametrize("leaves", ["child", "session", "orphan"])
def test_a07_a_grandchild_does_not_outlive_its_cell(bench, leaves):
    note = bench.folder / "pid"
    params = f'{{ note = "{note}", leaves = "{leaves}" }}'
    bench.run(bench.grid(mechanisms=[("fx-fork", params)]))
    assert only(bench.records())["status"] == "ok"
    deadline = time.monotonic() + 5
    while psutil.pid_exists(pid := int(note.read_text())) and time.monotonic() < deadline:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            break  # dead; whoever adopts orphans here has not reaped it yet
        time.sleep(0.05)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a07_a_limit_hit_while_scoring_says_so_and_keeps_the_release(bench):
    prepare(bench)
    grid = bench.grid(metrics=["fx-gap", "fx-slow-metric", "fx-count"], limits="seconds = 8")
    bench.run(grid, rc=3)
    cell = only(bench.records())
    assert cell["status"] == "ok"
    assert (bench.store / "releases" / cell["release"] / "meta.json").exists()
    ended = {
        r["subject"]["metric"]["name"].split("/")[1]: r for r in bench.records("scores").values()
    }
    assert {name: r["status"] for name, r in ended.items()} == {
        "fx-gap": "ok",
        "fx-slow-metric": "timeout",
        "fx-count": "ok",
    }
    assert ended["fx-slow-metric"]["phase"] == "score"


def test_a07_each_metric_has_all_the_time_there_is(bench):
    slow = [("fx-slow-metric", f"{{ seconds = {seconds} }}") for seconds in (3.0, 3.1)]
    bench.run(bench.grid(metrics=slow, limits="seconds = 5"))
    assert {record["status"] for record in bench.records("scores").values()} == {"ok"}


def test_a08_a_cell_that_kills_itself_leaves_the_others_as_they_would_be(bench):
    grid = bench.grid(repeats=11, budgets="epsilon = [1.0]")
    bench.run(grid)
    alone = bench.board()
    bench.folder = bench.folder / "with"
    bench.folder.mkdir()
    grid = bench.grid(repeats=11)
    text = grid.read_text()
    killer = '[[mechanisms]]\nname = "fixtures-plugin/fx-kill"\n'
    grid.write_text(text.replace("[[mechanisms]]", f"{killer}[[mechanisms]]", 1))
    bench.run(grid, rc=3)
    found = bench.by_mechanism()
    assert len(found["fx-ok"]) == 11
    assert len(found["fx-kill"]) == 11
    assert {r["status"] for r in found["fx-kill"]} == {"killed"}
    assert all("signal 9" in r["error"] and r["attempt"] == 1 for r in found["fx-kill"])
    assert [line for line in bench.board() if "fx-ok" in line] == alone


def test_a08_twelve_cells_with_a_killer_in_the_middle_give_twelve_records(bench):
    mechanisms = [("fx-ok", f"{{ shift = {i / 10} }}") for i in range(12)]
    mechanisms[6] = "fx-kill"
    bench.run(bench.grid(mechanisms=mechanisms), rc=3)
    statuses = sorted(record["status"] for record in bench.records().values())
    assert statuses == ["killed", *["ok"] * 11]


def test_a08_what_was_killed_or_failed_is_not_run_again_unless_asked(bench):
    grid = bench.grid(mechanisms=["fx-kill", "fx-raise"])
    for _ in "ab":
        bench.run(grid, rc=3)
        assert [record["attempt"] for record in bench.records().values()] == [1, 1]


def test_a08_an_exception_is_a_record_with_the_plugin_line_and_a_log(bench):
    bench.run(bench.grid(mechanisms=["fx-raise"]), rc=3)
    record = only(bench.records())
    assert record["status"] == "failed"
    assert record["phase"] == "release"
    assert record["error"].startswith("RuntimeError at fixtures_plugin.py:")
    assert "lost its marbles" in record["error"]
    assert "Traceback" in (bench.store / record["log"]).read_text()


def test_a08_a_retry_keeps_the_old_attempt_and_the_seed(bench):
    marker = bench.folder / "marker"
    grid = bench.grid(mechanisms=[("fx-raise-once", f'{{ marker = "{marker}" }}'), "fx-ok"])
    bench.run(grid, rc=3)
    marker.touch()
    assert bench.run(grid, rc=3)
    bench.run(grid, "--retry", "failed")
    attempts = sorted(
        (record["attempt"], record["status"]) for record in bench.by_mechanism()["fx-raise-once"]
    )
    assert attempts == [(1, "failed"), (2, "ok")]
    board = {line for line in bench.board() if "raise" in line}
    assert board
    Path(marker).unlink()
