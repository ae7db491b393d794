"""Train the public model on made-up tables: `python -m panelbench_path.pretrain FILE`.

The weights that this package ships were made by it, with the defaults. It reads no data. One
thread, so that sums are taken in one order; another processor or library may round differently.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from panelbench_path.batches import loss_by_table, stacked
from panelbench_path.layout import neighbors
from panelbench_path.prior import population
from panelbench_path.transformer import Shape, Transformer
from panelbench_path.weights import SHIPPED, save

if TYPE_CHECKING:
    from collections.abc import Callable

    from panelbench_path.transformer import Cells

    Batch = tuple[Cells, torch.Tensor, torch.Tensor]

OTHERS = 42
CELLS = (64, 96, 128)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the public model is trained.

    Attributes:
        steps: Number of updates.
        populations: Processes in each.
        tables: Tables of each process.
        rate: Largest learning rate.
        seed: Of everything.
    """

    steps: int = 2400
    populations: int = 4
    tables: int = 6
    rate: float = 3e-3
    seed: int = 20260202


def batch(rng: np.random.Generator, populations: int, tables: int) -> Batch:
    """Windows of tables of some populations, the bias of their cells, and potentials."""
    parts = []
    for _ in range(populations):
        drawn = population(rng, tables=tables, others=OTHERS)
        tokens, rows = drawn.tokens, drawn.rows
        window = max(2, int(rng.choice(CELLS)) // tokens.shape[2])
        starts = rng.integers(0, np.maximum(rows - window, 0) + 1)
        read = neighbors(tokens, rows, starts=starts, window=window)
        parts.append((read, drawn.bias, drawn.potentials.scores(read)))
    return stacked(parts)


def pretrain(
    settings: Settings, say: Callable[[str], None], *, shape: Shape | None = None
) -> tuple[Transformer, list[float]]:
    """Adam with a warm-up and a cosine to a twentieth; the model and the loss of each step."""
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    model = Transformer(shape or Shape())
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=settings.rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    began, losses, steps = time.process_time(), [], settings.steps
    for step in range(steps):
        wave = (1 + math.cos(math.pi * step / steps)) / 2
        for group in optimiser.param_groups:
            group["lr"] = settings.rate * min(1.0, (step + 1) / 50) * (0.05 + 0.95 * wave)
        optimiser.zero_grad()
        cells, bias, scores = batch(rng, settings.populations, settings.tables)
        loss = loss_by_table(model, cells, bias + model.weighted(scores)).mean()
        loss.backward()  # type: ignore[no-untyped-call]  # torch is not typed here
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
        if step % 50 == 49:
            spent = time.process_time() - began
            left = spent / (step + 1) * (steps - step - 1)
            recent = float(np.mean(losses[-200:]))
            say(f"step {step + 1} of {steps}: {recent:.4f} nats a cell, {left:.0f} CPU-s left")
    return model, losses


def main() -> None:
    """Train and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=SHIPPED)
    for field in dataclasses.fields(Settings):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    options = vars(parser.parse_args())
    path = options.pop("file")
    settings = Settings(**options)
    torch.set_num_threads(1)
    model, _ = pretrain(settings, lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201 - a script
    save(model, path, dataclasses.asdict(settings))


if __name__ == "__main__":
    main()
