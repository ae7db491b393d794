"""The token ids of the model that this package ships: structure is single tokens.

The text is that of `serialise`; only its cut into tokens is ours. A name, a row marker and a
missing value are one token, a number is one or two (a coarse step between the public bounds, then
the place within it), a category one (two where there are more than 64). So a row of five columns is
at most 16 tokens, and any public schema reads alike: names carry no meaning for this model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panelbench_path.serialise import END, TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from panelbench_path.serialise import Form, Quantity
    from panelbench_path.vocabulary import Ids

BASE = 64
NAMES = 32
START, MISSING, STOP = 0, 1, 2
KINDS = {"number": 3, "short number": 4, "category": 5, "time": 6}
ROWS = 8
NAMED = ROWS + BASE
COARSE = NAMED + NAMES
FINE = COARSE + BASE
CATEGORIES = FINE + BASE
SIZE = CATEGORIES + BASE


class Reserved:
    """`Tokens` of the shipped model."""

    def __init__(self) -> None:
        self._codes: dict[tuple[Form, bool, int], dict[Ids, int]] = {}

    def header(self, form: Form) -> Ids:
        """A start token, then the kind of each quantity."""
        return (START, *(KINDS[_kind(quantity)] for quantity in form.first))

    def row(self, number: int) -> Ids:
        """The number itself, the last from 64 on."""
        return (ROWS + min(number, BASE) - 1,)

    def end(self) -> Ids:
        """One token."""
        return (STOP,)

    def name(self, form: Form, index: int) -> Ids:  # noqa: ARG002 - of the protocol
        """Its place, the same again from 32 on."""
        return (NAMED + index % NAMES,)

    def values(self, form: Form, number: int, index: int) -> list[Ids]:
        """As many tokens for each value of a quantity, so that tables of a batch stay in step."""
        quantity = form.row(number)[index]
        known = len(quantity.texts) - quantity.nullable
        wide = -(-known // BASE)
        found: list[Ids] = []
        for code in range(known):
            coarse, fine = divmod(code, wide)
            if quantity.numbers is None:
                found.append(
                    (CATEGORIES + coarse, FINE + fine) if wide > 1 else (CATEGORIES + code,)
                )
            else:
                found.append((COARSE + coarse, FINE + fine) if wide > 1 else (COARSE + code,))
        if quantity.nullable:
            found.append((MISSING,) * (2 if wide > 1 else 1))
        return found

    def text(self, form: Form, ids: Sequence[int]) -> str:
        """The text of a sequence that starts with the header; a value that is none as "?"."""
        text, number, index = form.header, 0, -1
        value: list[int] = []
        for token in [*list(ids)[1 + len(form.first) :], None]:
            if token is not None and (token >= COARSE or token == MISSING):
                value.append(token)
                continue
            if value:
                text, value = f"{text} {self._told(form, number, index, tuple(value))}", []
            if token == STOP:
                text += f"\n{END}"
            elif token is not None and token < NAMED:
                number, index = number + 1, -1
                text += f"\n[Row {number}]:"
            elif token is not None:
                index += 1
                name = form.first[index].name if index < len(form.first) else "?"
                text += f"{',' if index else ''} {name} is"
        return text

    def _told(self, form: Form, number: int, index: int, ids: Ids) -> str:
        if not 0 <= index < len(form.first) or not number:
            return "?"
        key = (form, number > 1, index)
        if key not in self._codes:
            values = self.values(form, number, index)
            self._codes[key] = {value: code for code, value in enumerate(values)}
        code = self._codes[key].get(ids)
        return "?" if code is None else form.row(number)[index].texts[code]


def _kind(quantity: Quantity) -> str:
    if quantity.name == TIME:
        return "time"
    if quantity.numbers is None:
        return "category"
    return "number" if len(quantity.texts) - quantity.nullable > BASE else "short number"
