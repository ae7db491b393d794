"""DP-SGD whose privacy unit is a user: Poisson sampling, one clipped gradient a user, noise.

The engine keeps the books of one backward pass (what each layer read, and the gradient of what it
gave) and never forms the gradients of its weights: norms by user and the clipped sum follow from
the books, so that a step costs about as much as an ordinary one (Bu et al. 2023, "Differentially
private optimization on large model at small cost", arXiv:2210.00038). `hooks_engine` does the same
sum with opacus.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from panelbench import SampledGaussianEvent
from panelbench_path.books import Books
from panelbench_path.checkpoint import NOWHERE, Shelf
from panelbench_path.progress import to_stderr

if TYPE_CHECKING:
    from collections.abc import Sequence

BETAS = (0.9, 0.95)
SMALL = 1e-8
KEEP_EVERY_SECONDS = 20.0
SAY_EVERY_SECONDS = 10.0
ENGINES = ("books", "opacus")

BatchesOf = Callable[[np.ndarray, int, np.random.Generator], Iterable[Any]]
"""From the numbers of a step's users to what the model reads of them, some at a time.

Every user is in one batch, no batch has more than the second argument says, and the order is free:
users whose texts are of like length go through the model together, which saves padding.
"""

LossOf = Callable[[torch.nn.Module, Any], torch.Tensor]
"""From the model and a batch to the loss of each user, shape (users of the batch,).

A user's loss depends on that user and the weights alone: no mean over the batch, no statistic
shared between users. The first axis inside the model is the users', or theirs times a fixed number
of sequences each, those of one user together.
"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training run with DP-SGD.

    Attributes:
        users: Number of private users; sampled by number, and used for nothing else.
        denominator: What the noisy sum is divided by, beside `sampling`: a public or noisy number
            of users, never the private one under add-or-remove-one. It is a scale only.
        sampling: Probability with which each user takes part in a step, by itself.
        steps: Number of steps; each counts, an empty one too.
        clip: Largest L2 norm of a user's gradient over all trained layers together; infinite for
            none.
        stddev: Standard deviation of the noise in each coordinate of the sum of clipped
            gradients; 0 for none, which is not private.
        rate: Largest learning rate.
        micro: Users in the model at once.
        warmup: Steps to the largest rate; then a cosine to `floor` times it.
        floor: See `warmup`.
    """

    users: int
    denominator: float
    sampling: float
    steps: int
    clip: float
    stddev: float
    rate: float
    micro: int = 64
    warmup: int = 3
    floor: float = 0.1

    def __post_init__(self) -> None:
        if self.users < 0 or self.steps < 1 or self.micro < 1 or self.warmup < 0:
            raise ValueError(
                f"users and warmup must be at least 0, steps and micro at least 1, got "
                f"{self.users}, {self.warmup}, {self.steps}, {self.micro}."
            )
        if not 0 < self.sampling <= 1:
            raise ValueError(f"sampling must lie in (0, 1], got {self.sampling}.")
        for name in ("denominator", "clip", "rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")
        if not 0 <= self.stddev < math.inf or (self.stddev and math.isinf(self.clip)):
            raise ValueError(
                f"stddev must be 0, or positive beside a finite clip, got {self.stddev}."
            )

    def event(self) -> SampledGaussianEvent:
        """What the run is charged."""
        return SampledGaussianEvent(
            stddev=self.stddev,
            clipping_norm=self.clip,
            sampling_probability=self.sampling,
            count=self.steps,
        )

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        warm = min(1.0, (step + 1) / (self.warmup + 1))
        wave = (1 + math.cos(math.pi * step / self.steps)) / 2
        return self.rate * warm * (self.floor + (1 - self.floor) * wave)


class _Adam:
    """Adam over float32 copies of the weights, which are rounded into the layers."""

    def __init__(self, layers: Sequence[torch.nn.Linear]) -> None:
        self.layers = list(layers)
        self.weights = [layer.weight.detach().float().clone() for layer in layers]
        self.means = [torch.zeros_like(weight) for weight in self.weights]
        self.squares = [torch.zeros_like(weight) for weight in self.weights]

    def step(self, gradients: list[torch.Tensor], rate: float, count: int) -> None:
        """One update, the `count`-th."""
        early, late = (1 - beta**count for beta in BETAS)
        parts = zip(self.weights, self.means, self.squares, gradients, strict=True)
        for weight, mean, square, gradient in parts:
            mean.lerp_(gradient, 1 - BETAS[0])
            square.lerp_(gradient**2, 1 - BETAS[1])
            weight.sub_(rate * (mean / early) / ((square / late).sqrt() + SMALL))
        self.put()

    def put(self) -> None:
        """Round the weights into the layers."""
        with torch.no_grad():
            for layer, weight in zip(self.layers, self.weights, strict=True):
                layer.weight.copy_(weight)


def train(
    model: torch.nn.Module,
    layers: Sequence[torch.nn.Linear],
    batches_of: BatchesOf,
    loss_of: LossOf,
    plan: Plan,
    *,
    rng: np.random.Generator,
    say: Callable[[str], None] = to_stderr,
    engine: str = "books",
    shelf: Shelf = NOWHERE,
    name: str = "dpsgd",
) -> dict[str, float]:
    """Train the weights of some linear layers, in place; everything else stays as it is.

    Every step samples each user with probability `plan.sampling` by itself, adds the users' clipped
    gradients, adds noise, and takes one Adam step. A sample without users is a step of noise alone.

    Formal guarantee:
        Privacy unit: whatever a number in `batches_of` stands for, a user with all rows. The sum of
        clipped gradients changes by at most `plan.clip` in L2 norm when a user is added or removed,
        so `plan.event()`, the Poisson-sampled Gaussian mechanism composed over the steps, holds
        under the relation that it is settled with. All else is post-processing. What is returned
        and said is not private and stays in the log.

    The random numbers come from `rng` alone, which makes a benchmark reproducible from its seed and
    is no protection against one who knows the seed or the generator's state: a release that is
    deployed needs a cryptographically secure generator (and noise whose floating-point values
    leak nothing).

    A killed run goes on from its last checkpoint with the generator's state of that moment, so that
    no step is ever noised twice, differently.

    Args:
        model: The model; its mode (training or evaluation) stays as it is.
        layers: What is trained; linear layers, the bias of which stays.
        batches_of: From users to what `loss_of` reads.
        loss_of: From model and batch to one loss for each user.
        plan: Numbers.
        rng: The only source of randomness, of sample, batches and noise.
        say: Where progress goes.
        engine: "books" or "opacus".
        shelf: Where checkpoints are kept.
        name: Of the run, on the shelf and in the log.

    Returns:
        Facts for the log that are NOT private: mean loss of the first and of the last tenth of the
        steps, share of clipped users, tokens per second.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {list(ENGINES)}, got {engine!r}.")
    asked = [parameter.requires_grad for parameter in model.parameters()]
    model.requires_grad_(requires_grad=False)
    books = _books(engine, model, layers)
    try:
        training = _Training(
            books=books, batches_of=batches_of, loss_of=loss_of, plan=plan, rng=rng
        )
        adam = _Adam(layers)
        return _run(training, adam, say, shelf, name)
    finally:
        books.close()
        for parameter, before in zip(model.parameters(), asked, strict=True):
            parameter.requires_grad_(before)


