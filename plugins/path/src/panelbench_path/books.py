"""Clipped gradient sums of linear layers from the books of one backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TINY = 1e-12


def factors(norms: torch.Tensor, clip: float) -> torch.Tensor:
    """What each user's gradient is multiplied by, so that its norm is at most `clip`."""
    return (clip / norms.clamp(min=TINY)).clamp(max=1.0)


class Books:
    """What each of some linear layers reads, and the gradient of what it gives.

    A gradient of a weight is the sum over positions of (output gradient) x (input), so both its
    norm for one user and a weighted sum over users follow from the two, without autograd ever
    being asked for a weight. Sums and norms are in float32, of the very numbers that are added.

    Attributes:
        tokens: Positions that went through the first of the layers.
    """

    def __init__(self, model: torch.nn.Module, layers: Sequence[torch.nn.Linear]) -> None:
        self.model, self.layers = model, list(layers)
        self.tokens = 0
        self._entries: list[list[list[torch.Tensor]]] = [[] for _ in self.layers]
        self._handles = [
            layer.register_forward_hook(self._write(number))
            for number, layer in enumerate(self.layers)
        ]

    def close(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()

    def _write(self, number: int) -> Callable[..., None]:
        def hook(_layer: torch.nn.Module, read: tuple[torch.Tensor], given: torch.Tensor) -> None:
            if not torch.is_grad_enabled():
                return
            if not given.requires_grad:  # nothing before it is trained: gradients start here
                given.requires_grad_()
            entry = [read[0].detach()]
            self._entries[number].append(entry)
            given.register_hook(entry.append)  # type: ignore[no-untyped-call]  # torch is not typed here

        return hook

    def add_clipped(
        self,
        loss_of: Callable[[torch.nn.Module, Any], torch.Tensor],
        batch: Any,  # noqa: ANN401 - whatever `loss_of` reads
        clip: float,
        sums: list[torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add each user's clipped gradient to `sums`; losses and norms by user.

        The norm is over all layers together.
        """
        self._entries = [[] for _ in self.layers]
        losses = loss_of(self.model, batch)
        losses.sum().backward()  # type: ignore[no-untyped-call]  # torch is not typed here
        users = len(losses)
        pairs = [self._pair(entries, users) for entries in self._entries]
        self._entries = [[] for _ in self.layers]
        squares = torch.zeros(users, device=losses.device)
        explicit: list[torch.Tensor | None] = []
        for pair in pairs:
            square, gradients = _square(*pair) if pair else (0.0, None)
            squares += square
            explicit.append(gradients)
        norms = squares.sqrt()
        factor = factors(norms, clip)
        for total, pair, gradients in zip(sums, pairs, explicit, strict=True):
            if gradients is not None:
                total.add_(torch.einsum("u,uoi->oi", factor, gradients))
            elif pair is not None:
                read, slope = pair
                total.addmm_((slope * factor[:, None, None]).flatten(0, 1).T, read.flatten(0, 1))
        if pairs[0] is not None:
            self.tokens += pairs[0][0].shape[0] * pairs[0][0].shape[1]
        return losses.detach(), norms

    @staticmethod
    def _pair(
        entries: list[list[torch.Tensor]], users: int
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Inputs and output gradients of a layer, each of shape (users, positions, size)."""
        full = [entry for entry in entries if len(entry) == 2]  # no gradient came: not in the loss
        if not full:
            return None
        read, slope = (
            torch.cat([e[k].float().reshape(users, -1, e[k].shape[-1]) for e in full], dim=1)
            for k in (0, 1)
        )
        return read, slope


def _square(read: torch.Tensor, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Squared norm of each user's gradient, and the gradients where forming them is cheaper."""
    positions, inner, outer = read.shape[1], read.shape[2], slope.shape[2]
    if inner * outer <= positions * (inner + outer):
        gradients = slope.transpose(1, 2) @ read
        return gradients.square().sum(dim=(1, 2)), gradients
    products = (read @ read.transpose(1, 2)) * (slope @ slope.transpose(1, 2))
    return products.sum(dim=(1, 2)).clamp(min=0.0), None
