"""Training of the learnt feature: the error of the best linear filter, through its table."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from panelbench import NeighboringRelation
from panelbench_fusion.checkpoint import NOWHERE, Checkpoint, Dice
from panelbench_fusion.networks import initialise
from panelbench_fusion.tabled import Lattice, TabledFeature

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from panelbench_fusion.checkpoint import Shelf
    from panelbench_fusion.estimator import Regularisation
    from panelbench_fusion.feature import Feature

WIDTH = 32
RATE = 1e-2
KEEP_EVERY = 20


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Windows before the table is known.

    Attributes:
        state: Shape (windows, steps).
        weights: Of the nodes, shape (windows, steps, cells).
    """

    state: torch.Tensor
    weights: torch.Tensor

    def part(self, rows: torch.Tensor) -> Weighed:
        """Some of the windows."""
        return Weighed(state=self.state[rows], weights=self.weights[rows])


def _moments(joint: torch.Tensor, shrinkage: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean (steps, width) and covariance (steps, width, steps, width), as `estimator.shrunk`."""
    count, steps, width = joint.shape
    mean, overall = joint.mean(dim=0), joint.mean(dim=(0, 1))

    def covariance(rest: torch.Tensor) -> torch.Tensor:
        flat = rest.flatten(1)
        return (flat.T @ flat / count).reshape(steps, width, steps, width)

    pairs = covariance(joint - overall).permute(0, 2, 1, 3)
    index = torch.arange(steps)
    lag = (index[:, None] - index).flatten() + steps - 1
    total = pairs.new_zeros((2 * steps - 1, width, width)).index_add(0, lag, pairs.flatten(0, 1))
    average = total / torch.bincount(lag).to(total)[:, None, None]
    stationary = average[lag].reshape(steps, steps, width, width).permute(0, 2, 1, 3)
    own = covariance(joint - mean)
    mixed_mean = (1 - shrinkage) * mean + shrinkage * overall
    return mixed_mean, (1 - shrinkage) * own + shrinkage * stationary


def held_out_error(
    fit: Weighed, held: Weighed, table: torch.Tensor, gain: float, how: Regularisation
) -> torch.Tensor:
    """Expected error on `held` of the filter of `estimator.lmmse` fitted on `fit`.

    Raises:
        torch.linalg.LinAlgError: Where the moments are not positive definite.
    """
    sums = fit.weights @ table
    mean, covariance = _moments(torch.cat([fit.state[..., None], sums], dim=-1), how.shrinkage)
    steps, size = sums.shape[1:]
    side = steps * size
    of_outputs = gain**2 * covariance[:, 1:, :, 1:].reshape(side, side)
    variance = torch.diagonal(of_outputs)
    lower = torch.linalg.cholesky(of_outputs + torch.diag(1 + how.ridge * variance))
    with_state = gain * covariance[:, 1:, :, 0].reshape(side, steps)
    known = torch.arange(steps).repeat_interleave(size)[:, None] <= torch.arange(steps)
    innovations = torch.linalg.solve_triangular(lower, with_state, upper=False) * known
    weight = torch.linalg.solve_triangular(lower.T, innovations, upper=True) * known
    rest = (held.weights @ table - mean[:, 1:]).flatten(1)
    bias = mean[:, 0] + gain * rest @ weight - held.state
    error: torch.Tensor = bias.square().mean() + weight.square().sum() / steps
    return error


def _normalised(table: torch.Tensor, relation: NeighboringRelation) -> torch.Tensor:
    """The table with an L2 sensitivity of 1, up to rounding."""
    rows = table
    if relation is NeighboringRelation.REPLACE_ONE:
        rows = torch.cat([table, torch.zeros_like(table[:1])])
        left, right = torch.triu_indices(len(rows), len(rows), offset=1)
        rows = rows[left] - rows[right]
    normalised: torch.Tensor = table / torch.sqrt(rows.square().sum(-1).max())
    return normalised


def _start(base: Feature, lattice: Lattice) -> torch.Tensor:
    """The fixed feature at the nodes, with two coordinates at least."""
    nodes = lattice.nodes()
    table = np.zeros((lattice.cells, max(2, base.size)))
    table[:, 0] = base.count_weight
    for place, column in enumerate(base.values, start=1):
        scaled = nodes[:, lattice.columns.index(column)]
        table[:, place] = base.value_weight * (2 * scaled - 1 if base.centred else scaled)
    return torch.as_tensor(table)


def unusable(*, first: bool) -> AbstractContextManager[None]:
    """Goes on where moments are not positive definite: the next half or table is another one.

    Args:
        first: Whether it is the fixed feature's own error, without which nothing can be judged.
    """
    error = torch.linalg.LinAlgError  # type: ignore[attr-defined] # it is there, untyped
    return contextlib.nullcontext() if first else contextlib.suppress(error)


def learnt_feature(
    base: Feature,
    train: tuple[np.ndarray, np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray, np.ndarray],
    *,
    relation: NeighboringRelation,
    gain: float,
    how: Regularisation,
    updates: int,
    generator: torch.Generator,
    shelf: Shelf = NOWHERE,
) -> tuple[TabledFeature, list[float]]:
    """A table from an MLP over the nodes that lowers the error of the best linear filter.

    Each update fits the filter on a random half of the training windows and descends its expected
    error on the other half, the noise integrated out. The table that is kept is the best on
    validation windows; the first one is the fixed feature.

    Args:
        base: The fixed feature to start from.
        train: State, observations and presence of training windows.
        validation: The same of validation windows.
        relation: Under which the sensitivity is 1.
        gain: Of each step.
        how: How the filter is regularised.
        updates: Gradient steps.
        generator: Of weights and halves.
        shelf: Where training puts down its state now and then, to go on from.

    Returns:
        The feature, and the validation error after each update that was looked at.
    """
    lattice = Lattice.of(base)

    def weighed(windows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Weighed:
        state, observations, present = windows
        weights = lattice.weights(observations, present)
        return Weighed(state=torch.as_tensor(state), weights=torch.as_tensor(weights))

    known, held = weighed(train), weighed(validation)
    nodes, start = torch.as_tensor(lattice.nodes()) * 2 - 1, _start(base, lattice)
    net = nn.Sequential(
        nn.Linear(nodes.shape[1], WIDTH),
        nn.Tanh(),
        nn.Linear(WIDTH, WIDTH),
        nn.Tanh(),
        nn.Linear(WIDTH, start.shape[1]),
    ).double()
    initialise(net, generator)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    best = _Best(start)
    checkpoint = Checkpoint(
        shelf,
        "feature",
        {"net": net, "optimizer": optimizer, "best": best, "dice": Dice(generator)},
    )
    for update in range(checkpoint.resume(), updates + 1):
        # Nothing is added before the first update, so that the first look is the fixed feature.
        table = _normalised(start + (0.3 * net(nodes) if update else 0.0), relation)
        if update % 5 == 0 or update == updates:
            with torch.no_grad(), unusable(first=not update):
                best.hear(float(held_out_error(known, held, table, gain, how)), table)
        order = torch.randperm(len(known.state), generator=generator)
        half = max(1, len(order) // 2)
        table = _normalised(start + 0.3 * net(nodes), relation)
        optimizer.zero_grad()
        with unusable(first=False):
            fit, other = known.part(order[half:]), known.part(order[:half])
            loss = held_out_error(fit, other, table, gain, how)
            torch.autograd.backward(loss / best.history[0])
            optimizer.step()
        if update % KEEP_EVERY == KEEP_EVERY - 1 or update == updates:
            checkpoint.keep(update + 1)
    print(  # noqa: T201 - goes to the cell's log
        f"learnt feature: validation error {best.history[0]:.4g} to {min(best.history):.4g}",
        file=sys.stderr,
        flush=True,
    )
    return TabledFeature(lattice=lattice, table=best.table.numpy()), best.history


class _Best:
    """The best table so far, and all errors.

    Args:
        table: The first one.
    """

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        self.history: list[float] = []

    def hear(self, error: float, table: torch.Tensor) -> None:
        """Keep the table where it is the best."""
        if not self.history or error < min(self.history):
            self.table = table.detach().clone()
        self.history.append(error)

    def state_dict(self) -> dict[str, Any]:
        """See `checkpoint.Stateful`."""
        return {"table": self.table, "history": list(self.history)}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Go on from there."""
        self.table, self.history = state_dict["table"], list(state_dict["history"])
