"""An empirical lower bound on the epsilon of a mechanism, to hold its claim against.

Two games. In pairs, the mechanism runs again and again on two neighboring datasets (`neighbors`).
Some of the releases choose how to tell them apart, by one statistic (`traces`) or a combination of
all; the others are counted, and the counts bound epsilon (`evidence`). Where a release is dear it
runs on one dataset with many canaries, each in it or not by a coin of its own, and the number of
right guesses bounds epsilon.

Where the claim is a ledger of Gaussian events it is mu-GDP, and the counts also bound mu: a much
sharper test of that claim at the same number of releases. Each bound is too high with probability
at most 1 %, all choices included.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from panelbench import accounting
from panelbench.errors import BudgetError, DataError, PanelbenchError
from panelbench.evidence import Bet, Discriminant, Hits, best_bet, guessed_epsilon
from panelbench.neighbors import canary_tables, stream_windows, table_pair
from panelbench.privacy import Established, Notion
from panelbench.release import Estimates, SyntheticTables
from panelbench.schema import USER_TABLES
from panelbench.traces import as_matrix, of_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.data import Dataset
    from panelbench.extension import Mechanism
    from panelbench.privacy import Budget, Guarantee
    from panelbench.release import Release

METHODS = ("auto", "pairs", "canaries")
ERROR = 0.01
CHOICE = 1e-4
"""Error at which events are compared: with 0.01 the best of thousands is often the luckiest."""
FEWEST = 1000
"""Releases of either dataset below which `auto` turns to canaries."""
SHARES = (0.3, 0.1, 0.03)
"""Of all canaries, those that are guessed: the most confident ones; each share is one attempt."""
BATCH = 1000
"""Canaries in one dataset, where the mechanism takes as many categories; datasets of different
people are one run of them all."""
FEWEST_AT_ONCE = 10
"""Canaries in one dataset below which there is nothing to learn from it."""
WINDOWS = (100, 5000)
"""Fewest and most test windows."""


class UnauditableError(PanelbenchError):
    """There is nothing to audit, or nothing to audit it on."""


@dataclass(frozen=True, kw_only=True)
class Game:
    """How an audit is played.

    Attributes:
        method: "pairs", "canaries", or "auto": pairs, as many as there is time for, and canaries
            where those would be fewer than `FEWEST`. Sensor streams are always in pairs: all test
            windows of one release, and its noise draws, are releases of their own.
        releases: Releases of either dataset; with "auto", the most.
        canaries: Number of canaries.
        seconds: Time that "auto" plans for.
    """

    method: str = "auto"
    releases: int = 10_000
    canaries: int = 10_000
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got '{self.method}'.")
        for name in ("releases", "canaries"):
            if getattr(self, name) < 20:
                raise ValueError(f"{name} must be at least 20, got {getattr(self, name)}.")
        if not self.seconds > 0:
            raise ValueError(f"seconds must be positive, got {self.seconds}.")


class Claims:
    """Runs a mechanism and keeps to one claim for all its releases."""

    def __init__(self, mechanism: Mechanism, budget: Budget, rng: np.random.Generator) -> None:
        self.mechanism = mechanism
        self.budget = budget
        self.guarantee: Guarantee | None = None
        self._rng = rng

    def __call__(self, dataset: Dataset) -> Release:
        """One release, with random numbers of its own.

        Args:
            dataset: As `for_mechanism` gives it; what `neighbors` makes is so from birth.

        Raises:
            UnauditableError: Where it claims nothing, or does not run on such data.
            BudgetError: Where the claim exceeds the budget.
        """
        reason = self.mechanism.supports(dataset.schema, self.budget)
        if reason is not None:
            raise UnauditableError(f"It does not run on the audit's data: {reason}")
        (rng,) = self._rng.spawn(1)
        release = self.mechanism.release(dataset, self.budget, rng=rng)
        if not isinstance(release, SyntheticTables | Estimates):
            raise DataError(
                f"It returned {type(release).__name__}, expected a release; `panelbench check` "
                f"says more."
            )
        guarantee = release.guarantee
        if guarantee.established is Established.NONE:
            raise UnauditableError("It claims no privacy, so there is nothing to audit.")
        if self.guarantee is None:
            reason = accounting.excess(guarantee, self.budget, unit=dataset.schema.unit)
            if reason is not None:
                raise BudgetError(reason)
            self.guarantee = guarantee
        return release

    @property
    def claim(self) -> Guarantee:
        """The guarantee of its releases."""
        if self.guarantee is None:
            raise UnauditableError("It made no release.")
        return self.guarantee

    def figures(self) -> accounting.Figures:
        """The claim in every notion."""
        budget = self.budget
        return accounting.settle(self.claim, delta=budget.delta, alpha=budget.alpha)


def audit(
    mechanism: Mechanism, budget: Budget, game: Game, *, rng: np.random.Generator
) -> tuple[Guarantee, dict[str, Any]]:
    """Play a game against a mechanism.

    Returns:
        The claim, and what was found, JSON-able: the method, how many releases, and for each bound
        ("epsilon", and "mu" where the claim is Gaussian) the event and its counts. `verdict` makes
        numbers of it.

    Raises:
        UnauditableError: Where there is no claim to audit, or nothing to audit it on.
        BudgetError: Where the claim exceeds the budget.
    """
    if budget.notion is Notion.UNLIMITED:
        raise UnauditableError("An unlimited budget promises nothing that could be audited.")
    run = Claims(mechanism, budget, rng.spawn(1)[0])
    if mechanism.kind != USER_TABLES:
        found = _windows(run, game, rng)
    else:
        releases = game.releases
        if game.method == "auto":
            releases = min(releases, _affordable(run, game))
        dear = game.method == "auto" and releases < min(FEWEST, game.releases)
        if game.method == "canaries" or dear:
            found = _canaries(run, game.canaries, rng)
        else:
            found = _pairs(run, releases, rng)
    return run.claim, found


def _affordable(run: Claims, game: Game) -> int:
    """How many pairs of releases there is time for, by the fastest of a few after the first."""
    pair = table_pair(run.budget.relation)
    run(pair[0])
    times = []
    for dataset in (*pair, *pair):
        since = time.perf_counter()
        run(dataset)
        times.append(time.perf_counter() - since)
    fitting = int(0.8 * game.seconds / (2 * min(times)))
    return fitting if fitting < 1000 else fitting // 1000 * 1000


def _pairs(run: Claims, releases: int, rng: np.random.Generator) -> dict[str, Any]:
    pair = table_pair(run.budget.relation)
    found: list[dict[str, float]] = []
    for _ in range(releases):
        for dataset in pair:
            release = run(dataset)
            if not isinstance(release, SyntheticTables):
                raise DataError(f"It released {type(release).__name__} for user tables.")
            found.append(of_tables(release, pair[0]))
    names, numbers = as_matrix(found)
    return told_apart(run.figures(), names, numbers[::2], numbers[1::2], rng)


def _windows(run: Claims, game: Game, rng: np.random.Generator) -> dict[str, Any]:
    draws = int(getattr(run.mechanism, "draws", 1))
    windows = int(np.clip(-(-2 * game.releases // draws), *WINDOWS))
    inside = rng.permutation(np.arange(windows) % 2 == 0)
    release = run(stream_windows(inside, rng=rng).for_mechanism())
    if not isinstance(release, Estimates):
        raise DataError(f"It released {type(release).__name__} for sensor streams.")
    by_step = release.estimate
    numbers = np.concatenate([by_step, by_step.sum(axis=-1, keepdims=True)], axis=-1)
    names = [*(f"estimate at step {k}" for k in range(by_step.shape[-1])), "sum of estimates"]
    within, without = (numbers[:, chosen].reshape(-1, len(names)) for chosen in (inside, ~inside))
    return told_apart(run.figures(), names, within, without, rng)


def told_apart(
    figures: accounting.Figures,
    names: list[str],
    within: np.ndarray,
    without: np.ndarray,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Choose events on some of the releases and count them on the others.

    Args:
        figures: The claim.
        names: Of the statistics.
        within: Statistics of releases of the data with the person, (releases, statistics).
        without: Statistics of releases of the neighboring data.
        rng: Says which releases are for what.
    """
    within, without = rng.permutation(within), rng.permutation(without)
    parts = [_three_parts(world) for world in (within, without)]
    combined = Discriminant.fitted(parts[0][0], parts[1][0])
    (_, choose_in, count_in), (_, choose_out, count_out) = (
        [np.concatenate([part, combined(part)], axis=1) for part in three] for three in parts
    )
    error = ERROR if figures.mu is None else ERROR / 2
    found: dict[str, Any] = {
        "method": "pairs",
        "releases": len(within) + len(without),
        "error": error,
    }

    def of_epsilon(hits: Hits) -> np.ndarray:
        return hits.epsilon(delta=figures.delta, error=CHOICE)

    def of_mu(hits: Hits) -> np.ndarray:
        return hits.mu(error=CHOICE)

    for name, bound in (("epsilon", of_epsilon), ("mu", of_mu)):
        if name == "mu" and figures.mu is None:
            continue
        bet = best_bet(choose_in, choose_out, bound)
        found[name] = _told(bet, [*names, "all combined"], bet.hits(count_in, count_out))
    return found


