"""Pictures beside scores of user tables: values of each column, and how they go on by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from panelbench import Panel

if TYPE_CHECKING:
    import pandas as pd

    from panelbench import Column

PICTURES = 8  # columns that get one, at most
BINS = 40
TAIL = 0.005  # of the real values, on either side of the picture
FEWEST = 0.05  # share of the tables of a side that a row needs


def values_of(
    columns: tuple[Column, ...], real: pd.DataFrame, other: pd.DataFrame
) -> dict[str, Panel]:
    """The share of values of each numeric column in equal bins over the middle of the real ones.

    What lies beyond is in the outer bins.
    """
    found = {}
    for column in columns[:PICTURES]:
        sides = [frame[column.name].dropna().to_numpy(dtype=np.float64) for frame in (real, other)]
        if not all(map(len, sides)):
            continue
        low, high = np.quantile(sides[0], (TAIL, 1.0 - TAIL))
        if not high > low:
            continue
        edges = np.linspace(low, high, BINS + 1)
        truth, value = (
            np.histogram(np.clip(side, low, high), bins=edges)[0] / len(side) for side in sides
        )
        found[f"values of {column.name}"] = Panel(
            across=column.name + (f" [{column.unit}]" if column.unit else ""),
            x=tuple((edges[:-1] + edges[1:]) / 2),
            lines={"value": tuple(value), "truth": tuple(truth)},
            unit="share",
        )
    return found


def courses_of(
    columns: tuple[Column, ...], real: pd.DataFrame, other: pd.DataFrame
) -> dict[str, Panel]:
    """The mean of each numeric column by row of a table, and the middle 80 % of the release.

    As far as at least one in twenty tables of either side has a value there.
    """
    sides = [(frame, frame.groupby("user").cumcount()) for frame in (real, other)]
    found = {}
    for column in columns[:PICTURES]:
        groups = [frame[column.name].groupby(row) for frame, row in sides]
        enough = [
            group.count() >= max(1.0, FEWEST * frame["user"].nunique())
            for group, (frame, _) in zip(groups, sides, strict=True)
        ]
        rows = min(int(side.to_numpy().cumprod().sum()) for side in enough)
        if rows < 2:
            continue
        truth, value = (group.mean().to_numpy()[:rows] for group in groups)
        low, high = (groups[1].quantile(q).to_numpy()[:rows] for q in (0.1, 0.9))
        found[f"{column.name} by row"] = Panel(
            across="row of the table",
            x=tuple(range(1, rows + 1)),
            lines={
                "value": tuple(value),
                "lower": tuple(low),
                "upper": tuple(high),
                "truth": tuple(truth),
            },
            unit=column.unit,
        )
    return found
