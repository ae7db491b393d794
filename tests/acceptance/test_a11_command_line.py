"""A11: fast to start, never silent, and honest exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from panelbench import progress
from panelbench.record import Status

HEAVY = ("pandas", "torch", "jax", "numpy", "scipy", "numba", "mbi", "dp_accounting")
PROBE = """
import runpy, sys
sys.argv = ["panelbench", *{arguments!r}]
try:
    runpy.run_module("panelbench.cli", run_name="__main__")
except SystemExit:
    pass
print("LOADED", *sorted({heavy!r} & sys.modules.keys()))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["run", "--help"], ["data", "list"]])
def test_a11_help_and_list_import_nothing_heavy(bench, arguments):
    code = PROBE.format(arguments=arguments, heavy=set(HEAVY))
    done = subprocess.run(
        [sys.executable, "-c", code], env=bench.env(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1].strip() == "LOADED"


def test_a11_without_a_terminal_progress_is_plain_lines_with_all_four_counts(bench):
    told = bench.run(bench.grid()).stderr
    line = next(line for line in told.splitlines() if "cells done" in line)
    assert re.fullmatch(r"1/1 cells done, 0 failed, 0 running, 0 remaining, \d+s", line.strip())
    assert "\x1b" not in told
    assert "\r" not in told


def test_a11_a_quiet_run_still_says_a_line_within_thirty_seconds():
    assert progress._LINE_EVERY <= 30


def test_a11_without_a_terminal_a_line_comes_whenever_its_time_is_up(monkeypatch):
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.01)
    stream = io.StringIO()
    with progress.Progress(5, 1, stream) as shown:
        for name, status in (("good", Status.OK), ("bad", Status.OOM), ("endless", None)):
            shown.begin(name)
            if status:
                shown.end(name, status)
        deadline = time.monotonic() + 20
        while stream.getvalue().count("endless") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        told = [line for line in stream.getvalue().splitlines() if "endless" in line]
    assert len(told) >= 3
    said = "3/5 cells done (1 kept), 1 failed, 1 running, 2 remaining, "
    assert all(line.startswith(said) for line in told)


def test_a11_a_terminal_gets_a_bar():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with progress.Progress(4, 1, stream) as shown:
        shown.begin("cell")
        shown.say("a line of its own")
    assert "[#####...............] 1/4 cells done (1 kept)" in stream.getvalue()


def test_a11_exit_code_0_for_ok_and_for_an_honest_refusal(bench):
    bench.run(bench.grid(mechanisms=["fx-ok", "fx-picky"]), rc=0)
    (record,) = bench.by_mechanism()["fx-picky"]
    assert record["status"] == "unsupported"
    assert record["error"] == "it needs a budget above 1000"


def test_a11_exit_code_3_for_a_failed_cell_and_again_when_nothing_is_left_to_do(bench):
    grid = bench.grid(mechanisms=["fx-raise"])
    bench.run(grid, rc=3)
    bench.run(grid, rc=3)


def test_a11_exit_code_3_for_a_failed_score(bench):
    bench.run(bench.grid(metrics=["fx-gap", "fx-raising-metric"]), rc=3)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a11_exit_code_130_when_interrupted_and_no_child_is_left(bench, sign):
    grid = bench.grid(mechanisms=["fx-sleep", "fx-ok"])
    process = bench.start("run", grid, "--store", bench.store, "--workers", 2)
    while not bench.records() and process.poll() is None:
        time.sleep(0.05)
    assert bench.children()
    os.kill(process.pid, sign)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "the same command goes on" in told
    assert [r["status"] for r in bench.records().values()] == ["ok"]
    assert not list((bench.store / "leases").glob("*.json"))
    assert not bench.children()


def test_a11_an_error_is_one_sentence_without_a_traceback_unless_asked(bench):
    done = bench("run", "absent.toml", rc=1)
    assert done.stderr.strip() == (
        "panelbench: The grid file 'absent.toml' cannot be read: No such file or directory."
    )
    assert "Traceback" in bench("run", "absent.toml", "--traceback", rc=1).stderr


def test_a11_every_listing_has_json(bench):
    grid = bench.grid()
    bench.run(grid)
    stored = ("--store", bench.store, "--json")
    for arguments in (
        ("list", "--json"),
        ("describe", "fx-ok", "--json"),
        ("data", "list", "--json"),
        ("plan", grid, *stored),
        ("status", grid, *stored),
        ("leaderboard", grid, *stored),
    ):
        assert json.loads(bench(*arguments).stdout), arguments


def test_a11_status_lists_failures_with_their_log(bench):
    grid = bench.grid(mechanisms=["fx-ok", "fx-raise"])
    bench.run(grid, rc=3)
    told = bench("status", grid, "--store", bench.store).stdout
    assert "failed (release)" in told
    assert "log: " in told
    assert told.strip().endswith("1 failed, 1 ok.")


def test_a11_status_of_a_grid_never_run_says_what_to_do(bench):
    done = bench("status", bench.grid(), "--store", bench.store, rc=1)
    assert "run it first" in done.stderr


def test_a11_score_runs_no_mechanism(bench):
    bench.run(bench.grid())
    before = bench.records()
    grid = bench.grid(metrics=["fx-gap", "fx-count"], mechanisms=["fx-ok", "fx-raise"])
    bench("score", grid, "--store", bench.store)
    assert bench.records() == before
    assert len(bench.records("scores")) == 2


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_a11_closed_streams_change_nothing(bench, closed):
    grid = bench.grid()
    command = f"exec {sys.executable} -m panelbench.cli leaderboard {grid} --store {bench.store}"
    bench.run(grid)
    (bench.store / "fx.csv").unlink()
    done = subprocess.run(["/bin/sh", "-c", f"{command} {closed}"], env=bench.env(), check=False)
    assert done.returncode == 0
    assert (bench.store / "fx.csv").exists()
