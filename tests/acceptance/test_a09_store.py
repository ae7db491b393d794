"""A09: the store never overwrites, never lies, and reads fast."""

from __future__ import annotations

import errno
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest

from panelbench.cli import main
from panelbench.errors import StoreError
from panelbench.lease import stale, take
from panelbench.record import Record, Status, Store, write_new, write_over

SILENT = """
import os
from dataclasses import dataclass

from panelbench import USER_TABLES, DatasetSource, hookimpl


@dataclass(frozen=True, kw_only=True)
class Silent(DatasetSource):
    name = "silent"
    kind = USER_TABLES

    def load(self, *, rng):
        print("I leave.", flush=True)
        os._exit(0)


@hookimpl
def register_datasets():
    return [Silent]
"""


def record(**changes) -> Record:
    values = {
        "key": f"{0:024x}",
        "attempt": 1,
        "what": "cell",
        "subject": {"a": 1},
        "status": Status.OK,
        **changes,
    }
    return Record(**values)


def test_a09_no_write_overwrites_a_record(tmp_path):
    store = Store(tmp_path)
    assert store.add(record(error="first"))
    assert not store.add(record(error="second"))
    assert store.latest("cell", record().key).error == "first"


def test_a09_a_file_appears_whole_or_not_at_all(tmp_path):
    assert write_new(tmp_path / "a.json", "one")
    assert not write_new(tmp_path / "a.json", "two")
    assert (tmp_path / "a.json").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a09_file_names_are_plain(bench):
    bench.run(bench.grid(mechanisms=["fx-ok", "fx-raise"]), rc=3)
    names = [p.name for p in bench.store.rglob("*") if "cache" not in p.parts]
    assert names
    assert all(re.fullmatch(r"[a-z0-9._-]+", name) for name in names)


def test_a09_a_record_of_the_first_version_is_read():
    text = (
        '{"schema_version": 1, "key": "000000000000000000000000", "attempt": 1, "what": "cell", '
        '"subject": {}, "status": "ok", "phase": "", "error": "", "log": "", "release": "r"}'
    )
    assert Record.from_json(text).release == "r"


def test_a09_a_record_of_a_newer_version_is_refused_by_name(tmp_path):
    store = Store(tmp_path)
    store.add(record())
    path = next((tmp_path / "records").iterdir())
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 99}))
    with pytest.raises(StoreError, match=rf"{path.name}.*version 99.*upgrade"):
        list(store.records("cell"))


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"schema_version": 1}', b"\x1f\x8b"])
def test_a09_a_damaged_record_is_named(tmp_path, text):
    store = Store(tmp_path)
    store.add(record())
    path = next((tmp_path / "records").iterdir())
    path.write_bytes(text)
    with pytest.raises(StoreError, match=path.name):
        list(store.records("cell"))


def test_a09_infinities_survive_in_plain_json():
    text = record(guarantee={"figures": {"epsilon": float("inf")}}).to_json()
    assert json.loads(text)["guarantee"]["figures"]["epsilon"] == "inf"
    assert "Infinity" not in text


def test_a09_the_newest_attempt_counts(tmp_path):
    store = Store(tmp_path)
    for attempt in range(1, 12):
        store.add(record(attempt=attempt, error=str(attempt)))
    assert store.latest("cell", record().key).error == "11"
    assert [r.error for r in store.records("cell")] == ["11"]


