"""From the repeats of one entry to its rows, before they are ranked; pure functions."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from panelbench import accounting
from panelbench.board import Claim, Row, Section
from panelbench.extension import Role
from panelbench.grid import canonical
from panelbench.privacy import Budget, Established, Notion
from panelbench.record import Record, Status
from panelbench.statistics import interval

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.quarantine import Audits


@dataclass(kw_only=True)
class Repeats:
    """All repeats of one entry at one budget."""

    cell: dict[str, Any]
    planned: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    scores: dict[tuple[str, str], dict[int, dict[str, Any]]] = field(default_factory=dict)
    scored: Counter[str] = field(default_factory=Counter)

    @property
    def sound(self) -> list[Record]:
        """The records of repeats that ended well."""
        return [r for r in self.records.values() if r.status is Status.OK]


@dataclass(kw_only=True)
class Draft:
    """A row before it is ranked."""

    row: Row
    values: dict[int, tuple[float, ...]]
    budget: str
    claim: Claim
    detail: dict[str, float]
    panels: dict[str, Any]
    scored: int


def describe_budget(raw: dict[str, Any]) -> str:
    """A budget in the notion it is stated in."""
    match raw["notion"]:
        case Notion.APPROXIMATE_DP:
            return f"epsilon {raw['epsilon']:g}"
        case Notion.RENYI_DP:
            return f"B_G {raw['b_g']:g}"
        case Notion.ZERO_CONCENTRATED_DP:
            return f"rho {raw['rho']:g}"
    return "no budget"


def drafts_of(
    repeats: Repeats, metric: dict[str, Any], versions: dict[str, str], said: Audits
) -> Iterator[Draft]:
    """A row for each component of a metric that applies to an entry."""
    cell, sound = repeats.cell, repeats.sound
    plugin = cell["mechanism"]["name"].split("/", 1)[0]
    guarantee = sound[0].guarantee if sound else {}
    figures = _figures(cell, guarantee)
    refuted = bool(sound) and bool(said.reason(sound[0]))
    for component in metric["components"]:
        name = canonical(metric["identity"])
        found = repeats.scores.get((name, component), {})
        if not found and repeats.scored[name] == repeats.planned:
            continue  # scored, and the component does not apply
        values = {
            repeat: tuple(score.get("cases", ())) or (score["value"],)
            for repeat, score in sorted(found.items())
        }
        whole = interval(list(values.values())) if values else None
        some = found[min(found)] if found else {}
        complete = len(values) == repeats.planned
        row = Row(
            dataset=cell["dataset_label"],
            mechanism=cell["mechanism"]["name"],
            params=canonical(cell["mechanism"]["params"]),
            role=cell["role"],
            privacy_unit=guarantee.get("unit", ""),
            neighboring_relation=guarantee.get("relation", cell["budget"]["relation"]),
            epsilon=figures.get("epsilon"),
            delta=figures.get("delta"),
            alpha=figures.get("alpha"),
            b_g=figures.get("b_g"),
            rho=figures.get("rho"),
            metric=metric.get("label", metric["identity"]["name"]),
            component=component,
            unit=some.get("unit", ""),
            direction=some.get("direction", ""),
            mean=whole.mean if whole else None,
            lower=whole.lower if whole else None,
            upper=whole.upper if whole else None,
            n_ok=len(values),
            n_planned=repeats.planned,
            floor=_mean([s["floor"] for s in found.values() if s["floor"] is not None]),
            accounting=guarantee.get("established", ""),
            audit_epsilon_lower=said.epsilon_lower(sound[0]) if sound else None,
            section=Section.QUARANTINED
            if refuted
            else _section(cell["role"], guarantee)
            if complete
            else Section.INCOMPLETE,
            seconds=_mean([sum(record.seconds.values()) for record in sound]),
            peak_mb=_mean([record.peak_mb for record in sound]),
            plugin=plugin,
            version=cell.get("version", versions.get(plugin, "")),
        )
        told = {part for score in found.values() for part in score["detail"]}
        detail = {
            part: _mean([s["detail"][part] for s in found.values() if part in s["detail"]])
            for part in sorted(told)
        }
        yield Draft(
            row=row,
            values=values,
            budget=canonical(cell["budget"]),
            claim=Claim(
                public=tuple(sorted(guarantee.get("public", ()))), note=guarantee.get("note", "")
            ),
            scored=repeats.scored[name],
            detail={part: value for part, value in detail.items() if value is not None},
            panels=some.get("panels", {}),
        )


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _section(role: str, guarantee: dict[str, Any]) -> Section:
    match role, guarantee["established"]:
        case Role.REFERENCE, _:
            return Section.REFERENCE
        case _, Established.NONE:  # a private mechanism run in a way that is not private
            return Section.REFERENCE
        case Role.BASELINE, _:
            return Section.BASELINE
        case _, Established.SETTLED if not guarantee["ledger"]:  # it says that it read nothing
            return Section.BASELINE
        case _, Established.SETTLED:
            return Section.SETTLED
    return Section.DECLARED


def _figures(cell: dict[str, Any], guarantee: dict[str, Any]) -> dict[str, float | None]:
    """The budget, and what it is in the other notions.

    Where every event of the ledger is Gaussian, or nothing was released, these are equal claims.
    Otherwise the other notions have what the guarantee settles to, or nothing. For entries without
    a budget all figures are what their guarantee settles to.
    """
    names = ("epsilon", "delta", "alpha", "b_g", "rho")
    budget = Budget.from_json(cell["budget"])
    settled = guarantee.get("figures", {})
    if budget.notion is not Notion.UNLIMITED:
        figures = dataclasses.asdict(accounting.equivalents(budget))
        kinds = {event["event"] for event in guarantee.get("ledger", ())}
        declared = guarantee.get("established") == Established.DECLARED
        for name in ("epsilon", "b_g", "rho"):
            if getattr(budget, name) is None and (declared or kinds - {"GaussianEvent"}):
                figures[name] = None if settled.get(name) is None else float(settled[name])
        return {name: figures[name] for name in names}
    return {
        name: None if settled.get(name) is None else float(settled[name])
        for name in ("epsilon", "b_g", "rho")
    }
