"""A01 and A02: an interrupted grid goes on where it was, and order changes nothing."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest

from panelbench.record import write_new

GRID = {"repeats": 8, "budgets": "epsilon = [0.5, 1.0, 2.0]", "metrics": ["fx-gap", "fx-count"]}


def killed_after(bench, grid, enough) -> None:
    """Start the grid, kill its parent without mercy once `enough()`."""
    process = bench.start("run", grid, "--store", bench.store, start_new_session=True)
    try:
        while process.poll() is None and not enough():
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def test_a01_a_killed_grid_goes_on_and_leaves_finished_records_untouched(bench):
    grid = bench.grid(**GRID)
    killed_after(bench, grid, lambda: len(bench.records()) >= 8)
    before = {p.name: p.read_bytes() for p in (bench.store / "records").glob("*.json")}
    assert 8 <= len(before) < 24
    bench.run(grid)
    after = {p.name: p.read_bytes() for p in (bench.store / "records").glob("*.json")}
    assert len(after) == 24
    assert {name: after[name] for name in before} == before
    interrupted = bench.board()
    bench.folder /= "again"
    bench.folder.mkdir()
    bench.run(bench.grid(**GRID))
    assert bench.board() == interrupted


def test_a01_a_run_goes_on_when_nobody_reads_what_it_says(bench):
    grid = bench.grid(mechanisms=["fx-ok", "fx-raise"], repeats=2)
    reading, writing = os.pipe()
    os.close(reading)
    process = bench.start("run", grid, "--store", bench.store, stderr=writing)
    os.close(writing)
    process.communicate()
    assert process.returncode == 3
    assert sorted(r["status"] for r in bench.records().values()) == ["failed"] * 2 + ["ok"] * 2
    assert bench.board()


def test_a01_no_child_outlives_a_parent_that_is_killed(bench):
    asleep = bench.folder / "asleep"
    grid = bench.grid(mechanisms=[("fx-sleep", f'{{ note = "{asleep}" }}')])
    killed_after(bench, grid, asleep.exists)
    deadline = time.monotonic() + 20
    while bench.children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not bench.children()


@pytest.mark.slow
def test_a01_twenty_kills_at_random_moments_never_leave_an_unreadable_record(bench):
    grid = bench.grid(**GRID)
    rng = random.Random(1)
    for _ in range(20):
        moment = time.monotonic() + rng.uniform(0.5, 2.0)
        killed_after(bench, grid, lambda moment=moment: time.monotonic() > moment)
        bench.records()
        bench.records("scores")
    bench.run(grid)
    assert len(bench.records()) == 24
    assert len(bench.records("scores")) == 48


def test_a01_a_reader_sees_all_of_a_record_or_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _: None)  # a busy disk would only slow it down
    path, text, sizes = tmp_path / "record.json", "x" * 2**25, set()
    writer = threading.Thread(target=write_new, args=(path, text))
    writer.start()
    while writer.is_alive():
        if path.exists():
            sizes.add(path.stat().st_size)
    assert path.stat().st_size == len(text)
    assert sizes <= {len(text)}


def test_a01_the_same_command_again_computes_nothing(bench):
    grid = bench.grid()
    bench.run(grid)
    before = {p: p.stat().st_mtime_ns for p in bench.store.rglob("*-1.json")}
    again = bench.run(grid)
    assert "1/1 cells done (1 kept)" in again.stderr
    assert {p: p.stat().st_mtime_ns for p in bench.store.rglob("*-1.json")} == before


def test_a01_one_repeat_of_everything_is_there_before_the_next(bench):
    bench.run(bench.grid(mechanisms=["fx-ok", "fx-nonprivate"], repeats=2), "--workers", 1)
    files = sorted((bench.store / "records").glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
    assert [bench.records()[p.name]["subject"]["repeat"] for p in files] == [0, 0, 1, 1]


def test_a02_one_worker_and_four_in_another_order_give_identical_scores(bench):
    boards = []
    for workers, mechanisms in ((1, ["fx-ok", "fx-nonprivate"]), (4, ["fx-nonprivate", "fx-ok"])):
        bench.folder = bench.folder / f"w{workers}"
        bench.folder.mkdir()
        bench.run(bench.grid(**{**GRID, "mechanisms": mechanisms}), "--workers", workers)
        boards.append(sorted(bench.board()))
    assert boards[0] == boards[1]


def test_a02_a_child_of_its_own_and_one_forked_from_a_warm_parent_agree(bench):
    grid = bench.grid(repeats=2)
    bench.run(grid)
    warm = bench.board()
    bench.folder = bench.folder / "inline"
    bench.folder.mkdir()
    bench.run(bench.grid(repeats=2), "--inline")
    assert bench.board() == warm
