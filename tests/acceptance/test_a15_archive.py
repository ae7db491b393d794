"""A15, begun: a published CSV can be rebuilt from the records published beside it."""

from __future__ import annotations

import filecmp
import gzip
import json
from pathlib import Path

import pytest

from panelbench.archive import csv_of, unpack

PUBLISHED = sorted((Path(__file__).parents[2] / "leaderboards").glob("*.jsonl.gz"))


@pytest.mark.parametrize("archive", PUBLISHED, ids=[path.name for path in PUBLISHED])
def test_a15_every_published_csv_is_rebuilt_byte_for_byte(archive):
    beside = archive.with_name(archive.name.replace(".jsonl.gz", ".csv"))
    assert csv_of(*unpack(archive)) == beside.read_text()


def test_a15_publish_and_rebuild_in_another_place(bench):
    mechanisms = ["fx-ok", "fx-nonprivate", "fx-raise", "fx-overspend"]
    grid = bench.grid(repeats=3, mechanisms=mechanisms, budgets="epsilon = [1.0, 2.0]")
    bench.run(grid, rc=3)
    public = bench.folder / "public"
    bench("publish", grid, "--store", bench.store, "--to", public)
    assert filecmp.cmp(public / "fx.csv", bench.store / "fx.csv", shallow=False)
    bench("leaderboard", public / "fx.jsonl.gz", "--csv", bench.folder / "again.csv")
    assert filecmp.cmp(public / "fx.csv", bench.folder / "again.csv", shallow=False)


def test_a15_an_archive_names_no_machine_and_holds_nothing_of_other_grids(bench):
    bench.run(bench.grid(name="other", repeats=2))
    bench.run(grid := bench.grid(repeats=1))
    bench("publish", grid, "--store", bench.store, "--to", bench.folder)
    text = gzip.decompress((bench.folder / "fx.jsonl.gz").read_bytes()).decode()
    assert str(bench.folder) not in text
    records = [json.loads(line) for line in text.splitlines()[1:]]
    assert [record["what"] for record in records] == ["cell", "score"]
    assert all(record["hardware"] == {} and record["log"] == "" for record in records)


def test_a15_a_damaged_archive_is_named_with_its_line(bench):
    bench.run(grid := bench.grid())
    bench("publish", grid, "--store", bench.store, "--to", bench.folder)
    path = bench.folder / "fx.jsonl.gz"
    whole = path.read_bytes()
    first, second, *rest = gzip.decompress(whole).decode().splitlines()
    path.write_bytes(gzip.compress("\n".join([first, second[:-40], *rest]).encode()))
    assert "fx.jsonl.gz', line 2, cannot be read" in bench("leaderboard", path, rc=1).stderr
    path.write_bytes(whole[: len(whole) // 2])
    assert "it is damaged or no gzip file" in bench("leaderboard", path, rc=1).stderr
