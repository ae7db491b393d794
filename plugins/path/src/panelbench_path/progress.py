"""Where mechanisms say how far they are."""

from __future__ import annotations

import sys


def to_stderr(what: str) -> None:
    """Say something in the cell's log."""
    print(what, file=sys.stderr, flush=True)  # noqa: T201 - goes to the cell's log
