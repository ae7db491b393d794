"""A plan and its records in one small file, to be committed beside the CSV made from it."""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

from panelbench.board import to_csv as board_csv
from panelbench.errors import StoreError
from panelbench.leaderboard import make_board
from panelbench.quarantine import to_csv as audits_csv
from panelbench.record import OF_THE_PLACE, Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def pack(
    plan: dict[str, Any],
    cells: Iterable[Record],
    scores: Iterable[Record],
    audits: Iterable[Record] = (),
) -> bytes:
    """JSON lines, compressed by gzip: the plan, then its records, in the order of their keys."""
    kept = [*cells, *scores, *audits]
    versions = {
        record.subject["mechanism"]["name"].split("/", 1)[0]: record.versions
        for record in kept
        if record.what != "score" and record.versions  # an archived one has none
    }
    lines = [json.dumps({"plan": plan, "versions": versions}, sort_keys=True)]
    ordered = sorted(kept, key=lambda record: (record.what, record.key))
    lines += [_line(record) for record in ordered if record.what != "audit"]
    lines += [_line(record) for record in ordered if record.what == "audit"]
    return _compressed(lines)


def _line(record: Record) -> str:
    slim = dataclasses.replace(record, **OF_THE_PLACE)  # type: ignore[arg-type] # three fields
    return json.dumps(json.loads(slim.to_json()), sort_keys=True)


def _compressed(lines: list[str]) -> bytes:
    return gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0)


def with_audits(path: Path, audits: Iterable[Record]) -> bytes:
    """An archive with these audits instead of those it has; all else stays as it was written."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    kept = [lines[0], *(line for line in lines[1:] if json.loads(line)["what"] != "audit")]
    ordered = sorted(audits, key=lambda record: record.key)
    return _compressed([*kept, *(_line(record) for record in ordered)])


def unpack(path: Path) -> tuple[dict[str, Any], list[Record], list[Record], list[Record]]:
    """The plan, and the records of cells, of scores and of audits.

    Raises:
        StoreError: Naming the file and the line that cannot be read.
    """
    number = 1
    try:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        plan: dict[str, Any] = json.loads(lines[0])["plan"]
        records = []
        for number, line in enumerate(lines[1:], 2):  # noqa: B007 - read after an error
            records.append(Record.from_json(line))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is damaged or no gzip file"
        raise StoreError(f"The archive '{path}' cannot be read: {reason}.") from error
    except (StoreError, ValueError, KeyError, IndexError, TypeError) as error:
        raise StoreError(
            f"The archive '{path}', line {number}, cannot be read: {error}."
        ) from error
    cells, scores, audits = (
        [record for record in records if record.what == what] for what in ("cell", "score", "audit")
    )
    return plan, cells, scores, audits


def lines_of(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An archive that `unpack` can read, as written: plan and library versions; its records."""
    first, *records = gzip.decompress(path.read_bytes()).decode().splitlines()
    return json.loads(first), [json.loads(line) for line in records]


AUDITS_ALONE = {
    "grid": {"name": "audit", "title": "audits of private mechanisms", "notion": "dp"},
    "cells": [],
    "metrics": [],
    "versions": {},
}
"""The plan of an archive of nothing but audits."""


def csv_of(
    plan: dict[str, Any], cells: list[Record], scores: list[Record], audits: list[Record]
) -> str:
    """The CSV that belongs beside an archive."""
    if plan == AUDITS_ALONE:
        return audits_csv(audits)
    return board_csv(make_board(plan, cells, scores, audits))
