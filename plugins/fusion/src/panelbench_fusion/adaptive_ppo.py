"""The mechanism of the paper with the training of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from panelbench_fusion.adaptive import Trained, check_start

if TYPE_CHECKING:
    from panelbench_fusion.checkpoint import Shelf
    from panelbench_fusion.online import Prepared


@dataclass(frozen=True, kw_only=True)
class AdaptivePpo(Trained):
    """Fusion with a learnt gain policy, trained by proximal policy optimisation.

    Algorithm 2 and equation (23) of Weng and Nekouei 2026 (arXiv:2602.21525), as reconstructed:
    the estimator by gradient with the policy fixed, and the policy by PPO-clip (Schulman et al.
    2017) with the estimator fixed, in turn. Networks, online loop and ledger are those of
    `Adaptive`; the policy starts at the uniform schedule. The reward of step k is
    -(X_k - Xhat_k)^2 over the variance of X, without discount, advantages with lambda = 0.95; the
    critic, which is not deployed, sees the true state of training windows besides.

    Formal guarantee:
        That of `Adaptive`: privacy unit, relation, sensitivity, what is public, theorem and ledger
        are the same. How a policy was trained is no part of the proof, as training reads training
        and validation windows only, whose people are not protected. In the release the policy takes
        its mean action, and the gain that is applied is the one that is charged.

    Attributes:
        draws: Independent noise draws for each test window.
        count_weight: As in `Uniform`.
        values: As in `Uniform`.
        feature: As in `Adaptive`.
        feature_updates: As in `Adaptive`.
        trip_windows: As in `Uniform`.
        updates: Gradient steps of the estimator, as in `Adaptive`.
        batch: Windows in a batch of the estimator.
        rank: Latent variables of the closed-form belief.
        memory: Width of the GRU.
        width: Hidden width of the policy.
        iterations: Updates of the policy, at 10,000 training steps or more; proportionally fewer
            with less to learn from.
        trajectories: Paths for each update of the policy.
        start: The schedule the policy starts from, "uniform" or "open-loop".
    """

    name: ClassVar[str] = "adaptive-ppo"

    width: int = 64
    iterations: int = 50
    trajectories: int = 256
    start: Literal["open-loop", "uniform"] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start(self.start)
        for field in ("width", "iterations", "trajectories"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, got {getattr(self, field)}.")

    def _policy(self) -> tuple[int, Literal["open-loop", "uniform"]]:
        return self.width, self.start

    def _train(self, prepared: Prepared, shelf: Shelf) -> None:
        from panelbench_fusion import ppo, training  # noqa: PLC0415 - torch loads only here

        size = prepared.train.state.numel()
        ppo.train_alternating(
            prepared.system,
            prepared.train,
            prepared.judge,
            ppo.Alternating(
                iterations=training.updates_for(self.iterations, size),
                trajectories=self.trajectories,
                updates=training.updates_for(self.updates, size),
                batch=self.batch,
                estimator_rate=3e-3,
            ),
            generator=prepared.generator,
            shelf=shelf,
        )
