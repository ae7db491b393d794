"""Tables drawn from the model, cell after cell, every one valid."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from panelbench_path.layout import NONE
from panelbench_path.transformer import Cells, Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from panelbench_path.potentials import Potentials
    from panelbench_path.transformer import Transformer

BATCH = 1024


@torch.no_grad()
def generate(
    model: Transformer,
    bias: np.ndarray,
    lengths: np.ndarray,
    *,
    columns: int,
    clock: bool,
    cells: int,
    rng: np.random.Generator,
    say: Callable[[str], None],
    potentials: Potentials | None = None,
) -> np.ndarray:
    """Draw tables of given lengths at temperature 1.

    Args:
        model: The model.
        bias: Added to the logits by slot; minus infinity keeps a token out of a cell.
        lengths: Number of rows of each table.
        columns: Cells in a row.
        clock: See `layout.neighbors`.
        cells: Most cells that the model looks back on.
        rng: The source of randomness.
        say: Where progress goes.
        potentials: Measured transitions and pairs, that are added to the logits with weights.

    Returns:
        Tokens of shape (tables, longest table, columns), `NONE` beyond the end of a table.
    """
    order = np.argsort(-lengths, kind="stable")
    tokens = np.full((len(lengths), int(lengths.max()), columns), NONE, dtype=np.int64)
    began, done = time.monotonic(), 0
    for first in range(0, len(order), BATCH):
        chosen = order[first : first + BATCH]
        tokens[chosen] = _batch(
            model,
            torch.from_numpy(bias).float(),
            lengths[chosen],
            tokens[chosen],
            clock=clock,
            cells=cells,
            rng=rng,
            added=None if potentials is None else Added(potentials, model),
        )
        done += int(lengths[chosen].sum())
    say(f"{done} rows drawn, {done / max(time.monotonic() - began, 1e-9):.0f} rows/s")
    return tokens


class Added:
    """Weighted potentials of one cell after the other."""

    def __init__(self, potentials: Potentials, model: Transformer) -> None:
        self._potentials, self._model = potentials, model

    def __call__(
        self, column: int, above: torch.Tensor, row: torch.Tensor, *, timed_row: bool
    ) -> torch.Tensor:
        """What is added to the logits, shape (tables, tokens)."""
        earlier = row[:, :column].numpy().copy()
        if timed_row:
            earlier[:, :1] = NONE  # a time of day is no gap
        scores = self._potentials.at(column, above.numpy(), earlier)
        logits: torch.Tensor = self._model.weighted(torch.from_numpy(scores))
        return logits


def _batch(
    model: Transformer,
    bias: torch.Tensor,
    lengths: np.ndarray,
    empty: np.ndarray,
    *,
    clock: bool,
    cells: int,
    rng: np.random.Generator,
    added: Added | None,
) -> np.ndarray:
    """Tables of one batch, the longest first, so that those that end can be left behind."""
    tokens = torch.from_numpy(empty)
    memory = Memory(cells)
    columns = tokens.shape[2]
    for row in range(int(lengths[0])):
        active = int((lengths > row).sum())
        memory.keep(active)
        for column in range(columns):
            timed = clock and column == 0
            slot = columns if timed and row == 0 else column
            before = (row, column - 1) if column else (row - 1, columns - 1)
            hidden = 1 if timed else 0  # the first row's time of day is no gap
            read = Cells(
                target=tokens[:active, :1, 0],
                left=_at(tokens, active, *before),
                above=_at(tokens, active, row - 1 if row - 1 >= hidden else -1, column),
                beyond=_at(tokens, active, row - 2 if row - 2 >= hidden else -1, column),
                slot=torch.full((active, 1), slot),
            )
            logits = model(read, memory)[:, 0] + bias[slot]
            if added is not None and slot < columns:
                logits += added(
                    column, read.above[:, 0], tokens[:active, row], timed_row=clock and not row
                )
            noise = torch.from_numpy(rng.gumbel(size=(active, logits.shape[1])).astype(np.float32))
            tokens[:active, row, column] = (logits + noise).argmax(dim=1)
    return tokens.numpy()


def _at(tokens: torch.Tensor, active: int, row: int, column: int) -> torch.Tensor:
    if row < 0:
        return torch.full((active, 1), NONE)
    return tokens[:active, row, column][:, None]
