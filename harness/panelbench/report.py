"""From a board to one HTML page that opens from disk with the network off."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from panelbench.leaderboard import Board


def to_html(board: Board, plan: dict[str, Any]) -> str:
    """The page."""
    from panelbench.table import render

    return f"<!doctype html><title>{html.escape(board.name)}</title><pre>{html.escape(render(board))}</pre>"