@pytest.mark.slow
def test_a09_twenty_thousand_records_load(tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    for index in range(20_000):
        text = record(key=f"{index:024x}").to_json()
        (folder / f"{index:024x}-1.json").write_text(text)
    since = time.process_time()
    assert sum(1 for _ in Store(tmp_path).records("cell")) == 20_000
    assert time.process_time() - since < 20  # s; a few, on a slow machine too


def test_a09_a_lease_keeps_a_second_run_off_and_a_dead_holder_frees_it(tmp_path):
    lease = take(tmp_path, "k", expires=60)
    assert lease is not None
    assert take(tmp_path, "k", expires=60) is None
    claim = json.loads(lease.path.read_text())
    lease.path.write_text(json.dumps({**claim, "process_start": 1.0}))
    again = take(tmp_path, "k", expires=60)
    assert again is not None
    again.release()
    assert not lease.path.exists()


def test_a09_a_lease_taken_over_by_another_process_in_between_is_its_own(tmp_path, monkeypatch):
    dead = take(tmp_path, "k", expires=60)
    text = dead.path.read_text()
    dead.path.write_text(json.dumps({**json.loads(text), "process_start": 1.0}))

    def overtaken(path):
        answer = stale(path)
        path.write_text(text)  # now a living process has it
        return answer

    monkeypatch.setattr("panelbench.lease.stale", overtaken)
    assert take(tmp_path, "k", expires=60) is None
    assert [path.read_text() for path in (tmp_path / "leases").iterdir()] == [text]


def test_a09_a_lease_of_another_host_expires(tmp_path):
    lease = take(tmp_path, "k", expires=60)
    claim = {**json.loads(lease.path.read_text()), "host": "elsewhere"}
    lease.path.write_text(json.dumps(claim))
    assert take(tmp_path, "k", expires=60) is None
    lease.path.write_text(json.dumps({**claim, "until": 1.0}))
    assert take(tmp_path, "k", expires=60) is not None


def test_a09_a_full_disk_is_said_in_one_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left on device; free some space"):
        Store(tmp_path).add(record())
    assert list((tmp_path / "records").iterdir()) == []


def test_a09_a_short_write_without_an_error_number_keeps_its_reason(tmp_path, monkeypatch):
    def short(*_, **__):
        raise OSError("8 requested and 3 written")

    monkeypatch.setattr("numpy.save", short)
    with pytest.raises(StoreError, match="8 requested and 3 written; free some space"):
        Store(tmp_path).put("datasets", {"a": np.zeros(1)}, {})
    monkeypatch.setattr("os.fsync", short)
    with pytest.raises(StoreError, match="8 requested and 3 written; name another place"):
        write_over(tmp_path / "board.csv", "text")
    with pytest.raises(StoreError, match="8 requested and 3 written; free some space"):
        Store(tmp_path).add(record())


def test_a09_a_new_grid_in_a_store_that_cannot_be_written_is_one_sentence(bench):
    bench.store.mkdir()
    (bench.store / "sources").write_text("in the way")
    told = bench.run(bench.grid(), rc=1).stderr.splitlines()[-1]
    assert told.startswith(f"panelbench: '{bench.store}/sources/")
    assert "could not be written: Not a directory; free some space or choose another" in told


def test_a09_whatever_a_read_only_disk_refuses_is_one_sentence(tmp_path, monkeypatch, capsys):
    def refuse(_):
        raise OSError(errno.EROFS, "Read-only file system", "results/logs/parent.log")

    monkeypatch.setattr("panelbench.board_commands.status", refuse)
    assert main(["status", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "panelbench: 'results/logs/parent.log' cannot be written: Read-only file system; free some "
        "space or name another place.\n"
    )
    main(["status", str(tmp_path), "--traceback"])
    assert "in refuse" in capsys.readouterr().err


def test_a09_a_board_that_cannot_be_kept_is_shown_all_the_same(bench):
    grid = bench.grid()
    bench.run(grid)
    (bench.folder / "file").touch()
    to = bench.folder / "file" / "board.csv"
    told = bench("leaderboard", grid, "--store", bench.store, "--csv", to, rc=1)
    assert "fx-ok" in told.stdout
    assert told.stderr.startswith(f"panelbench: '{to}' cannot be written: ")


def test_a09_where_a_dataset_gave_neither_data_nor_a_reason_its_log_is_named(bench):
    plugin = bench.folder / "silent.py"
    plugin.write_text(SILENT)
    bench.plugins.append(plugin)
    grid = bench.grid(datasets=["silent/silent"])
    told = bench.run(grid, rc=1).stderr.splitlines()[-1]
    assert "could not be prepared: it gave no data; see " in told
    log = Path(told.rsplit("see ", 1)[1])
    assert log.read_text().splitlines() == ["I leave.", "It gave no data."]