def _books(engine: str, model: torch.nn.Module, layers: Sequence[torch.nn.Linear]) -> Any:  # noqa: ANN401 - either engine
    if engine == "books":
        return Books(model, layers)
    from panelbench_path.hooks_engine import Hooks  # noqa: PLC0415 - opacus is an extra

    return Hooks(model, layers)


@dataclass(kw_only=True)
class _Training:
    """What a step needs, and what it saw."""

    books: Any
    batches_of: BatchesOf
    loss_of: LossOf
    plan: Plan
    rng: np.random.Generator
    losses: list[float] = field(default_factory=list)
    users: int = 0
    clipped: int = 0

    def noisy_sum(self, like: list[torch.Tensor]) -> list[torch.Tensor]:
        """Sample users, add their clipped gradients, add noise."""
        plan, rng = self.plan, self.rng
        chosen = np.flatnonzero(rng.random(plan.users) < plan.sampling)
        sums = [torch.zeros_like(weight) for weight in like]
        losses = []
        for batch in self.batches_of(chosen, plan.micro, rng):
            loss, norms = self.books.add_clipped(self.loss_of, batch, plan.clip, sums)
            losses.append(loss.float())
            self.clipped += int((norms > plan.clip).sum())
        self.users += len(chosen)
        if losses:
            self.losses.append(float(torch.cat(losses).mean()))
        for total in sums:
            if plan.stddev:
                noise = rng.standard_normal(tuple(total.shape), dtype=np.float32)
                total.add_(torch.from_numpy(noise).to(total.device), alpha=plan.stddev)
            total.div_(plan.sampling * plan.denominator)
        return sums

    def facts(self, seconds: float) -> dict[str, float]:
        """For the log; not private."""
        tenth = max(1, len(self.losses) // 10)
        losses = self.losses or [math.nan]
        return {
            "loss_first": float(np.mean(losses[:tenth])),
            "loss_last": float(np.mean(losses[-tenth:])),
            "clipped_share": self.clipped / max(self.users, 1),
            "tokens_per_second": self.books.tokens / max(seconds, 1e-9),
        }


def _run(
    training: _Training, adam: _Adam, say: Callable[[str], None], shelf: Shelf, name: str
) -> dict[str, float]:
    steps, rng = training.plan.steps, training.rng
    start = _resume(shelf, name, adam, rng, say)
    began = said = saved = time.monotonic()
    for step in range(start, steps):
        adam.step(training.noisy_sum(adam.weights), training.plan.rate_at(step), step + 1)
        now = time.monotonic()
        if now - said > SAY_EVERY_SECONDS or step + 1 == steps:
            said = now
            speed = training.books.tokens / max(now - began, 1e-9)
            left = (now - began) / (step + 1 - start) * (steps - step - 1)
            say(f"{name}: step {step + 1} of {steps}, {speed:.0f} tokens/s, {left:.0f} s left")
        if now - saved > KEEP_EVERY_SECONDS:
            saved = now
            _keep(shelf, name, adam, rng, step + 1)
    return training.facts(time.monotonic() - began)


def _keep(shelf: Shelf, name: str, adam: _Adam, rng: np.random.Generator, done: int) -> None:
    parts = {"weights": adam.weights, "means": adam.means, "squares": adam.squares}
    shelf.save(name, {"done": done, "generator": rng.bit_generator.state, **parts})


def _resume(
    shelf: Shelf, name: str, adam: _Adam, rng: np.random.Generator, say: Callable[[str], None]
) -> int:
    """Take up the last checkpoint, generator included; how many steps it has."""
    found = shelf.load(name)
    if found is None:
        return 0
    adam.weights, adam.means, adam.squares = (
        [part.to(weight.device) for part, weight in zip(found[key], adam.weights, strict=True)]
        for key in ("weights", "means", "squares")
    )
    rng.bit_generator.state = found["generator"]
    adam.put()
    say(f"{name} goes on from step {found['done']}")
    return int(found["done"])
