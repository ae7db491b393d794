"""A02, A07, A08: cells on dask workers are the same cells, whatever is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

MECHANISMS = ["fx-ok", "fx-nonprivate", ("fx-ok", "{ shift = 0.5 }")]


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, bench):
        self.bench, self.file = bench, bench.folder / "scheduler.json"
        self.scheduler, self.workers = None, []

    def start(self, module, *arguments):
        with (self.bench.folder / "dask.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", f"distributed.cli.{module}", *arguments],
                stdout=log, stderr=log, env=self.bench.env(), cwd=self.bench.folder,
            )  # fmt: skip

    def start_scheduler(self, port="0"):
        self.file.unlink(missing_ok=True)
        self.scheduler = self.start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard",
            "--scheduler-file", str(self.file),
        )  # fmt: skip
        until(self.file.exists)

    def add_worker(self):
        worker = self.start(
            "dask_worker", "--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny",
            "--no-dashboard", "--death-timeout", "60",
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def close(self):
        for process in [*self.workers, self.scheduler]:
            if process is not None:
                process.kill()
                process.wait()


def until(reached, seconds=60):
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


@contextmanager
def cluster(bench, workers=2):
    made = Cluster(bench)
    try:
        made.start_scheduler()
        for _ in range(workers):
            made.add_worker()
        yield made
    finally:
        made.close()


def scores(bench, store):
    return {
        name: [s["value"] for s in record["scores"]]
        for name, record in bench.records("scores", store).items()
    }


def test_a02_a08_a_worker_and_the_scheduler_are_killed_and_nothing_is_lost_or_done_twice(bench):
    slow = ("fx-sleep", "{ seconds = 0.3 }")
    grid = bench.grid(repeats=4, mechanisms=[*MECHANISMS, slow])
    bench.run(grid)
    other = bench.folder / "other"
    with cluster(bench) as dask:
        run = bench.start(
            "run", grid, "--store", other, "--engine", "dask", "--scheduler", str(dask.file)
        )
        records = other / "records"
        until(lambda: records.is_dir() and len(list(records.glob("*.json"))) >= 3)
        dask.workers[0].send_signal(signal.SIGKILL)
        until(lambda: len(list(records.glob("*.json"))) >= 6)
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0, out + err
    assert scores(bench, other) == scores(bench, bench.store)
    assert all(name.endswith("-1.json") for name in bench.records(store=other))
    assert len(bench.records(store=other)) == 16


def test_a02_a08_short_cells_share_a_task_and_what_it_leaves_undone_is_done(bench):
    grid = bench.grid(repeats=20, mechanisms=["fx-ok", ("fx-sleep", "{ seconds = 0.3 }")])
    with cluster(bench, workers=1) as dask:
        run = bench.start(
            "run", grid, "--store", bench.store, "--engine", "dask", "--scheduler", str(dask.file)
        )  # three cells a task, but ten where it has only seen those that do not sleep
        records = bench.store / "records"
        until(lambda: records.is_dir() and len(list(records.glob("*.json"))) >= 7)
        first = {record["subject"]["repeat"] for record in bench.records().values()}
        dask.workers[0].send_signal(signal.SIGKILL)
        dask.add_worker()
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0, out + err
    assert "40/40 cells done, 0 failed" in err
    assert max(first) < 12  # one repeat of everything before the next, about
    assert len(bench.records()) == 40
    assert all(name.endswith("-1.json") for name in bench.records())


def test_a02_a_scheduler_that_is_restarted_is_found_again(bench):
    grid = bench.grid(repeats=6, mechanisms=[("fx-sleep", "{ seconds = 0.5 }")])
    with cluster(bench) as dask:
        run = bench.start(
            "run", grid, "--store", bench.store, "--engine", "dask", "--scheduler", str(dask.file)
        )
        records = bench.store / "records"
        until(lambda: records.is_dir() and len(list(records.glob("*.json"))) >= 2)
        port = dask.file.read_text().split("tcp://127.0.0.1:")[1].split('"')[0]
        dask.scheduler.kill()
        dask.scheduler.wait()
        dask.start_scheduler(port)
        dask.add_worker()
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0, out + err
    assert sorted(r["status"] for r in bench.records().values()) == ["ok"] * 6


def test_a07_a08_limits_and_kills_hold_on_workers(bench):
    grid = bench.grid(
        limits="seconds = 10\nmemory_mb = 1024",
        mechanisms=["fx-ok", "fx-kill", ("fx-sleep", "{ seconds = 60 }"), "fx-hog", "fx-raise"],
    )
    with cluster(bench, workers=1) as dask:
        bench.run(grid, "--engine", "dask", "--scheduler", dask.file, rc=3)
    status = {name: r[0]["status"] for name, r in bench.by_mechanism().items()}
    assert status == {
        "fx-ok": "ok",
        "fx-kill": "killed",
        "fx-sleep": "timeout",
        "fx-hog": "oom",
        "fx-raise": "failed",
    }


def test_an_interrupted_run_stops_its_cells_on_the_workers(bench):
    grid = bench.grid(mechanisms=[("fx-sleep", "{ seconds = 40 }")])
    with cluster(bench, workers=1) as dask:
        run = bench.start(
            "run", grid, "--store", bench.store, "--engine", "dask", "--scheduler", str(dask.file)
        )
        leases = bench.store / "leases"
        until(lambda: leases.is_dir() and any(leases.glob("*.json")))
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
        assert run.returncode == 130
        until(lambda: not any(leases.glob("*.json")), 15)
    assert not bench.records()


def test_a_scheduler_that_is_not_there_is_said_in_one_sentence(bench):
    bench.environment["PANELBENCH_DASK_PATIENCE"] = "1"
    told = bench.run(
        bench.grid(), "--engine", "dask", "--scheduler", "tcp://127.0.0.1:1", rc=1
    ).stderr
    assert "No scheduler answers at 'tcp://127.0.0.1:1'" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("options", [["--engine", "dask"], ["--scheduler", "tcp://x:1"]])
def test_engine_and_scheduler_go_together(bench, options):
    assert "go together" in bench.run(bench.grid(), *options, rc=1).stderr
