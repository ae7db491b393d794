"""Clipped gradient sums with opacus: its hooks form the gradient of every user."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from panelbench_path.books import factors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Hooks:
    """The interface of `books.Books` over `opacus.GradSampleModule` (opacus 1.6).

    Attributes:
        tokens: Positions that went through the model.
    """

    def __init__(self, model: torch.nn.Module, layers: Sequence[torch.nn.Linear]) -> None:
        from opacus import GradSampleModule  # noqa: PLC0415 - an extra, slow to import

        self.tokens = 0
        self.layers = list(layers)
        self._training = model.training
        model.train()  # opacus refuses a model in evaluation mode
        for layer in self.layers:
            layer.weight.requires_grad_()
        self.model: Any = GradSampleModule(model, batch_first=True, loss_reduction="sum")
        self._counter = self.layers[0].register_forward_hook(self._count)

    def close(self) -> None:
        """Take the hooks away."""
        self._counter.remove()
        inner = self.model.to_standard_module()
        inner.train(self._training)
        for layer in self.layers:
            layer.weight.grad = None

    def _count(self, _layer: torch.nn.Module, read: tuple[torch.Tensor], _given: object) -> None:
        self.tokens += read[0].numel() // read[0].shape[-1]

    def add_clipped(
        self,
        loss_of: Callable[[torch.nn.Module, Any], torch.Tensor],
        batch: Any,  # noqa: ANN401 - whatever `loss_of` reads
        clip: float,
        sums: list[torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add each user's clipped gradient to `sums`; losses and norms by user."""
        self.model.zero_grad()
        losses = loss_of(self.model, batch)
        with (
            warnings.catch_warnings()
        ):  # frozen embeddings in front: the hooks are right all the same
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            losses.sum().backward()  # type: ignore[no-untyped-call]  # torch is not typed here
        users = len(losses)
        gradients = []
        for layer in self.layers:
            weight: Any = layer.weight
            found = weight.grad_sample
            found = found if isinstance(found, list) else [found]
            by_sequence = torch.stack([part.float() for part in found]).sum(dim=0)
            gradients.append(by_sequence.reshape(users, -1, *weight.shape).sum(dim=1))
            weight.grad_sample = None
        squares = torch.stack([g.square().sum(dim=(1, 2)) for g in gradients])
        norms = squares.sum(dim=0).sqrt()
        factor = factors(norms, clip)
        for total, gradient in zip(sums, gradients, strict=True):
            total.add_(torch.einsum("u,uoi->oi", factor, gradient))
        return losses.detach(), norms
