"""The alternating algorithm of the paper: PPO for the policy, gradients for the estimator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from panelbench_fusion.checkpoint import NOWHERE, Checkpoint, Dice
from panelbench_fusion.networks import Critic, initialise
from panelbench_fusion.policy import SUMMARY
from panelbench_fusion.training import CHECKS, Progress, batches, normal

if TYPE_CHECKING:
    from collections.abc import Callable

    from panelbench_fusion.checkpoint import Shelf, Stateful
    from panelbench_fusion.rollout import System, Trace
    from panelbench_fusion.training import Judge, Pool

LAMBDA = 0.95
EPOCHS = 4
MINIBATCHES = 4
CLIP = 0.2
VALUE_WEIGHT = 0.5
ENTROPY_WEIGHT = 1e-3
RATE = 1e-3
GRADIENT_NORM = 0.5
MOST_DIVERGENCE = 0.02
LOG_STDDEV = -0.7
WARM_SHARE = 0.3
"""Of the estimator's updates that come before the first of the policy."""


@dataclass(frozen=True, kw_only=True)
class Alternating:
    """Settings of Algorithm 2.

    Attributes:
        iterations: Updates of the policy.
        trajectories: Paths for each of them.
        updates: Gradient steps of the estimator in all.
        batch: Windows in a batch of the estimator.
        estimator_rate: Step size of Adam for the estimator, falling to 0 along a cosine.
    """

    iterations: int
    trajectories: int
    updates: int
    batch: int
    estimator_rate: float


@dataclass(frozen=True, kw_only=True)
class Experience:
    """What PPO learns from; one row a path and step, the last step, which has no choice, left out.

    Attributes:
        step: k.
        public: Public states as vectors.
        seen: The same for the critic, with the true state.
        wish: u_k as applied.
        log_density: Of u_k under the policy that applied it.
        advantage: Normalised.
        target: Of the critic.
    """

    step: torch.Tensor
    public: torch.Tensor
    seen: torch.Tensor
    wish: torch.Tensor
    log_density: torch.Tensor
    advantage: torch.Tensor
    target: torch.Tensor

    def part(self, rows: torch.Tensor) -> Experience:
        """Some of the rows."""
        return Experience(**{name: values[rows] for name, values in vars(self).items()})


