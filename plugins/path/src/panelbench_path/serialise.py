"""Psi: user tables as text that a language model reads and writes, and back, exactly.

    Columns: heart rate, ward
    [Row 1]: heart rate is 83, ward is surgery
    [Row 2]: heart rate is , ward is surgery
    [End]

The form is that of Rosenblatt et al. 2026 (arXiv:2602.02766): fixed order of columns, a missing
value written as nothing; the end line is ours, so that a model can learn to stop. Every quantity
has a finite public list of values (`grids`), so that the text of a table is unique, and nothing
outside of these lists can be written. Where times are irregular, `time` is the first quantity: in
the first row the time of day, in later rows `+` and the time since the row before.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from panelbench import ColumnKind
from panelbench_path.grids import UNITS_PER_DAY, gap_grid, number_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from panelbench import Column, Schema

TIME = "time"
END = "[End]"
_PLAIN = re.compile(r'[^\s",\[\]\\:](?:[^",\[\]\\:\n]*[^\s",\[\]\\:])?')


def escaped(text: str) -> str:
    r"""A name or category as it is written: quoted where it could be taken for something else.

    >>> print(escaped("heart rate"), escaped('a, "b" is'), escaped(""))
    heart rate "a, \"b\" is" ""
    """
    words = re.split(r"\s", text)
    if _PLAIN.fullmatch(text) and text.isprintable() and "is" not in words:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def unescaped(written: str) -> str:
    """The inverse of `escaped`; what is not validly quoted stays as it is."""
    if written.startswith('"'):
        try:
            return str(json.loads(written))
        except ValueError:
            return written
    return written


@dataclass(frozen=True, kw_only=True, eq=False)
class Quantity:
    """What may stand after "is": a finite public list.

    Attributes:
        name: As written, quoted where needed.
        texts: The text of each value; the last is empty where a value may be missing.
        numbers: The values as numbers, increasing; None for categories.
        nullable: Whether the last code means "missing".
        lower: Numbers below are no values.
        upper: Numbers above are no values.
    """

    name: str
    texts: tuple[str, ...]
    numbers: np.ndarray | None = None
    nullable: bool = False
    lower: float = -np.inf
    upper: float = np.inf

    @cached_property
    def codes(self) -> dict[str, int]:
        """The code of each text."""
        return {text: code for code, text in enumerate(self.texts)}

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Codes of numbers (the nearest value in the list) or of category codes, -1 for missing."""
        last = len(self.texts) - 1
        if self.numbers is None:
            return np.where(values < 0, last, values).astype(np.int64)
        middles = (self.numbers[1:] + self.numbers[:-1]) / 2
        found = np.searchsorted(middles, np.nan_to_num(values))
        return np.where(np.isnan(values), last, found).astype(np.int64)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Numbers, NaN where missing, or category codes, -1 where missing."""
        missing = (codes == len(self.texts) - 1) & self.nullable
        if self.numbers is None:
            return np.where(missing, -1, codes)
        known = np.minimum(codes, len(self.numbers) - 1)
        return np.where(missing, np.nan, self.numbers[known])


def _quantity(column: Column) -> Quantity:
    blank = ("",) if column.nullable else ()
    name = escaped(column.name)
    if column.kind is ColumnKind.CATEGORICAL:
        texts = tuple(escaped(category) for category in column.categories)
        return Quantity(name=name, texts=texts + blank, nullable=column.nullable)
    if column.lower is None or column.upper is None:
        raise ValueError(f"Column '{column.name}' needs public bounds to be written as text.")
    texts, numbers = number_grid(column.lower, column.upper, whole=column.integer)
    return Quantity(
        name=name,
        texts=texts + blank,
        numbers=numbers,
        nullable=column.nullable,
        lower=column.lower,
        upper=column.upper,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Form:
    """How tables of one schema are written.

    Attributes:
        schema: The public schema.
        first: What stands in the first row, in order.
        later: What stands in all others; differs in the time only.
    """

    schema: Schema
    first: tuple[Quantity, ...]
    later: tuple[Quantity, ...]

    @classmethod
    def of(cls, schema: Schema) -> Form:
        """The form of a schema, from public metadata alone.

        Raises:
            ValueError: Where a numeric column has no bounds.
        """
        columns = tuple(_quantity(column) for column in schema.columns)
        if schema.regular:
            return cls(schema=schema, first=columns, later=columns)
        per_day = UNITS_PER_DAY[schema.time_unit]
        texts, numbers = number_grid(0.0, per_day, whole=False)
        clock = Quantity(name=TIME, texts=texts[:-1], numbers=numbers[:-1], lower=0.0)
        texts, numbers = gap_grid(per_day)
        gap = Quantity(name=TIME, texts=texts, numbers=numbers, lower=0.0)
        return cls(schema=schema, first=(clock, *columns), later=(gap, *columns))

    def row(self, number: int) -> tuple[Quantity, ...]:
        """What stands in row `number`, counted from 1."""
        return self.first if number == 1 else self.later

    @property
    def header(self) -> str:
        """The first line, which names the columns."""
        return "Columns: " + ", ".join(quantity.name for quantity in self.first)

    def encode(self, frame: pd.DataFrame) -> list[np.ndarray]:
        """The tables of a canonical frame as codes, each of shape (rows, quantities)."""
        users = frame["user"].to_numpy()
        at_start = np.ones(len(users), dtype=bool)
        at_start[1:] = users[1:] != users[:-1]
        starts = np.flatnonzero(at_start)
        coded = []
        for first, later in zip(self.first, self.later, strict=True):
            if first is not later:
                times = frame["time"].to_numpy()
                clock = np.mod(times, UNITS_PER_DAY[self.schema.time_unit])
                gaps = np.diff(times, prepend=0.0)
                coded.append(np.where(at_start, first.encode(clock), later.encode(gaps)))
                continue
            name = self.schema.columns[len(coded) - (not self.schema.regular)].name
            values: Any = frame[name]
            categorical = first.numbers is None
            array = values.cat.codes.to_numpy() if categorical else values.to_numpy(float)
            coded.append(first.encode(array))
        return np.split(np.stack(coded, axis=1), starts[1:]) if len(users) else []

    def decode(self, tables: Sequence[np.ndarray]) -> pd.DataFrame:
        """A canonical frame with users 0, 1, 2, ... from codes."""
        lengths = np.array([len(table) for table in tables], dtype=np.int64)
        codes = np.concatenate(list(tables))
        place = np.arange(len(codes)) - np.repeat(lengths.cumsum() - lengths, lengths)
        data: dict[str, Any] = {
            "user": np.repeat(np.arange(len(tables)), lengths),
            "time": place.astype(np.float64),
        }
        if not self.schema.regular:
            clock, gap = self.first[0].decode(codes[:, 0]), self.later[0].decode(codes[:, 0])
            steps = pd.Series(np.where(place == 0, clock, gap))
            data["time"] = steps.groupby(data["user"]).cumsum().to_numpy()
        for index, column in enumerate(self.schema.columns, not self.schema.regular):
            values = self.first[index].decode(codes[:, index])
            if column.kind is ColumnKind.CATEGORICAL:
                data[column.name] = pd.Categorical.from_codes(
                    values.tolist(), categories=pd.Index(column.categories)
                )
            else:
                data[column.name] = values
        return pd.DataFrame(data)

    def line(self, number: int, codes: np.ndarray) -> str:
        """Row `number` as a line of text."""
        pairs = [
            f"{quantity.name} is {quantity.texts[code]}"
            for quantity, code in zip(self.row(number), codes.tolist(), strict=True)
        ]
        return f"[Row {number}]: {', '.join(pairs)}"

    def text(self, table: np.ndarray) -> str:
        """A whole table as text, from codes of shape (rows, quantities)."""
        lines = [self.line(number, codes) for number, codes in enumerate(table, 1)]
        return "\n".join([self.header, *lines, END])
