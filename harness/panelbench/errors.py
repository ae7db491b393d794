"""The few exceptions that a user can see.

Each carries one sentence that says what was given, what was expected and what to do; the command
line prints it without a traceback.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class PanelbenchError(Exception):
    """Base of every error whose message is written for the user."""


class GridError(PanelbenchError):
    """A grid file, or what it names, cannot be planned."""


class PluginError(PanelbenchError):
    """A plugin cannot be found, loaded or trusted to keep the contract."""


class DataError(PanelbenchError):
    """A data file is missing, altered or malformed."""


class BudgetError(PanelbenchError):
    """A budget or a guarantee is malformed, or one exceeds the other."""


class StoreError(PanelbenchError):
    """The record store cannot be read or written."""


class EngineError(PanelbenchError):
    """What runs cells on other machines cannot be used."""


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """Say that `given` is not a known `what`, with the nearest valid names.

    >>> unknown("mechanism", "dirct", ["direct", "uniform"])
    "Unknown mechanism 'dirct'. Did you mean 'direct'? Available: direct, uniform."
    """
    names = sorted(set(known))
    short = {name.rsplit("/", 1)[-1]: name for name in names}
    near = difflib.get_close_matches(given, [*names, *short], n=1, cutoff=0.6)
    hint = f" Did you mean '{short.get(near[0], near[0])}'?" if near else ""
    listing = f" Available: {', '.join(names)}." if names else " None is available."
    return f"Unknown {what} '{given}'.{hint}{listing}"
