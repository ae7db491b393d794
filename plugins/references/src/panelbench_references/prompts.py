"""What a language model is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench import ColumnKind
from panelbench_references.text import END, TIME, header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from panelbench import Column, Schema

SHOWN_CATEGORIES = 60


def prompt(schema: Schema, examples: Sequence[str]) -> str:
    """The request for one table: the public schema, the form, and example tables if any."""
    lines = [
        f"You write realistic example records{f' of: {schema.title}' if schema.title else ''}.",
        "One table holds the records of one person or object in time order. The columns:",
    ]
    if not schema.regular:
        lines.append(f"- {TIME}: number, in {schema.time_unit}s, rising from row to row")
    lines += [_described(column) for column in schema.columns]
    lines += [
        f"A table has {schema.min_rows} to {schema.max_rows} rows, written like this:",
        header(schema),
        "[Row 1]: column is value, column is value",
        "[Row 2]: column is value, column is value",
        END,
        "A missing value is left empty.",
    ]
    if not examples:
        lines.append("Write one realistic table in exactly this form, and nothing else.")
    for number, example in enumerate(examples, 1):
        lines += ["", f"Example {number}:", example]
    if examples:
        lines += ["", "Write one new and different table in exactly this form, and nothing else."]
    return "\n".join(lines)


def _described(column: Column) -> str:
    if column.kind is ColumnKind.CATEGORICAL:
        shown = "; ".join(column.categories[:SHOWN_CATEGORIES])
        more = "; and others" if len(column.categories) > SHOWN_CATEGORIES else ""
        what = f"one of: {shown}{more}"
    else:
        parts = ["whole number" if column.integer else "number"]
        if column.unit:
            parts.append(f"in {column.unit}")
        if column.lower is not None:
            parts.append(f"at least {column.lower:g}")
        if column.upper is not None:
            parts.append(f"at most {column.upper:g}")
        what = ", ".join(parts)
    missing = "; may be missing" if column.nullable else ""
    told = f" ({column.description.rstrip('.')})" if column.description else ""
    return f"- {column.name}{told}: {what}{missing}"
