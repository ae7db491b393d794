"""Tables as tensors, and the loss of the model on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from panelbench_path.layout import NONE
from panelbench_path.transformer import Cells

if TYPE_CHECKING:
    import numpy as np


def as_cells(read: dict[str, np.ndarray]) -> Cells:
    """What `layout.neighbors` gives, as tensors."""
    return Cells(**{name: torch.from_numpy(array) for name, array in read.items()})


def loss_by_table(model: nn.Module, cells: Cells, bias: torch.Tensor) -> torch.Tensor:
    """Mean negative log likelihood over the cells of each table, shape (tables,).

    Each table is by itself: no statistic is shared between users, so a user's gradient depends on
    that user alone.

    Args:
        model: The model.
        cells: Tables.
        bias: Added to the logits, minus infinity for tokens that a cell cannot hold; shape (SLOTS,
            tokens), or (tables, cells, tokens) where tables differ.
    """
    there = cells.target != NONE
    logits = model(cells) + (bias if bias.dim() == 3 else bias[cells.slot])
    scores = torch.log_softmax(torch.where(there[..., None], logits, 0.0), dim=-1)
    losses = -scores.gather(-1, cells.target[..., None])[..., 0]
    losses = torch.where(there, losses, 0.0)
    return losses.sum(dim=1) / there.sum(dim=1).clamp(min=1)


def stacked(
    parts: list[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]],
) -> tuple[Cells, torch.Tensor, torch.Tensor]:
    """Tables of several populations in one batch, with the bias and the scores of each cell."""
    longest = max(read["target"].shape[1] for read, _, _ in parts)
    cells: dict[str, list[torch.Tensor]] = {}
    biases, scores = [], []
    for read, bias, own in parts:
        missing = longest - read["target"].shape[1]
        for name, array in read.items():
            cells.setdefault(name, []).append(functional.pad(torch.from_numpy(array), (0, missing)))
        biases.append(torch.from_numpy(bias).float()[cells["slot"][-1]])
        scores.append(functional.pad(torch.from_numpy(own), (0, 0, 0, 0, 0, missing)))
    whole = {name: torch.cat(kept) for name, kept in cells.items()}
    return Cells(**whole), torch.cat(biases), torch.cat(scores)
