"""The part of `cells` that needs torch: the public model is tuned, and tables are drawn from it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from panelbench_path.batches import as_cells, loss_by_table
from panelbench_path.cells import CLIP
from panelbench_path.checkpoint import shelf_for
from panelbench_path.dpsgd import Plan, train
from panelbench_path.drawn_cells import generate
from panelbench_path.layout import neighbors
from panelbench_path.lora import attach, merge
from panelbench_path.progress import to_stderr
from panelbench_path.weights import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench_path.cells import Cells, Noise
    from panelbench_path.codebook import Codebook
    from panelbench_path.potentials import Potentials
    from panelbench_path.transformer import Cells as Places

    Batch = tuple[Places, torch.Tensor | None]

MICRO = 64


def tuned_and_drawn(
    settings: Cells,
    *,
    book: Codebook,
    private: tuple[np.ndarray, np.ndarray],
    lengths: np.ndarray,
    noise: Noise,
    potentials: Potentials | None,
    rng: np.random.Generator,
) -> tuple[np.ndarray, int]:
    """Tune the public model, then draw tables.

    Args:
        settings: The mechanism.
        book: Measured codes.
        private: Tokens of shape (users, steps, cells of a row), and the users' numbers of rows.
        lengths: Numbers of rows of the tables to draw.
        noise: All noise.
        potentials: What was measured about neighbors, if anything was.
        rng: The source of randomness.

    Returns:
        Tokens of the drawn tables, as many steps as `private` has, and the number of tuned weights.
    """
    tokens, rows = private
    columns = tokens.shape[2]
    window = max(2, settings.window // columns)
    bias = book.bias()
    tensor = torch.from_numpy(bias).float()
    model = load()
    if settings.tune == "lora":
        seed = int(rng.integers(2**31))
        layers = attach(
            model,
            rank=settings.rank,
            alpha=2.0 * settings.rank,
            seed=seed,
            wanted=lambda name: name != "gate",
        )
    else:
        layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m != model.gate]
    if potentials is not None:
        layers.append(model.gate)

    def batches_of(
        users: np.ndarray, micro: int, generator: np.random.Generator
    ) -> Iterator[Batch]:
        users = users[np.argsort(np.minimum(rows[users], window), kind="stable")]
        for first in range(0, len(users), micro):
            yield batch_of(users[first : first + micro], generator)

    def batch_of(users: np.ndarray, generator: np.random.Generator) -> Batch:
        latest = np.maximum(rows[users] - window, 0)
        starts = (generator.random(len(users)) * (latest + 1)).astype(np.int64)
        read = neighbors(tokens[users], rows[users], starts=starts, window=window, clock=book.clock)
        scores = None if potentials is None else torch.from_numpy(potentials.scores(read))
        return as_cells(read), scores

    def loss_of(_net: torch.nn.Module, batch: Batch) -> torch.Tensor:
        places, scores = batch
        added = tensor[places.slot]
        return loss_by_table(
            model, places, added if scores is None else added + model.weighted(scores)
        )

    plan = Plan(
        users=len(rows),
        denominator=noise.nominal,
        sampling=noise.sampling,
        steps=settings.steps,
        clip=CLIP if noise.training else math.inf,
        stddev=noise.training,
        rate=settings.rate,
        micro=MICRO,
    )
    train(
        model,
        layers,
        batches_of,
        loss_of,
        plan,
        rng=rng,
        engine=settings.engine,
        shelf=shelf_for((tokens, rows), repr(settings), repr(noise), rng.bit_generator.state),
        name="cells",
    )
    if settings.tune == "lora":
        merge(model)
    drawn = generate(
        model,
        bias,
        lengths,
        columns=columns,
        clock=book.clock,
        cells=window * columns,
        rng=rng,
        say=to_stderr,
        potentials=potentials,
    )
    padded = np.zeros((len(lengths), *tokens.shape[1:]), dtype=np.int64)
    padded[:, : drawn.shape[1]] = drawn
    return padded, sum(layer.weight.numel() for layer in layers)
