"""The numbers that may be written: public grids with few significant digits."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np

UNITS_PER_DAY = {"second": 86_400.0, "minute": 1_440.0, "hour": 24.0, "day": 1.0}
"""Times that can be written, and how many make a day."""

LEVELS = 4096
"""Most numbers in a grid, the resolution follows from it."""
_PLAIN_EXPONENTS = range(-6, 4)
_GAPS_FROM_DAYS, _GAPS_TO_DAYS = 1 / 1_440, 365.0


def number_grid(lower: float, upper: float, *, whole: bool) -> tuple[tuple[str, ...], np.ndarray]:
    """All multiples of a power of ten between public bounds, at most `LEVELS`, as text and numbers.

    The power is the smallest that keeps to `LEVELS`, and at least one for whole numbers, so
    relative to the range the resolution is between 1 in 410 and 1 in 4,096.

    >>> number_grid(2.0, 18.0, whole=False)[0][:3]
    ('2.00', '2.01', '2.02')
    >>> number_grid(0.0, 1e12, whole=False)[0][1:3]
    ('1e9', '2e9')
    """
    exponent = math.ceil(math.log10((upper - lower) / (LEVELS - 1)) - 1e-9)
    coarsest = np.spacing(max(abs(lower), abs(upper))) * 4
    exponent = max(exponent, math.ceil(math.log10(coarsest)), 0 if whole else -400)
    unit = Decimal(1).scaleb(exponent)
    low = math.ceil(Decimal(lower) / unit - Decimal("1e-6"))
    high = max(low, math.floor(Decimal(upper) / unit + Decimal("1e-6")))
    texts = tuple(_written(count, exponent) for count in range(low, high + 1))
    return texts, np.clip([float(text) for text in texts], lower, upper)


def _written(count: int, exponent: int) -> str:
    if exponent in _PLAIN_EXPONENTS:
        return f"{Decimal(count).scaleb(exponent):f}"
    return f"{count}e{exponent}" if count else "0"


def gap_grid(per_day: float) -> tuple[tuple[str, ...], np.ndarray]:
    """Times between rows with two significant digits, from a minute to a year, written with a plus.

    >>> gap_grid(1440.0)[0][:3]
    ('+1.0', '+1.1', '+1.2')
    """
    first = math.floor(math.log10(_GAPS_FROM_DAYS * per_day) + 1e-9)
    texts: list[str] = []
    for exponent in range(first, 99):
        for mantissa in range(10, 100):
            value = Decimal(mantissa).scaleb(exponent - 1)
            if float(value) > _GAPS_TO_DAYS * per_day:
                return tuple(texts), np.array([float(text) for text in texts])
            if float(value) >= _GAPS_FROM_DAYS * per_day * 0.999:
                texts.append(f"+{value:f}")
    raise AssertionError  # the loop above ends at a year
