"""Real and synthetic tables side by side, for those who run a grid; never for what is published."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from panelbench.data import UserTables, frame_from_arrays
from panelbench.entries import describe_budget
from panelbench.extension import Role
from panelbench.schema import USER_TABLES, ColumnKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from panelbench.record import Record, Store
    from panelbench.schema import Schema

TABLES = 3
ROWS = 12
WARNING = (
    "The first tables are those of real test users, as they are: do not publish this page unless "
    "its data are public."
)


def side_by_side(plan: dict[str, Any], cells: Mapping[str, Record], store: Store) -> Iterator[str]:
    """For each dataset some tables of its test users, and of each entry at its middle budget.

    Args:
        plan: As `Plan.to_json` gives it.
        cells: Newest records of its cells, by key.
        store: Where datasets and releases are kept; what is not there is left out.
    """
    chosen: dict[str, dict[str, dict[str, Any]]] = {}
    for cell in plan["cells"]:
        record = cells.get(cell["key"])
        if cell["reads"] == USER_TABLES and record is not None and record.release:
            entries = chosen.setdefault(cell["dataset_label"], {})
            entries.setdefault(cell["label"], {}).setdefault(str(cell["budget"]), cell)
    for dataset, entries in chosen.items():
        first = next(iter(next(iter(entries.values())).values()))
        if not store.intact("datasets", first["data"]):
            continue
        real = UserTables.from_arrays(*store.get("datasets", first["data"]))
        yield f"<h2>Tables of {html.escape(dataset)}</h2><p>{WARNING}</p>"
        yield from _entry("real test users", real.test, real.schema)
        for label, by_budget in entries.items():
            budgets = list(by_budget.values())
            cell = budgets[len(budgets) // 2]
            key = cells[cell["key"]].release
            if not store.intact("releases", key):
                continue
            arrays, _ = store.get("releases", key)
            frame = frame_from_arrays(arrays, real.schema, "release")
            at = "" if cell["role"] != Role.PRIVATE else f" at {describe_budget(cell['budget'])}"
            yield from _entry(label + at, frame, real.schema)


def _entry(label: str, frame: pd.DataFrame, schema: Schema) -> Iterator[str]:
    """The tables whose lengths are at even places of all lengths."""
    sizes = frame.groupby("user").size().sort_values(kind="stable")
    places = np.linspace(0, len(sizes) - 1, TABLES + 2)[1:-1].round().astype(int)
    names = ["time", *(column.name for column in schema.columns)]
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in names)
    yield f"<details><summary>{html.escape(label)}</summary>"
    for user in dict.fromkeys(sizes.index[places]):
        rows = frame[frame["user"] == user]
        title = html.escape(f"{label}: a table of {len(rows)} rows")
        yield f'<div class="wide" tabindex="0" role="region" aria-label="{title}, user {user}">'
        yield f'<table><caption class="soft">{title}</caption><thead><tr>{head}</tr></thead><tbody>'
        for _, row in rows.head(ROWS).iterrows():
            cells = "".join(f"<td>{_value(row[name], name, schema)}</td>" for name in names)
            yield f"<tr>{cells}</tr>"
        yield "</tbody></table></div>"
        if len(rows) > ROWS:
            yield f'<p class="soft">and {len(rows) - ROWS} rows more</p>'
    yield "</details>"


def _value(value: Any, name: str, schema: Schema) -> str:  # noqa: ANN401 - a cell of pandas
    categorical = {c.name for c in schema.columns if c.kind is ColumnKind.CATEGORICAL}
    if value is None or value != value:  # noqa: PLR0124 - not a number
        return ""
    return html.escape(str(value)) if name in categorical else f"{value:.4g}"
