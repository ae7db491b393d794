"""The mechanism of the paper: a learnt policy that spends the budget over time."""

from __future__ import annotations

import dataclasses
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from panelbench import SENSOR_STREAMS, Mechanism, NeighboringRelation, Notion
from panelbench_fusion.feature import unfit
from panelbench_fusion.gain import constant_gains
from panelbench_fusion.pipeline import check_weight, plan, streams

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Estimates, Schema, SensorStreams
    from panelbench_fusion.checkpoint import Shelf
    from panelbench_fusion.feature import Feature
    from panelbench_fusion.online import Prepared

STARTS = ("open-loop", "uniform")
FEATURES = ("learnt", "fixed")
AFTERWARDS = ("draws", "trip_windows")
"""Parameters that training does not depend on."""
REPLACE = NeighboringRelation.REPLACE_ONE
PUBLIC = (
    "the schema with its bounds",
    "when windows start and how long they are",
    "feature, gain policy and estimator, trained on training and validation windows",
    "people in training and validation windows are not protected",
    "the gains, which anybody can compute from the fusion outputs before them",
)


@dataclass(frozen=True, kw_only=True)
class Trained(Mechanism):
    """What the trained mechanisms share; not registered itself.

    Attributes:
        draws: Independent noise draws for each test window.
        count_weight: As in `Uniform`.
        values: As in `Uniform`.
        feature: "learnt", from a table over all bounded columns (`TabledFeature`), or "fixed", that
            of `Uniform`.
        feature_updates: Gradient steps of the learnt feature; fewer like `updates`.
        trip_windows: As in `Uniform`.
        updates: Gradient steps of the estimator, at 10,000 training steps (windows times steps)
            or more; proportionally fewer with less to learn from.
        batch: Windows in a batch.
        rank: Latent variables of the closed-form belief.
        memory: Width of the GRU.
    """

    kind: ClassVar[str] = SENSOR_STREAMS

    draws: int = 20
    count_weight: float | None = None
    values: tuple[str, ...] = ("speed",)
    feature: Literal["learnt", "fixed"] = "learnt"
    feature_updates: int = 200
    trip_windows: int = 4
    updates: int = 100
    batch: int = 96
    rank: int = 12
    memory: int = 32

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        check_weight(self.count_weight)
        if self.feature not in FEATURES:
            raise ValueError(f"feature must be one of {list(FEATURES)}, got {self.feature!r}.")
        for field in (
            *("draws", "trip_windows", "updates", "feature_updates"),
            *("batch", "rank", "memory"),
        ):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, got {getattr(self, field)}.")

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs the value columns with public bounds and a limited budget."""
        if budget.notion is Notion.UNLIMITED:
            return "needs a limited budget; `nonprivate` is the same without noise"
        if importlib.util.find_spec("torch") is None:
            return "needs torch; install panelbench-fusion[learnt]"
        return unfit(schema, self.values)

    def release(self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator) -> Estimates:
        """Train on training windows, then fuse the test windows step by step and estimate."""
        from panelbench_fusion import online, training  # noqa: PLC0415 - torch loads only here

        training.use_threads()
        data = streams(dataset)
        steps = data.schema.max_rows
        shelf = self._shelf(data, budget, rng)

        def gains_of(feature: Feature) -> np.ndarray:
            sensitivity = feature.l2_sensitivity(budget.relation)
            return constant_gains(budget, steps=steps, l2_sensitivity=sensitivity)

        chosen = plan(
            data,
            count_weight=self.count_weight,
            values=self.values,
            gains_of=gains_of,
            noise_variance=1.0,
            # A learnt feature ends lower on validation windows from one that is not centred.
            relation=budget.relation if self.feature == "fixed" else REPLACE,
        )
        feature: online.BoundedFeature = chosen.feature
        looks: list[float] = []
        if self.feature == "learnt":
            feature, looks = online.learn_feature(
                data, chosen, budget, updates=self.feature_updates, rng=rng, shelf=shelf
            )
        width, start = self._policy()
        prepared = online.prepare(
            data,
            feature,
            chosen.how,
            budget,
            online.Shape(rank=self.rank, memory=self.memory, width=width, start=start),
            rng=rng,
            shelf=shelf,
        )
        self._train(prepared, shelf)
        return online.release(
            data,
            feature,
            prepared.trained(),
            budget,
            draws=self.draws,
            trip_windows=self.trip_windows,
            public=PUBLIC,
            info={
                "feature_validation_mse": looks,
                "count_weight": chosen.feature.count_weight,
                "shrinkage": chosen.how.shrinkage,
                "ridge": chosen.how.ridge,
                "start_shares": [float(share) for share in prepared.shares],
                "validation_mse": prepared.judge.history,
                "validation_mse_best": prepared.judge.best,
            },
            rng=rng,
        )

    def _shelf(self, data: SensorStreams, budget: Budget, rng: np.random.Generator) -> Shelf:
        """Where checkpoints of this training lie; test windows do not tell."""
        from panelbench_fusion import checkpoint, online  # noqa: PLC0415 - torch loads only here

        known = np.concatenate(online.known_episodes(data))
        parameters = dataclasses.asdict(self)
        for name in AFTERWARDS:
            del parameters[name]
        return checkpoint.shelf_for(
            (data.split[known], data.state[known], data.observations[known], data.present[known]),
            (self.name, sorted(parameters.items()), budget, data.schema),
            rng.bit_generator.state,
        )

    def _policy(self) -> tuple[int, Literal["open-loop", "uniform"]]:
        """Hidden width of the policy, 0 for a fixed schedule, and the schedule it starts from."""
        return 0, "uniform"

    def _train(self, prepared: Prepared, shelf: Shelf) -> None:
        """Train what is to be trained."""
        self._pathwise(prepared, shelf, policy_rate=0.0)

    def _pathwise(self, prepared: Prepared, shelf: Shelf, *, policy_rate: float) -> None:
        from panelbench_fusion import training  # noqa: PLC0415 - torch loads only here

        training.train_pathwise(
            prepared.system,
            prepared.train,
            prepared.judge,
            training.Pathwise(batch=self.batch, estimator_rate=3e-3, policy_rate=policy_rate),
            updates=training.updates_for(self.updates, prepared.train.state.numel()),
            generator=prepared.generator,
            shelf=shelf,
        )


def check_start(start: str) -> None:
    """Refuse a schedule that is unknown."""
    if start not in STARTS:
        raise ValueError(f"start must be one of {list(STARTS)}, got {start!r}.")


@dataclass(frozen=True, kw_only=True)
class Adaptive(Trained):
    """Fusion with a learnt gain policy, trained through the rollout.

    Algorithm 1 and equations (16), (20)-(22) of Weng and Nekouei 2026 (arXiv:2602.21525), as
    reconstructed. Z_k = g_k S_k + W_k with S_k the sum over present sensors of f, by default a
    table over the values a sensor may report, learnt so that the error of the best linear filter
    is small; g_k comes from a network that sees the share of the budget that is left, k / K, a
    Gaussian belief about the state given Z_1 .. Z_{k-1}, and the memory of the estimator. The
    estimate is the best linear one given the gains, plus a GRU's correction. A scalar gain loses
    nothing against one for each coordinate: where |f| is bounded in L2 the charge is that of the
    largest, so all may as well be as large.

    Rather than by reinforcement learning (`AdaptivePpo`) policy and estimator are trained by the
    gradient through the whole rollout, as the data do not react to gains and the noise is
    reparameterised. The policy starts at the schedule that is best for the fitted Gaussian model
    among those fixed ahead, the correction at 0; the weights that are kept are the best on
    validation windows.

    Formal guarantee:
        Privacy unit: everything one sensor reports in one test window. Relation: the budget's; the
        L2 sensitivity D of S_k is that of the feature (`TabledFeature.l2_sensitivity`: the largest
        norm of a row of its table, under replace-one also the largest distance between two; D = 1
        for the fixed one). Public: the schema,
        the windows, and everything trained on training and validation windows, whose people are
        not protected. Theorem (Gaussian mechanisms chosen adaptively under a bound on the sum of
        squares: Smith and Thakurta 2022, arXiv:2210.17520; Koskela et al. 2023, arXiv:2209.15596;
        the Renyi filter of Feldman and Zrnic 2021 for the order alpha): where g_k is a function of
        Z_1 .. Z_{k-1} and the sum of q_k = (g_k D)^2 is at most Q on every path, the outputs are
        mu-GDP with mu = sqrt(Q), hence (alpha', alpha' Q / 2)-RDP for every alpha'. Proof sketch:
        fix two neighboring windows with densities p and p' of the outputs. Given Z_1 .. Z_{k-1}
        both runs apply the same g_k, so Z_k is normal with the same covariance and means at most
        g_k D apart. Where less than Q is spent in the end, add an imaginary output that spends the
        rest. Then log(p / p') is a martingale plus Q / 2, whose increments are normal given the
        past with variances that add up to Q on every path; a Brownian motion run for the fixed
        time Q has the same law, so the pair is distinguished no better than N(0, 1) and
        N(sqrt(Q), 1). For the order alpha': E[(p / p')^alpha' exp(-alpha' (alpha' - 1) sum q / 2)]
        is a supermartingale under p', so at most 1. The bound is enforced by `Ledger`, which clips
        each gain at what is left, and rounds gains down and charges up; its exact sum never exceeds
        Q. Gains come from `policy`, which can hold nothing private; `OnlineChannel` alone holds the
        sums and charges a gain before it applies it. Estimates are post-processing. A sensor that
        reports in W windows is protected at W times B_G; the note prints both.

    The draws of `Estimates` are independent runs for the sake of evaluation; whoever publishes more
    than one pays for each. Noise comes from numpy's generator in floating point: good for a
    benchmark, not for deployment.

    Attributes:
        draws: Independent noise draws for each test window.
        count_weight: As in `Uniform`.
        values: As in `Uniform`.
        feature: "learnt", from a table over all bounded columns (`TabledFeature`), or "fixed", that
            of `Uniform`.
        feature_updates: Gradient steps of the learnt feature; fewer like `updates`.
        trip_windows: As in `Uniform`.
        updates: Gradient steps, at 10,000 training steps (windows times steps) or more;
            proportionally fewer with less to learn from.
        batch: Windows in a batch.
        rank: Latent variables of the closed-form belief.
        memory: Width of the GRU.
        width: Hidden width of the policy.
        start: The schedule the policy starts from, "open-loop" or "uniform".
    """

    name: ClassVar[str] = "adaptive"

    width: int = 32
    start: Literal["open-loop", "uniform"] = "open-loop"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start(self.start)
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}.")

    def _policy(self) -> tuple[int, Literal["open-loop", "uniform"]]:
        return self.width, self.start

    def _train(self, prepared: Prepared, shelf: Shelf) -> None:
        self._pathwise(prepared, shelf, policy_rate=3e-3)


@dataclass(frozen=True, kw_only=True)
class UniformLearnt(Trained):
    """The constant gain of `Uniform` with the learnt estimator of `Adaptive`, trained as long.

    Equations (17) and (22) of Weng and Nekouei 2026 (arXiv:2602.21525), as reconstructed. What
    `Adaptive` gains over it is due to how the budget is spent, not to the estimator.

    Formal guarantee:
        That of `Uniform`: privacy unit, relation, sensitivity and what is public are the same, and
        so is the theorem, as gains that are fixed ahead are a case of `Adaptive`'s. The ledger is
        one event with mu = sqrt(Q).

    Attributes:
        draws: Independent noise draws for each test window.
        count_weight: As in `Uniform`.
        values: As in `Uniform`.
        feature: "learnt", from a table over all bounded columns (`TabledFeature`), or "fixed", that
            of `Uniform`.
        feature_updates: Gradient steps of the learnt feature; fewer like `updates`.
        trip_windows: As in `Uniform`.
        updates: As in `Adaptive`.
        batch: As in `Adaptive`.
        rank: As in `Adaptive`.
        memory: As in `Adaptive`.
    """

    name: ClassVar[str] = "uniform-learnt"