def _three_parts(world: np.ndarray) -> list[np.ndarray]:
    """To combine statistics, to choose an event, and to count it."""
    ends = [len(world) // 5, 2 * len(world) // 5]
    return np.split(world, ends)


def _told(bet: Bet, names: list[str], hits: Hits) -> dict[str, Any]:
    return {**bet.to_json(), "statistic": names[bet.statistic], **vars(hits)}


def _canaries(run: Claims, canaries: int, rng: np.random.Generator) -> dict[str, Any]:
    inside = rng.random(canaries) < 0.5
    scores = np.zeros(canaries)
    batches = -(-canaries // _at_once(run))
    for batch in np.array_split(np.arange(canaries), batches):
        data = canary_tables(inside[batch], run.budget.relation)
        release = run(data)
        if not isinstance(release, SyntheticTables):
            raise DataError(f"It released {type(release).__name__} for user tables.")
        kinds = release.frame["kind"].value_counts()
        names = data.schema["kind"].categories[1:]
        scores[batch] = [float(kinds.get(name, 0)) for name in names]
    order = np.argsort(scores + rng.uniform(0, 1e-6, canaries))
    attempts = []
    for share in SHARES:
        each = max(1, int(share * canaries) // 2)
        correct = int(inside[order[-each:]].sum() + (~inside[order[:each]]).sum())
        attempts.append({"guesses": 2 * each, "correct": correct})
    return {
        "method": "canaries",
        "releases": batches,
        "canaries": canaries,
        "error": ERROR,
        "attempts": attempts,
    }


def _at_once(run: Claims) -> int:
    """How many canaries, each with a category of its own, the mechanism takes in one dataset."""
    size = BATCH
    while size > FEWEST_AT_ONCE:
        schema = canary_tables(np.ones(size, dtype=bool), run.budget.relation).schema
        if run.mechanism.supports(schema, run.budget) is None:
            break
        size //= 2
    return size


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What an audit says about a claim.

    Attributes:
        epsilon_lower: Lower bound on epsilon at the claim's delta; where the claim is Gaussian,
            the larger of the one that needs no assumption and that of a Gaussian mechanism with
            the lower bound on mu.
        reason: What is wrong with the claim; empty where nothing was found.
    """

    epsilon_lower: float
    reason: str


def verdict(found: dict[str, Any], figures: accounting.Figures) -> Verdict:
    """What follows from the counts of an audit.

    Args:
        found: What `audit` found.
        figures: The claim, as settled.
    """
    if found["method"] == "canaries":
        attempts = found["attempts"]
        lower = max(
            guessed_epsilon(
                attempt["correct"],
                attempt["guesses"],
                found["canaries"],
                delta=figures.delta,
                error=found["error"] / len(attempts),
            )
            for attempt in attempts
        )
        return Verdict(epsilon_lower=lower, reason=_excess("epsilon", lower, figures.epsilon))
    lower = float(_hits(found["epsilon"]).epsilon(delta=figures.delta, error=found["error"]))
    lower = max(lower, 0.0)
    reason = _excess("epsilon", lower, figures.epsilon)
    if "mu" in found and figures.mu is not None:
        mu = float(_hits(found["mu"]).mu(error=found["error"]))
        reason = reason or _excess("mu", mu, figures.mu)
        if mu > 0 and not reason:  # a refuted claim of Gaussian DP converts nothing
            lower = max(lower, accounting.gaussian_epsilon(mu, figures.delta))
    return Verdict(epsilon_lower=lower, reason=reason)


def _excess(name: str, lower: float, claimed: float) -> str:
    if lower <= claimed:
        return ""
    return f"An audit shows {name} > {lower:.3g} (99 %), the guarantee says {claimed:.3g}."


def _hits(told: dict[str, Any]) -> Hits:
    names = ("hits", "trials", "false_hits", "false_trials")
    return Hits(**{name: told[name] for name in names})


def statistics_of(found: dict[str, Any]) -> Iterator[str]:
    """Which statistics gave the bounds."""
    for name in ("epsilon", "mu"):
        if name in found:
            yield found[name]["statistic"]
