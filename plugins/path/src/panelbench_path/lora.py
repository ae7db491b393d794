"""Low-rank adapters of linear layers (Hu et al. 2021, arXiv:2106.09685)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


class LoRA(nn.Module):
    """A frozen linear layer plus `alpha / rank` times a product of two small ones.

    The second starts at zero, so that the layer starts as it was.
    """

    def __init__(
        self, base: nn.Linear, *, rank: int, alpha: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        kind = {"dtype": base.weight.dtype, "device": base.weight.device}
        self.down = nn.Linear(base.in_features, rank, bias=False, **kind)
        self.up = nn.Linear(rank, base.out_features, bias=False, **kind)
        start = torch.randn(rank, base.in_features, generator=generator)
        with torch.no_grad():
            self.down.weight.copy_(start / base.in_features**0.5)
            self.up.weight.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's output."""
        output: torch.Tensor = self.base(x) + self.scale * self.up(self.down(x))
        return output

    def merged(self) -> nn.Linear:
        """The base with the product added to its weight, in place."""
        with torch.no_grad():
            product = self.up.weight.float() @ self.down.weight.float()
            self.base.weight.add_((self.scale * product).to(self.base.weight.dtype))
        return self.base


def attach(
    model: nn.Module,
    *,
    rank: int,
    alpha: float,
    seed: int,
    wanted: Callable[[str], bool] = lambda _name: True,
) -> list[nn.Linear]:
    """Give every wanted linear layer an adapter; the adapters' layers, to be trained.

    Args:
        model: Changed in place.
        rank: Of the product.
        alpha: See `LoRA`.
        seed: Of the adapters' start.
        wanted: Whether the linear layer of that dotted name gets one.
    """
    generator = torch.Generator().manual_seed(seed)
    found = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and wanted(name)
    ]
    layers = []
    for name, module in found:
        adapter = LoRA(module, rank=rank, alpha=alpha, generator=generator)
        _put(model, name, adapter)
        layers += [adapter.down, adapter.up]
    return layers


def merge(model: nn.Module) -> None:
    """Fold every adapter into its layer, in place."""
    for name, module in list(model.named_modules()):
        if isinstance(module, LoRA):
            _put(model, name, module.merged())


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, module)
