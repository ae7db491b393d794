"""A plan and its records in one small file, to be committed beside the CSV made from it."""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

from panelbench.errors import StoreError
from panelbench.record import OF_THE_PLACE, Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def pack(plan: dict[str, Any], cells: Iterable[Record], scores: Iterable[Record]) -> bytes:
    """JSON lines, compressed by gzip: the plan, then its records, in the order of their keys."""
    kept = [*cells, *scores]
    versions = {
        record.subject["mechanism"]["name"].split("/", 1)[0]: record.versions
        for record in kept
        if record.what == "cell"
    }
    lines = [json.dumps({"plan": plan, "versions": versions}, sort_keys=True)]
    for record in sorted(kept, key=lambda record: (record.what, record.key)):
        slim = dataclasses.replace(record, **OF_THE_PLACE)  # type: ignore[arg-type] # three fields
        lines.append(json.dumps(json.loads(slim.to_json()), sort_keys=True))
    return gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0)


def unpack(path: Path) -> tuple[dict[str, Any], list[Record], list[Record]]:
    """The plan, the records of cells and those of scores.

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
    cells = [record for record in records if record.what == "cell"]
    return plan, cells, [record for record in records if record.what == "score"]
