"""Training of policy and estimator on windows whose people are not protected.

The rollout is differentiable (budget dynamics and noise are reparameterised), so the default is
the pathwise gradient; `ppo` holds the alternating algorithm of the paper.
"""

from __future__ import annotations

import copy
import math
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from panelbench_fusion.checkpoint import NOWHERE, Checkpoint, Dice, Shelf
from panelbench_fusion.rollout import TrainingChannel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from panelbench_fusion.estimator import Windows
    from panelbench_fusion.rollout import System

FULL_SIZE = 10_000
"""Training steps (windows times steps) from which on all updates are made."""
CHECKS = 12
REPORT_SECONDS = 10.0


def use_threads() -> None:
    """As many threads as OMP_NUM_THREADS says, else one: results do not depend on the machine."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1") or "1"))


def best_device() -> torch.device:
    """The graphics card where torch finds one, else the processor."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Windows as tensors.

    Attributes:
        state: Shape (windows, steps).
        sums: Shape (windows, steps, size).
    """

    state: torch.Tensor
    sums: torch.Tensor

    @classmethod
    def of(cls, windows: Windows) -> Pool:
        """`windows` in single precision."""
        return cls(
            state=torch.as_tensor(windows.state, dtype=torch.float32),
            sums=torch.as_tensor(windows.sums, dtype=torch.float32),
        )

    def on(self, device: torch.device) -> Pool:
        """The same on a device."""
        return Pool(state=self.state.to(device), sums=self.sums.to(device))


def updates_for(updates: int, size: int) -> int:
    """`updates`, or proportionally fewer for fewer training steps than `FULL_SIZE`."""
    return math.ceil(updates * min(1.0, size / FULL_SIZE))


class Judge:
    """Mean squared error on validation windows under fixed noise; keeps the best checkpoint.

    Args:
        system: What is trained.
        pool: Validation windows.
        draws: Noise draws for each of them.
        generator: Of their noise, apart from that of training.
    """

    def __init__(
        self, system: System, pool: Pool, *, draws: int, generator: torch.Generator
    ) -> None:
        self._system = system
        self._state = pool.state.repeat(draws, 1)
        self._sums = pool.sums.repeat(draws, 1, 1)
        self._noise = normal(self._sums, generator)
        self.history: list[float] = []
        self.best = math.inf
        self._kept: list[dict[str, torch.Tensor]] = []

    def look(self) -> float:
        """Judge the present weights, and remember them where they are the best so far."""
        with torch.no_grad():
            trace = self._system.rollout(
                TrainingChannel(self._sums, self._noise), (len(self._state),)
            )
            error = float((torch.stack(trace.estimates, -1) - self._state).square().mean())
        self.history.append(error)
        if error < self.best:
            self.best = error
            modules = (self._system.policy, self._system.estimator)
            self._kept = [copy.deepcopy(module.state_dict()) for module in modules]
        return error

    def state_dict(self) -> dict[str, Any]:
        """What was found so far; see `checkpoint.Stateful`."""
        return {"history": list(self.history), "best": self.best, "kept": self._kept}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Go on from there."""
        self.history = list(state_dict["history"])
        self.best, self._kept = state_dict["best"], state_dict["kept"]

    def restore(self) -> None:
        """Go back to the best weights."""
        self._system.policy.load_state_dict(self._kept[0])
        self._system.estimator.load_state_dict(self._kept[1])


class Progress:
    """A line on standard error every ten seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._start = self._last = time.monotonic()

    def say(self, done: int, error: float) -> None:
        """Report, where the last line is ten seconds old."""
        now = time.monotonic()
        if now - self._last >= REPORT_SECONDS:
            self._last = now
            print(  # noqa: T201 - goes to the cell's log
                f"{self._what}: update {done} of {self._total}, {now - self._start:.0f} s, "
                f"validation error {error:.4g}",
                file=sys.stderr,
                flush=True,
            )


def batches(
    pool: Pool, size: int, count: int, generator: torch.Generator
) -> Iterator[tuple[torch.Tensor, TrainingChannel]]:
    """`count` random batches of states and channels with fresh noise."""
    for _ in range(count):
        chosen = torch.randint(len(pool.state), (size,), generator=generator).to(pool.state.device)
        sums = pool.sums[chosen]
        yield pool.state[chosen], TrainingChannel(sums, normal(sums, generator))


def normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Standard normal numbers, the same on every device; of the shape and on that of `like`."""
    return torch.randn(like.shape, generator=generator).to(like.device)


@dataclass(frozen=True, kw_only=True)
class Pathwise:
    """Settings of training through the rollout.

    Attributes:
        batch: Windows in a batch.
        estimator_rate: Step size of Adam for the estimator, falling to 0 along a cosine.
        policy_rate: The same for the policy; 0 leaves it as it is.
    """

    batch: int
    estimator_rate: float
    policy_rate: float


def train_pathwise(
    system: System,
    pool: Pool,
    judge: Judge,
    how: Pathwise,
    *,
    updates: int,
    generator: torch.Generator,
    shelf: Shelf = NOWHERE,
) -> None:
    """Descend the mean squared error of the whole rollout, then take the best checkpoint.

    Args:
        system: What is trained.
        pool: Training windows.
        judge: Chooses the checkpoint.
        how: Settings.
        updates: Gradient steps.
        generator: Of batches and noise.
        shelf: Where training puts down its state at each look of the judge, to go on from.
    """
    trained = list(system.estimator.parameters())
    groups = [{"params": trained, "lr": how.estimator_rate}]
    if how.policy_rate:
        policy = list(system.policy.parameters())
        groups.append({"params": policy, "lr": how.policy_rate})
        trained = trained + policy
    optimizer = torch.optim.AdamW(groups, weight_decay=1e-3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(updates, 1))
    checkpoint = Checkpoint(
        shelf,
        "training",
        {
            "policy": system.policy,
            "estimator": system.estimator,
            "optimizer": optimizer,
            "cosine": cosine,
            "judge": judge,
            "dice": Dice(generator),
        },
    )
    before = checkpoint.resume()
    if not before:
        judge.look()
    scale = judge.history[0]
    progress = Progress("training", updates)
    every = max(1, updates // CHECKS)
    left = batches(pool, how.batch, updates - before, generator)
    for done, (state, channel) in enumerate(left, before + 1):
        trace = system.rollout(channel, (how.batch,))
        loss = (torch.stack(trace.estimates, -1) - state).square().mean() / scale
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        cosine.step()
        if done % every == 0 or done == updates:
            judge.look()
            checkpoint.keep(done)
        progress.say(done, judge.history[-1])
    judge.restore()


def generators(rng: np.random.Generator, count: int) -> list[torch.Generator]:
    """Torch generators seeded from `rng`."""
    seeds = rng.integers(0, 2**62, count)
    return [torch.Generator().manual_seed(int(seed)) for seed in seeds]