def advantages(rewards: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Generalised advantages without discount over a finite horizon; all of shape (..., steps)."""
    after = torch.cat([values[..., 1:], torch.zeros_like(values[..., :1])], dim=-1)
    surprise = rewards + after - values
    found = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[..., 0])
    for k in range(rewards.shape[-1] - 1, -1, -1):
        running = surprise[..., k] + LAMBDA * running
        found[..., k] = running
    return found


class Learner:
    """A stochastic version of the policy with its critic.

    Args:
        system: Whose policy learns.
        state: Training states, for the scales.
        generator: Of weights, exploration and minibatches.
    """

    def __init__(self, system: System, state: torch.Tensor, generator: torch.Generator) -> None:
        self._system = system
        self._generator = generator
        self._mean, self._variance = float(state.mean()), float(state.var()) + 1e-12
        if system.policy.net is None:
            raise ValueError("A policy without a network has nothing to learn.")
        self._net = system.policy.net
        device = state.device
        self._log_stddev = nn.Parameter(torch.tensor(LOG_STDDEV, device=device))
        inputs = SUMMARY + system.estimator.cell.hidden_size + 1
        self._critic = Critic(inputs=inputs, width=64)
        initialise(self._critic, generator)
        self._critic.to(device)
        self._trained = [
            *self._net.parameters(),
            self._log_stddev,
            *self._critic.parameters(),
        ]
        self._optimizer = torch.optim.Adam(self._trained, lr=RATE)

    def parts(self) -> dict[str, Stateful]:
        """What learning changes besides the policy."""
        return {
            "critic": self._critic,
            "stddev": nn.ParameterList([self._log_stddev]),
            "learner": self._optimizer,
        }

    def explore(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """Turns a wish into one that is drawn around it."""
        stddev = float(self._log_stddev.detach().exp())

        def drawn(wish: torch.Tensor) -> torch.Tensor:
            return wish + stddev * normal(wish, self._generator)

        return drawn

    def _log_density(
        self, wish: torch.Tensor, step: torch.Tensor, public: torch.Tensor
    ) -> torch.Tensor:
        deviation = (wish - self._system.policy.wish(step, public)) / self._log_stddev.exp()
        return -0.5 * deviation.square() - self._log_stddev - 0.5 * math.log(2 * math.pi)

    def experience(self, trace: Trace, state: torch.Tensor) -> Experience:
        """Advantages and targets of a rollout; `state` has the shape (paths, steps)."""
        steps = state.shape[-1]
        with torch.no_grad():
            estimates = torch.stack(trace.estimates, -1)
            rewards = -(estimates - state).square() / self._variance
            public = torch.stack(trace.states, -2)
            level = (state - self._mean) / math.sqrt(self._variance)
            seen = torch.cat([public, level[..., None]], dim=-1)
            values = self._critic(seen)
            advantage = advantages(rewards, values)
            target = advantage + values
            wish = torch.stack(trace.wishes, -1)
            step = torch.arange(steps, device=state.device).expand(state.shape)
            log_density = self._log_density(wish, step, public)
            chosen = slice(0, steps - 1)
            free = advantage[:, chosen]
            advantage = (advantage - free.mean()) / (free.std() + 1e-8)
            return Experience(
                step=step[:, chosen].flatten(),
                public=public[:, chosen].flatten(0, 1),
                seen=seen[:, chosen].flatten(0, 1),
                wish=wish[:, chosen].flatten(),
                log_density=log_density[:, chosen].flatten(),
                advantage=advantage[:, chosen].flatten(),
                target=target[:, chosen].flatten(),
            )

    def learn(self, all_: Experience, *, left: float) -> None:
        """A few epochs of the clipped surrogate, equation (23).

        Args:
            all_: Fresh experience.
            left: Share of training that is left, which scales the step size and the entropy bonus.
        """
        for group in self._optimizer.param_groups:
            group["lr"] = RATE * left
        rows = len(all_.wish)
        for _ in range(EPOCHS):
            order = torch.randperm(rows, generator=self._generator).to(all_.wish.device)
            for some in order.tensor_split(MINIBATCHES):
                part = all_.part(some)
                log_density = self._log_density(part.wish, part.step, part.public)
                change = log_density - part.log_density
                ratio = change.exp()
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                surrogate = torch.minimum(ratio * part.advantage, clipped * part.advantage).mean()
                value = (self._critic(part.seen) - part.target).square().mean()
                loss = VALUE_WEIGHT * value - surrogate - ENTROPY_WEIGHT * left * self._log_stddev
                self._optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(self._trained, GRADIENT_NORM)
                self._optimizer.step()
            with torch.no_grad():
                change = self._log_density(all_.wish, all_.step, all_.public) - all_.log_density
                divergence = float((change.exp() - 1 - change).mean())
            if divergence > MOST_DIVERGENCE:
                return


def train_alternating(
    system: System,
    pool: Pool,
    judge: Judge,
    how: Alternating,
    *,
    generator: torch.Generator,
    shelf: Shelf = NOWHERE,
) -> None:
    """Estimator with the policy fixed, policy with the estimator fixed, in turn; keep the best.

    The policy explores in training, with public randomness; the best checkpoint on validation
    windows, and the release, take the mean action. Arguments are as in `train_pathwise`.
    """
    learner = Learner(system, pool.state, generator)
    trained = list(system.estimator.parameters())
    optimizer = torch.optim.AdamW(trained, lr=how.estimator_rate, weight_decay=1e-3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, how.updates)
    checkpoint = Checkpoint(
        shelf,
        "alternating",
        {
            "policy": system.policy,
            "estimator": system.estimator,
            "optimizer": optimizer,
            "cosine": cosine,
            "judge": judge,
            "dice": Dice(generator),
            **learner.parts(),
        },
    )
    before = checkpoint.resume()
    if not before:
        judge.look()
    scale = judge.history[0]
    progress = Progress("alternating", how.iterations)
    every = max(1, how.iterations // CHECKS)
    warm = round(WARM_SHARE * how.updates)

    def due_after(iterations: int) -> int:
        if not iterations:
            return 0
        return warm + (how.updates - warm) * iterations // how.iterations

    done = due_after(before)
    for iteration in range(before, how.iterations):
        due = due_after(iteration + 1)
        for state, channel in batches(pool, how.batch, due - done, generator):
            trace = system.rollout(channel, (how.batch,), explore=learner.explore())
            loss = (torch.stack(trace.estimates, -1) - state).square().mean() / scale
            optimizer.zero_grad()
            torch.autograd.backward(loss, inputs=trained)
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            cosine.step()
        done = due
        for state, channel in batches(pool, how.trajectories, 1, generator):
            with torch.no_grad():
                paths = (how.trajectories,)
                trace = system.rollout(channel, paths, explore=learner.explore())
            learner.learn(learner.experience(trace, state), left=1 - iteration / how.iterations)
        if (iteration + 1) % every == 0 or iteration + 1 == how.iterations:
            judge.look()
            checkpoint.keep(iteration + 1)
        progress.say(iteration + 1, judge.history[-1])
    judge.restore()
