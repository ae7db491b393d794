"""The public vocabulary: the token ids that the serialisation of one schema can reach.

Text is put together from pieces (the header, "[Row 7]:", ", ward is", " surgery", "[End]"), each
turned into ids by itself, so that the ids of a text and the mask of what may come next cannot
drift apart. All pieces follow from the public schema, so the vocabulary is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from panelbench import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from panelbench_path.serialise import Form

Ids = tuple[int, ...]


class Tokens(Protocol):
    """What turns the pieces of a text into token ids, and ids into text."""

    def header(self, form: Form) -> Ids:
        """Ids of the line of names, with whatever a text of this model starts with."""
        ...

    def row(self, number: int) -> Ids:
        """Ids of the marker of a row, the line break before it included."""
        ...

    def end(self) -> Ids:
        """Ids of the end line, the line break before it included."""
        ...

    def name(self, form: Form, index: int) -> Ids:
        """Ids of the name of a quantity and what stands around it, up to "is"."""
        ...

    def values(self, form: Form, number: int, index: int) -> list[Ids]:
        """Ids of each value of a quantity, in row 1 or later."""
        ...

    def text(self, form: Form, ids: Sequence[int]) -> str:
        """The text of ids."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Pieces:
    """Ids of all pieces of one form, numbered within the vocabulary.

    Attributes:
        ids: The model's id of each number, increasing; shape (vocabulary,).
        header: The header.
        rows: Of the marker of each row, the first is row 1.
        end: Of the end line.
        names: Of each quantity's name.
        first: Of each value of each quantity in the first row.
        later: The same in later rows.
    """

    ids: np.ndarray
    header: Ids
    rows: tuple[Ids, ...]
    end: Ids
    names: tuple[Ids, ...]
    first: tuple[tuple[Ids, ...], ...]
    later: tuple[tuple[Ids, ...], ...]

    @classmethod
    def of(cls, form: Form, tokens: Tokens) -> Pieces:
        """Collect them from the public form.

        Raises:
            DataError: Where two values of a column have the same ids.
        """
        columns = range(len(form.first))
        header = tokens.header(form)
        rows = [tokens.row(number) for number in range(1, form.schema.max_rows + 1)]
        end = tokens.end()
        names = [tokens.name(form, index) for index in columns]
        first = [tokens.values(form, 1, index) for index in columns]
        same = [a is b for a, b in zip(form.first, form.later, strict=True)]
        later = [first[i] if same[i] else tokens.values(form, 2, i) for i in columns]
        for index, values in [*enumerate(first), *enumerate(later)]:
            if len(set(values)) != len(values) or not all(values):
                raise DataError(
                    f"The model's tokenizer writes two values of {form.first[index].name} in the "
                    f"same way; rename one of them or take another model."
                )
        parts = [header, *rows, end, *names]
        reached = {i for part in parts for i in part}
        for values in (*first, *later):
            reached |= {i for value in values for i in value}
        kept = np.array(sorted(reached))
        at = {int(i): n for n, i in enumerate(kept)}

        def renumbered(ids: Ids) -> Ids:
            return tuple(at[i] for i in ids)

        first_ids = tuple(tuple(map(renumbered, values)) for values in first)
        return cls(
            ids=kept,
            header=renumbered(header),
            rows=tuple(map(renumbered, rows)),
            end=renumbered(end),
            names=tuple(map(renumbered, names)),
            first=first_ids,
            later=tuple(
                first_ids[i] if same[i] else tuple(map(renumbered, later[i])) for i in columns
            ),
        )

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.ids)

    def values(self, number: int) -> tuple[tuple[Ids, ...], ...]:
        """Ids of the values in row `number`, for each quantity."""
        return self.first if number == 1 else self.later

    def line(self, number: int, codes: Sequence[int]) -> list[int]:
        """Ids of row `number` without its marker."""
        line: list[int] = []
        for name, values, code in zip(self.names, self.values(number), codes, strict=True):
            line += name
            line += values[code]
        return line

    def table(self, codes: np.ndarray) -> list[int]:
        """Ids of a whole table, header and end included."""
        ids = list(self.header)
        for number, row in enumerate(codes.tolist(), 1):
            ids += self.rows[number - 1]
            ids += self.line(number, row)
        return [*ids, *self.end]
