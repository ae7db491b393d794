"""User tables as text that a language model reads and writes, and back.

    Columns: heart rate, ward
    [Row 1]: heart rate is 83, ward is surgery
    [Row 2]: heart rate is , ward is surgery

The form is that of Rosenblatt et al. 2026 (arXiv:2602.02766): fixed order of columns, a missing
value written as nothing. Where times are irregular, `time` is the first column.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from panelbench import ColumnKind

if TYPE_CHECKING:
    import pandas as pd

    from panelbench import Column, Schema

TIME = "time"
END = "[End]"
_ROW = re.compile(r"^\s*\[?\s*row\s*(\d+)\s*\]?\s*:?\s*", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

Row = dict[str, float | str | None]
"""A value for each column name, None where missing; with `time` where times are irregular."""


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What a model's text holds.

    Attributes:
        rows: The rows up to the first that cannot be used, at most as many as the schema allows.
        written: Rows that were written, the unusable one included.
    """

    rows: list[Row]
    written: int


def names_of(schema: Schema) -> list[str]:
    """The names in a line of text, in order."""
    names = [column.name for column in schema.columns]
    return names if schema.regular else [TIME, *names]


def header(schema: Schema) -> str:
    """The line that names the columns."""
    return f"Columns: {', '.join(names_of(schema))}"


def write(table: pd.DataFrame, schema: Schema) -> str:
    """One user's table as text, the header and the end line included."""
    names = names_of(schema)
    lines = [header(schema)]
    for number, values in enumerate(zip(*(table[n].tolist() for n in names), strict=True), 1):
        pairs = [f"{n} is {_told(v)}" for n, v in zip(names, values, strict=True)]
        lines.append(f"[Row {number}]: {', '.join(pairs)}")
    return "\n".join([*lines, END])


def _told(value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, float | int | np.number) or math.isnan(value):
        return ""
    return f"{float(value):.10g}"


def read(text: str, schema: Schema) -> Parsed:
    """Read the first table in a text, with two fallbacks for each row.

    A row is split at commas that precede a known column name and read as "column is value"; where
    that gives fewer than half of the columns, it is split at all commas and read in the order of
    the schema. Columns that cannot be read are missing. A row ends the table where fewer than half
    of the columns were read, where a missing one may not be missing, or where times do not rise.
    """
    names = names_of(schema)
    columns = {column.name: column for column in schema.columns}
    rows: list[Row] = []
    written = 0
    for line in _row_lines(text, names):
        if len(rows) == schema.max_rows:
            break
        written += 1
        row = _row(line, names, columns)
        if row is None or not _follows(row, rows):
            break
        rows.append(row)
    return Parsed(rows=rows, written=written)


def _row_lines(text: str, names: list[str]) -> list[str]:
    """The bodies of the lines that are rows, up to the end line or a second first row.

    Where no line has a row marker, those that have half of the columns by name or by commas.
    """
    marked: list[str] = []
    bare: list[str] = []
    for line in text.splitlines():
        if line.strip().lower().startswith(END.lower()):
            break
        marker = _ROW.match(line)
        if marker:
            if int(marker[1]) == 1 and marked:
                break
            marked.append(line[marker.end() :])
        elif not line.lower().startswith("columns:") and (
            2 * max(len(_named(line, names)), line.count(",") + 1) >= len(names) > 1
        ):
            bare.append(line)
    return marked or bare


def _row(line: str, names: list[str], columns: dict[str, Column]) -> Row | None:
    for fields in (_named(line, names), _ordered(line, names)):
        values = {name: _value(told, columns.get(name)) for name, told in fields.items()}
        # an empty field is a missing value that was read; one that makes no sense was not
        read_well = [n for n, v in values.items() if v is not None or not fields[n].strip()]
        if 2 * len(read_well) < len(names):
            continue
        row = {name: values.get(name) for name in names}
        if all(v is not None or (n in columns and columns[n].nullable) for n, v in row.items()):
            return row
    return None


def _named(line: str, names: list[str]) -> dict[str, str]:
    """Fields of "column is value" pairs."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    fields: dict[str, str] = {}
    for part in re.split(rf",\s*(?=(?:{known})\s+is\b)", line):
        pair = re.match(rf"\s*({known})\s+is\b(.*)", part, re.DOTALL)
        if pair:
            fields.setdefault(pair[1], pair[2])
    return fields


def _ordered(line: str, names: list[str]) -> dict[str, str]:
    """Fields in the order of the schema, a leading "column is" or "column:" taken off."""
    fields: dict[str, str] = {}
    for name, part in zip(names, line.split(","), strict=False):
        fields[name] = re.sub(rf"^\s*{re.escape(name)}\s*(?:is\b|[:=])", "", part)
    return fields


def _value(told: str, column: Column | None) -> float | str | None:
    """A value of the column (of time where there is none), None where the text has none."""
    text = told.strip().strip("\"'`").rstrip(".;")
    if column is not None and column.kind is ColumnKind.CATEGORICAL:
        known = {category.lower(): category for category in column.categories}
        return known.get(text.lower())
    unit = "" if column is None else column.unit
    if unit and text.lower().endswith(unit.lower()):
        text = text[: -len(unit)].strip()
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _follows(row: Row, rows: list[Row]) -> bool:
    if TIME not in row or not rows:
        return True
    now, before = row[TIME], rows[-1][TIME]
    return isinstance(now, float) and isinstance(before, float) and now > before
