"""Train the shipped text model on made-up tables: `python -m panelbench_path.pretrain_text FILE`.

The weights that this package ships were made by it with the defaults. It reads no data. It uses one
thread, so that sums are taken in one order; another processor or library may still round
differently.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from panelbench_path.likelihood import Texts, losses
from panelbench_path.shipped import fresh, save
from panelbench_path.textprior import Drawn, population

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

DEFAULTS = {"steps": 2500, "populations": 2, "tables": 5, "rate": 3e-3, "seed": 20260202}


def as_texts(drawn: Drawn) -> Texts:
    """Made-up tables as tensors."""
    return Texts(
        ids=torch.from_numpy(drawn.ids),
        states=torch.from_numpy(drawn.states),
        allowed=torch.from_numpy(drawn.allowed),
    )


def share_at(step: int, steps: int) -> float:
    """Share of the rate at a step: a warm-up, then all of it, then a line to a twentieth."""
    return min(1.0, (step + 1) / 50, 0.05 + 0.95 * (steps - step) / (steps / 4))


def pretrain(
    *,
    steps: int,
    populations: int,
    tables: int,
    rate: float,
    seed: int,
    say: Callable[[str], None],
    keep: Callable[[PreTrainedModel], None] = lambda _model: None,
) -> PreTrainedModel:
    """AdamW, the rate as in `share_at`; the loss is the mean over the scored tokens of a table."""
    rng = np.random.default_rng(seed)
    model = fresh(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
    began, mean = time.monotonic(), math.nan
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * share_at(step, steps)
        optimizer.zero_grad()
        total = 0.0
        for _ in range(populations):
            drawn = population(rng, tables=tables)
            loss = losses(model, as_texts(drawn)).mean()
            (loss / populations).backward()  # type: ignore[no-untyped-call]  # torch is not typed here
            total += float(loss.detach()) / populations
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = total if math.isnan(mean) else 0.98 * mean + 0.02 * total
        if step % 50 == 49:
            left = (time.monotonic() - began) / (step + 1) * (steps - step - 1)
            say(f"step {step + 1} of {steps}: {mean:.4f} nats a token, {left:.0f} s left")
            keep(model)
    return model


def main() -> None:
    """Train and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    options = vars(parser.parse_args())
    file = options.pop("file")
    torch.set_num_threads(1)
    model = pretrain(**options, say=lambda what: print(what, flush=True))  # noqa: T201 - a script
    save(model, file, options)


if __name__ == "__main__":
    main()
