"""A10, begun: files come whole and checked, once, or with a clear word."""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from panelbench import datafiles
from panelbench.errors import DataError

CONTENT = b"x" * 100_000


@pytest.fixture
def server():
    """A web server on loopback that counts what it is asked for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.path)
            if self.path == "/gone":
                self.send_error(404)
                return
            if self.path == "/slow":
                time.sleep(1)  # in which all who do not wait for each other come and ask
            body = CONTENT if self.path in ("/whole", "/slow") else CONTENT[:500]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def url(server, name) -> str:
    return f"http://127.0.0.1:{server.server_port}/{name}"


def test_a10_eight_at_once_make_one_download(server, tmp_path):
    sha = hashlib.sha256(CONTENT).hexdigest()
    target = tmp_path / "sub" / "file"
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(datafiles.fetch, url(server, "whole"), target, sha) for _ in range(8)]
        for job in jobs:
            job.result()
    assert target.read_bytes() == CONTENT
    assert server.asked == ["/whole"]


def test_a10_eight_processes_at_once_make_one_download(server, tmp_path):
    code = """
import sys
from pathlib import Path
from panelbench.datafiles import fetch
print("ready", flush=True)
sys.stdin.readline()
fetch(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
"""
    target, sha = tmp_path / "file", hashlib.sha256(CONTENT).hexdigest()
    command = [sys.executable, "-c", code, url(server, "slow"), str(target), sha]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(8)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 8
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0] * 8
    assert target.read_bytes() == CONTENT
    assert server.asked == ["/slow"]


def test_a10_a_truncated_file_is_refused_with_both_hashes_and_leaves_nothing(server, tmp_path):
    sha = hashlib.sha256(CONTENT).hexdigest()
    short = hashlib.sha256(CONTENT[:500]).hexdigest()
    with pytest.raises(DataError, match=f"{short}, expected {sha}"):
        datafiles.fetch(url(server, "short"), tmp_path / "file", sha)
    assert [p.name for p in tmp_path.iterdir()] == [".file.lock"]


def test_a10_an_altered_file_is_seen_and_fetched_again(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PANELBENCH_DATA", str(tmp_path))
    sha = hashlib.sha256(CONTENT).hexdigest()
    (tmp_path / "file").write_bytes(CONTENT[:-1] + b"y")
    file = {"path": "file", "sha256": sha, "url": url(server, "whole")}
    found = datafiles._look("tiny", file)
    assert found["state"] == "altered"
    assert datafiles.get([found], say=lambda _: None) == 0
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert datafiles._look("tiny", file)["state"] == "found"


def test_a10_a_failing_download_is_one_sentence(server, tmp_path):
    with pytest.raises(DataError, match="could not be fetched: HTTP Error 404"):
        datafiles.fetch(url(server, "gone"), tmp_path / "file", None)


def test_a_grid_whose_file_is_missing_stops_at_plan_time_and_says_how_to_get_it(bench):
    grid = bench.grid(datasets=["from-file"])
    done = bench.run(grid, rc=1)
    assert "needs the file 'seed.txt'" in done.stderr
    assert "Write a number into it." in done.stderr
    done = bench.run(grid, "--data", bench.folder, rc=1)
    assert f"not in '{bench.folder}'" in done.stderr


def test_a10_a_grid_whose_file_is_another_than_was_declared_stops_with_both_hashes(bench):
    (bench.folder / "seed.txt").write_text("7")
    own, declared = (hashlib.sha256(text).hexdigest() for text in (b"7", b"8"))
    wanted = ("from-file", f'{{ sha256 = "{declared}" }}')
    done = bench.run(bench.grid(datasets=[wanted]), "--data", bench.folder, rc=1)
    assert f"has the sha256 {own}, the dataset" in done.stderr
    assert f"expects {declared}" in done.stderr
    (bench.folder / "seed.txt").write_text("8")
    bench.run(bench.grid(datasets=[wanted]), "--data", bench.folder)


def test_a_dataset_that_refuses_its_file_stops_at_plan_time_with_its_sentence(bench):
    (bench.folder / "seed.txt").write_text("seven")
    done = bench.run(bench.grid(datasets=["from-file"]), "--data", bench.folder, rc=1)
    assert "seed.txt, row 1: expected a number, got 'seven'." in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


def test_data_list_says_found_or_missing(bench):
    (bench.folder / "seed.txt").write_text("1")
    assert "missing   fixtures-plugin/from-file" in bench("data", "list").stdout
    listed = json.loads(bench("data", "list", "--data", bench.folder, "--json").stdout)
    assert {f["state"] for f in listed if f["dataset"] == "fixtures-plugin/from-file"} == {"found"}
    bench("data", "get", "from-file", "--data", bench.folder)
    assert "Did you mean" in bench("data", "list", "from-fil", rc=1).stderr
