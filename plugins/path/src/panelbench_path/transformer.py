"""A small causal transformer over the cells of a table, read row by row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from panelbench_path.layout import BINS, FIRST_BIN, SLOTS, VOCABULARY

WAVES = 8
START = (0.6, 0.4)
"""Weights of measured transitions and pairs before training."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the model.

    Attributes:
        width: Of the residual stream.
        layers: Blocks.
        heads: Attention heads; they divide the width.
        inner: Width inside the gated MLP.
    """

    width: int = 96
    layers: int = 3
    heads: int = 4
    inner: int = 256


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Cells of tables as the model reads them, one position a cell; all of shape (tables, cells).

    Attributes:
        target: Token of the cell itself, 0 beyond the end of a table.
        left: Token of the cell before it in reading order, 0 at the start.
        above: Token of the same column in the row before, 0 in the first row.
        beyond: The same two rows before.
        slot: Which column it is in.
    """

    target: torch.Tensor
    left: torch.Tensor
    above: torch.Tensor
    beyond: torch.Tensor
    slot: torch.Tensor


class Memory:
    """Keys and values of the last `most` positions that were read, while tables are generated."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.length = 0

    def keep(self, count: int) -> None:
        """Forget all but the first `count` tables."""
        self.kept = {layer: (k[:count], v[:count]) for layer, (k, v) in self.kept.items()}

    def extended(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values of a layer, the new ones added."""
        if layer in self.kept:
            old_keys, old_values = self.kept[layer]
            keys = torch.cat([old_keys, keys], dim=2)[:, :, -self.most :]
            values = torch.cat([old_values, values], dim=2)[:, :, -self.most :]
        self.kept[layer] = keys, values
        return keys, values


class Block(nn.Module):
    """Attention and a gated MLP, each behind a norm."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.layer, self.heads = layer, shape.heads
        self.before_attention = nn.RMSNorm(shape.width)
        self.before_mlp = nn.RMSNorm(shape.width)
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, shape.width, bias=False)
        self.value = nn.Linear(shape.width, shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.gate = nn.Linear(shape.width, shape.inner, bias=False)
        self.up = nn.Linear(shape.width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(
        self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], memory: Memory | None
    ) -> torch.Tensor:
        """The stream after this block; with a memory, `x` holds the newest position only."""
        y = self.before_attention(x)
        query, key, value = (
            part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        query, key = _turned(query, turn), _turned(key, turn)
        if memory is not None:
            key, value = memory.extended(self.layer, key, value)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=memory is None and x.shape[1] > 1
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.before_mlp(x)
        changed: torch.Tensor = self.down(functional.silu(self.gate(y)) * self.up(y))
        return x + changed


class Transformer(nn.Module):
    """Logits of each cell's token from the cells before it.

    A position sees, besides everything before it by attention, the left neighbor, the two values
    above and the column it is about to fill, so that a first-order chain is within reach of one
    block. Rotary positions count cells.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token = nn.Embedding(VOCABULARY, shape.width)
        self.slot = nn.Embedding(SLOTS, shape.width)
        self.above = nn.Linear(shape.width, shape.width, bias=False)
        self.beyond = nn.Linear(shape.width, shape.width, bias=False)
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.last = nn.RMSNorm(shape.width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.04)
        nn.init.constant_(self.last.weight, 0.2)  # starts near the bias alone
        nn.init.orthogonal_(self.above.weight)
        nn.init.orthogonal_(self.beyond.weight)
        with torch.no_grad():
            self.token.weight[FIRST_BIN : FIRST_BIN + BINS] += _smooth(shape.width)
        self.gate = nn.Linear(2, 1, bias=False)
        with torch.no_grad():
            self.gate.weight.copy_(torch.tensor([START]))

    def weighted(self, scores: torch.Tensor) -> torch.Tensor:
        """What measured transitions and pairs (`potentials`) add to the logits."""
        added: torch.Tensor = self.gate(scores)[..., 0]
        return added

    def forward(self, cells: Cells, memory: Memory | None = None) -> torch.Tensor:
        """Logits of shape (tables, cells, tokens)."""
        x = (
            self.token(cells.left)
            + self.slot(cells.slot)
            + self.above(self.token(cells.above))
            + self.beyond(self.token(cells.beyond))
        )
        start = 0 if memory is None else memory.length
        turn = _angles(start, x.shape[1], self.shape.width // self.shape.heads)
        for block in self.blocks:
            x = block(x, turn, memory)
        if memory is not None:
            memory.length += x.shape[1]
        logits: torch.Tensor = functional.linear(self.last(x), self.token.weight)
        return logits


def _smooth(width: int) -> torch.Tensor:
    """Embeddings of the bins that start as smooth functions of their order, shape (bins, width)."""
    place = (torch.arange(BINS) + 0.5) / BINS
    waves = torch.arange(1, WAVES + 1)
    values = torch.cos(math.pi * place[:, None] * waves) / waves
    smooth: torch.Tensor = 0.6 * values @ torch.randn(WAVES, width) / width**0.5
    return smooth


def _angles(start: int, count: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of the rotation of each position, shape (positions, size / 2)."""
    rates = 10_000.0 ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(start, start + count)[:, None] * rates
    return angles.cos(), angles.sin()


def _turned(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    cosine, sine = turn
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
