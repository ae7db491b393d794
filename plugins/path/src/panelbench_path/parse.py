"""From a line that a model wrote freely back to the values of a row, with the paper's fallbacks."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from panelbench_path.serialise import escaped, unescaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from panelbench_path.serialise import Form, Quantity

MARKER = re.compile(r"^\s*\[?\s*Row\s*\d+\s*\]?\s*:?", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def read_line(
    line: str,
    form: Form,
    number: int,
    *,
    earlier: Sequence[Sequence[int]] = (),
    static: Sequence[str] = (),
) -> list[int] | None:
    """Codes of row `number`, or None where the line is no valid row.

    1. The line is split at commas that precede a known name, read as "name is value"; it will do
       if half of the quantities were read. 2. Otherwise it is split at all commas, in order, on
       the same condition. 3. Quantities that are still missing are copied from the table's
       earlier rows where they are static, and are missing values where those are allowed.

    A number must be a number between the public bounds and becomes the nearest that can be written.

    Args:
        line: Without line breaks.
        form: Of the table.
        number: Of the row, from 1; the marker's own number is not trusted.
        earlier: Codes of this table's earlier rows.
        static: Names of columns that do not change within a table; public.
    """
    body = MARKER.sub("", line, count=1)
    quantities = form.row(number)
    for fields in (_named(body, quantities), _ordered(body, quantities)):
        codes = [
            None if told is None else _code(told, quantity)
            for told, quantity in zip(fields, quantities, strict=True)
        ]
        if 2 * sum(code is not None for code in codes) < len(codes):
            continue
        filled = [
            _filled(code, quantity, index, earlier, static)
            for index, (code, quantity) in enumerate(zip(codes, quantities, strict=True))
        ]
        whole = [code for code in filled if code is not None]
        return whole if len(whole) == len(filled) else None
    return None


def _filled(
    code: int | None,
    quantity: Quantity,
    index: int,
    earlier: Sequence[Sequence[int]],
    static: Sequence[str],
) -> int | None:
    if code is not None:
        return code
    if earlier and quantity.name in {escaped(name) for name in static}:
        return earlier[-1][index]
    return len(quantity.texts) - 1 if quantity.nullable else None


def _named(body: str, quantities: Sequence[Quantity]) -> list[str | None]:
    names = [quantity.name for quantity in quantities]
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    start = re.compile(rf"\s*({known}) is(?:\s|$)(.*)", re.DOTALL)
    found: dict[str, str] = {}
    current = None
    for part in _split(body):
        pair = start.match(part)
        if pair:
            current = None if pair[1] in found else pair[1]
            found.setdefault(pair[1], pair[2])
        elif current is not None:
            found[current] += f",{part}"
    return [found.get(name) for name in names]


def _ordered(body: str, quantities: Sequence[Quantity]) -> list[str | None]:
    parts = _split(body)
    fields: list[str | None] = []
    for place, quantity in enumerate(quantities):
        own = rf"^\s*{re.escape(quantity.name)}\s*(?:is\b|[:=])"
        fields.append(re.sub(own, "", parts[place]) if place < len(parts) else None)
    return fields


def _split(body: str) -> list[str]:
    """Split at commas outside of quotes; a quote that is never closed is no quote."""
    parts = [""]
    at = 0
    while at < len(body):
        quoted = _QUOTED.match(body, at)
        if quoted:
            parts[-1] += quoted[0]
            at = quoted.end()
        elif body[at] == ",":
            parts.append("")
            at += 1
        else:
            parts[-1] += body[at]
            at += 1
    return parts


def _code(told: str, quantity: Quantity) -> int | None:
    text = told.strip()
    if text in quantity.codes and (text or quantity.nullable):
        return quantity.codes[text]
    if quantity.numbers is None:
        near = {unescaped(known).lower(): code for known, code in quantity.codes.items() if known}
        return near.get(unescaped(text).lower()) if text else None
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    if not math.isfinite(value) or not quantity.lower <= value <= quantity.upper:
        return None
    gaps = abs(quantity.numbers - value)
    return int(gaps.argmin())
