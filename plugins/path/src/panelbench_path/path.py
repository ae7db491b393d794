"""PATH: a language model tuned with DP-SGD on serialised user tables, and private selection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from panelbench import (
    USER_TABLES,
    DataError,
    Established,
    GaussianEvent,
    Guarantee,
    Mechanism,
    NeighboringRelation,
    Notion,
    PrivacyUnit,
    Role,
    SampledGaussianEvent,
    SyntheticTables,
    UserTables,
)
from panelbench.accounting import calibrate, mu_allowed
from panelbench_path import models, shipped
from panelbench_path.grids import UNITS_PER_DAY
from panelbench_path.selection import (
    CHOICES,
    DESCRIPTIONS,
    chosen,
    described,
    vote_sensitivity,
    votes_of,
)
from panelbench_path.serialise import Form

if TYPE_CHECKING:
    from panelbench import Budget, Dataset, Event, Schema


@dataclass(frozen=True, kw_only=True)
class _Noise:
    """Standard deviations, and what they are charged.

    Attributes:
        lengths: Of each bin of the histogram of lengths.
        votes: Of each candidate's votes.
        gradients: Of each coordinate of the sum of clipped gradients.
        ledger: The events.
    """

    lengths: float = 0.0
    votes: float = 0.0
    gradients: float = 0.0
    ledger: tuple[Event, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Path(Mechanism):
    """The system of Rosenblatt et al. 2026 (arXiv:2602.02766), with a small model by default.

    Tables are written as text (`serialise`); a language model learns, by DP-SGD on low-rank
    adapters, to write the next row or the end; it then writes more tables than are wanted, row by
    row, and users vote for those that are kept. Each step uses one split point of each sampled
    user's table. What the schema makes certain (names, separators, digits that cannot follow) is
    neither learnt nor drawn, and the vocabulary is pruned to what the schema can reach.

    Formal guarantee:
        Privacy unit: one user with all rows. Relation: the budget's. Three pieces read private
        data, each the users of `train` only. (1) The histogram of lengths, to which a user adds
        one: L2 sensitivity 1 under add-or-remove-one, sqrt(2) under replace-one; Gaussian noise. It
        gives the number of tables, DP-SGD's divisor, the weights of split points and (`ends`) the
        lengths of written tables, so none of them is read off the data.
        (2) DP-SGD: in every step each user takes part by itself with a
        public probability (`batch` over the schema's nominal number of users), with one example
        that follows from the user's own table and (1); its gradient over all trained weights is
        clipped to L2 norm `clip`: a Poisson-sampled Gaussian mechanism. Losses are
        means over a user's own tokens. (3) Votes: each user adds one to `votes` candidates, chosen
        from the user's own table and the candidates, which post-process (1) and (2): L2
        sensitivity sqrt(votes), or sqrt(2 votes) under replace-one; Gaussian noise. The pieces
        compose adaptively; the noise of (2) is calibrated so that the ledger of all three settles
        to the budget with its own delta (privacy loss distributions). Public: schema with its
        nominal number of users, parameters, the pre-trained model, made from made-up tables or,
        where `model` names one, from what its makers used.

    Attributes:
        model: A local Hugging Face folder or GGUF file; empty for the shipped model.
        digest: SHA-256 that the model must have (`models.digest`); anything where empty. With it,
            what a cell is known by includes what is in the file.
        target: "rest" (all that remains, the paper's definition) or "row" (the next row, as the
            paper infers, which gives a user's gradient an eighth of the tokens).
        start: Probability of the split point 0, the header alone; the paper's is 0.1.
        pool: Where other split points come from: "lengths" (how many tables reach each, from the
            noisy histogram) or "range" (uniform up to the schema's most rows). They are taken among
            those before a row of the user's own table or, where the model says where tables end,
            among all.
        context: Most tokens of a text; older rows are forgotten.
        batch: Expected users in a step, by the schema's nominal number of users.
        sampling: Largest probability with which a user takes part in a step: small data get smaller
            steps, not more passes.
        users: Nominal number of users where the schema has none; public.
        steps: Steps of DP-SGD.
        clip: Clipping norm of a user's gradient.
        rate: Largest learning rate.
        rank: Of the adapters on the seven projections; their alpha is twice that.
        micro: Users in the model at once.
        engine: "books" or "opacus", which give the same sums.
        dtype: "float32" or "bfloat16", of a model and its adapters.
        length_share: Share of the budget (of mu^2) for the histogram of lengths.
        selection_share: Share of the budget (of mu^2) for votes; the paper's 0.5 of epsilon 2 is
            about 0.07. 0 for no selection.
        votes: Candidates that each user votes for.
        candidates: Tables written for each that is kept; 1 for no selection.
        choice: "top" (most votes, the paper's) or "proportional" (drawn by votes).
        description: What votes compare: "rows" (mean row, blind to order as in the paper) or
            "course" (also spread, changes and the first row).
        constrained: Whether only legal text can be drawn; otherwise rows are parsed and a table
            ends at the first that cannot be read.
        temperature: Of drawing; the paper's code has 0.7.
        top_p: Of drawing; the paper's code has 0.9.
        ends: Where a table ends under the grammar: "lengths" (drawn from the noisy histogram) or
            "model" (where the model says so, as in the paper).
        static: Names of columns that are constant within a table, for the parser; public.
        tables: Number of tables to release; the noisy number of users where unset.
        max_tables: Public upper limit to it.
        written: Tables that are written at once.
    """

    name: ClassVar[str] = "path"
    kind: ClassVar[str] = USER_TABLES

    model: str = ""
    digest: str = ""
    target: str = "rest"
    start: float = 0.5
    pool: str = "lengths"
    context: int = 192
    batch: float = 64.0
    sampling: float = 0.032
    users: int = 1000
    steps: int = 160
    clip: float = 0.1
    rate: float = 0.03
    rank: int = 4
    micro: int = 32
    engine: str = "books"
    dtype: str = "float32"
    length_share: float = 0.02
    selection_share: float = 0.07
    votes: int = 10
    candidates: int = 2
    choice: str = "top"
    description: str = "rows"
    constrained: bool = True
    ends: str = "lengths"
    temperature: float = 1.0
    top_p: float = 1.0
    static: tuple[str, ...] = ()
    tables: int | None = None
    max_tables: int = 2_000
    written: int = 500

    def __post_init__(self) -> None:
        object.__setattr__(self, "static", tuple(self.static))
        for name, known in (
            ("target", ("row", "rest")),
            ("pool", ("lengths", "range")),
            ("engine", ("books", "opacus")),
            ("dtype", ("float32", "bfloat16")),
            ("choice", CHOICES),
            ("description", DESCRIPTIONS),
            ("ends", ("lengths", "model")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}.")
        for name in ("batch", "clip", "rate", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}.")
        for name in (
            *("context", "users", "steps", "rank", "micro", "votes", "candidates"),
            *("max_tables", "written"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 < self.sampling <= 1:
            raise ValueError(f"sampling must lie in (0, 1], got {self.sampling}.")
        if self.tables is not None and self.tables < 1:
            raise ValueError(f"tables must be at least 1 or left out, got {self.tables}.")
        if not (0 <= self.start <= 1 and 0 < self.top_p <= 1):
            raise ValueError(
                f"start must lie in [0, 1] and top_p in (0, 1], got {self.start}, {self.top_p}."
            )
        if not (self.length_share > 0 and 0 <= self.selection_share < 0.9 - self.length_share):
            raise ValueError(
                f"length_share must be positive, selection_share at least 0, and both together "
                f"below 0.9, got {self.length_share} and {self.selection_share}."
            )

    @property
    def selects(self) -> bool:
        """Whether there is a selection step."""
        return self.candidates > 1 and self.selection_share > 0

    def supports(self, schema: Schema, budget: Budget) -> str | None:
        """Needs a budget that sampled Gaussians can be settled in, public bounds, known times."""
        private = self.role is Role.PRIVATE
        if private and budget.notion is Notion.UNLIMITED:
            return "needs a limited budget; path-nonprivate runs without one"
        if private and budget.notion is Notion.ZERO_CONCENTRATED_DP:
            return "no zCDP bound is known for Poisson-sampled Gaussian noise"
        replaced = budget.relation is NeighboringRelation.REPLACE_ONE
        if private and budget.notion is Notion.RENYI_DP and replaced:
            return "no RDP bound is known for Poisson-sampled Gaussian noise under replace-one"
        if not schema.regular and schema.time_unit not in UNITS_PER_DAY:
            return f"needs times in one of {sorted(UNITS_PER_DAY)}, got '{schema.time_unit}'"
        missing = [c.name for c in schema.numeric if c.lower is None or c.upper is None]
        return f"needs public bounds for {missing}" if missing else None

    def probability(self, schema: Schema) -> float:
        """Probability with which each user takes part in a step; public."""
        return min(self.sampling, self.batch / (schema.nominal_users or self.users))

    def noise(self, schema: Schema, budget: Budget) -> _Noise:
        """How much noise each piece needs, and the ledger; from public facts alone."""
        if budget.notion is Notion.UNLIMITED:
            return _Noise()
        mu = mu_allowed(budget)
        one = vote_sensitivity(1, budget.relation)
        many = vote_sensitivity(self.votes, budget.relation)
        lengths = one / (mu * math.sqrt(self.length_share))
        votes = many / (mu * math.sqrt(self.selection_share)) if self.selects else 0.0
        fixed = (
            GaussianEvent(stddev=lengths, l2_sensitivity=one),
            *((GaussianEvent(stddev=votes, l2_sensitivity=many),) if votes else ()),
        )

        def ledger(multiplier: float) -> tuple[Event, ...]:
            steps = SampledGaussianEvent(
                stddev=multiplier * self.clip,
                clipping_norm=self.clip,
                sampling_probability=self.probability(schema),
                count=self.steps,
            )
            return (*fixed, steps)

        multiplier = calibrate(budget, ledger)
        return _Noise(
            lengths=lengths,
            votes=votes,
            gradients=multiplier * self.clip,
            ledger=ledger(multiplier),
        )

    def release(
        self, dataset: Dataset, budget: Budget, *, rng: np.random.Generator
    ) -> SyntheticTables:
        """Tune, write and select.

        Raises:
            DataError: Where the model cannot be loaded, does not fit into memory or into `context`,
                or writes no table that can be read.
        """
        if not isinstance(dataset, UserTables):
            raise DataError(f"{self.name} needs user tables, got {dataset.kind}.")
        try:
            return self._released(dataset, budget, rng)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error).lower():
                raise
            raise DataError(
                f"The model does not fit into memory with {self.micro} users at once; give a "
                f'smaller `micro` or `written`, dtype = "bfloat16", or a smaller model.'
            ) from error

    def _released(
        self, dataset: UserTables, budget: Budget, rng: np.random.Generator
    ) -> SyntheticTables:
        schema = dataset.schema
        digest = models.digest(self.model)
        if self.digest not in ("", digest):
            raise DataError(
                f"The model '{self.model or shipped.WEIGHTS.name}' has the SHA-256 {digest}, "
                f"expected {self.digest}; take the model that was meant, or correct `digest`."
            )
        noise = self.noise(schema, budget)
        form = Form.of(schema)
        real = form.encode(dataset.train)
        spread = schema.max_rows - schema.min_rows + 1
        counts = np.bincount([len(t) - schema.min_rows for t in real], minlength=spread)
        lengths = counts + rng.normal(0.0, 1.0, spread) * noise.lengths
        estimated = max(1.0, float(lengths.sum()))
        count = self.tables or min(max(1, round(estimated)), self.max_tables)
        total = count * self.candidates if self.selects else count
        try:
            from panelbench_path.tuning import tuned_tables  # noqa: PLC0415 - imports torch, an extra
        except ImportError as error:
            raise DataError(
                "path needs the extra `pip install panelbench-path[learnt,models]`."
            ) from error
        written = tuned_tables(
            self,
            form,
            real,
            lengths=lengths,
            estimated=estimated,
            length_stddev=noise.lengths,
            stddev=noise.gradients,
            total=total,
            rng=rng,
        )
        if not written:
            raise DataError(
                f"The model wrote {total} tables and none can be read; give constrained = true."
            )
        kept = written
        if self.selects and len(written) > count:
            votes = min(self.votes, len(written))
            exact = np.zeros(len(written))
            if real:
                own = described(real, form, self.description)
                exact = votes_of(own, described(written, form, self.description), votes)
            noisy = exact + rng.normal(0.0, 1.0, len(written)) * noise.votes
            kept = [written[i] for i in chosen(noisy, count, self.choice, rng)]
        private = budget.notion is not Notion.UNLIMITED
        return SyntheticTables(
            schema=schema,
            frame=form.decode(kept[:count]),
            guarantee=Guarantee(
                established=Established.SETTLED if private else Established.NONE,
                unit=PrivacyUnit.USER,
                relation=budget.relation,
                ledger=noise.ledger,
            ),
            info={
                "model_sha256": digest,
                "sampling_probability": self.probability(schema),
                "noise_multiplier": noise.gradients / self.clip,
                "vote_stddev": noise.votes,
                "estimated_users": estimated,
                "written": total,
                "readable": len(written),
            },
        )


@dataclass(frozen=True, kw_only=True)
class PathNonprivate(Path):
    """`path` with an unlimited budget: no noise, no clipping, every count exact. The ceiling.

    Formal guarantee:
        None. The cost of privacy is what `path` loses against this.

    Parameters are those of `path`; `clip` changes nothing, and a share of the budget matters only
    where 0 leaves a part out.
    """

    name: ClassVar[str] = "path-nonprivate"
    role: ClassVar[Role] = Role.REFERENCE
