"""Every kind of record, in stores and in published archives, is what `record.schema.json` says."""

from __future__ import annotations

import copy
import gzip
import json
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from panelbench.record import SCHEMA_VERSION, Phase, Record, Status

SCHEMA = json.loads((files("panelbench") / "record.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
PUBLISHED = sorted((Path(__file__).parents[2] / "leaderboards").glob("*.jsonl.gz"))
OLD = Path(__file__).parents[1] / "records"


def wrong(record: dict) -> str:
    return "; ".join(error.message[:200] for error in VALIDATOR.iter_errors(record))


def test_the_schema_is_a_schema_of_draft_2020_12():
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_has_every_field_status_and_phase_of_a_record():
    assert set(SCHEMA["properties"]) == {*Record.__dataclass_fields__, "digest"}
    assert set(SCHEMA["properties"]["status"]["enum"]) == set(Status)
    assert set(SCHEMA["properties"]["phase"]["enum"]) == {"", *Phase}
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION


@pytest.mark.parametrize("archive", PUBLISHED, ids=[path.name for path in PUBLISHED])
def test_published_records_are_valid(archive):
    lines = gzip.decompress(archive.read_bytes()).decode().splitlines()[1:]
    every = max(1, len(lines) // 150)  # all kinds of them, in a few seconds
    kinds: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines):
        record = json.loads(line)
        kind = (record["what"], record["status"])
        kinds[kind] = kinds.get(kind, 0) + 1
        if number % every == 0 or kinds[kind] <= 3 or record["what"] == "audit":
            assert not wrong(record), f"{archive.name}, line {number + 2}: {wrong(record)}"


def test_records_of_every_kind_in_a_store_are_valid(bench):
    names = ["fx-ok", "fx-raise", "fx-overspend", "fx-picky", "fx-kill"]
    grid = bench.grid(mechanisms=names, metrics=["fx-gap", "fx-nan"])
    bench.run(grid, rc=3)
    games = ("--releases", 40, "--relation", "replace-one", "--store", bench.store)
    audited = [f"fixtures-plugin/{name}" for name in ("fx-leak", "fx-overspend", "fx-nonprivate")]
    bench("audit", *audited, *games, "--method", "canaries", "--canaries", 100, rc=3)
    found = [r for what in ("records", "scores", "audits") for r in bench.records(what).values()]
    assert {(r["what"], r["status"]) for r in found} == {
        *(("cell", s) for s in ("ok", "failed", "invalid", "unsupported", "killed")),
        *(("score", s) for s in ("ok", "invalid")),
        *(("audit", s) for s in ("ok", "invalid", "unsupported")),
    }
    for record in found:
        assert not wrong(record), wrong(record)


@pytest.mark.parametrize("path", sorted(OLD.glob("*.json")), ids=lambda path: path.name)
def test_a_record_of_every_released_version_is_valid_and_is_read(path):
    assert not wrong(json.loads(path.read_text()))
    assert Record.from_json(path.read_text()).status is Status.OK


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"status": "fine"}, "'fine' is not one of"),
        ({"key": "abc"}, "does not match"),
        ({"release": ""}, "does not match"),
        ({"surprise": 1}, "unexpected"),
        ({"schema_version": 2}, "1 was expected"),
        ({"guarantee": {}}, "required property"),
    ],
)
def test_a_cell_that_is_not_what_it_should_be_is_refused(change, word):
    record = copy.deepcopy(json.loads((OLD / "cell-1.json").read_text()))
    assert word in wrong({**record, **change})
