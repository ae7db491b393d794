"""From a plan and its records to a leaderboard; pure functions."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from panelbench import accounting
from panelbench.board import RANKED, Board, Claim, Excluded, Row, Section
from panelbench.extension import Role
from panelbench.grid import canonical, key_of, score_subject
from panelbench.privacy import Budget, Established, Notion
from panelbench.quarantine import Audits, one_release
from panelbench.record import Status
from panelbench.statistics import interval, standings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from panelbench.record import Record


@dataclass(kw_only=True)
class _Group:
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
class _Draft:
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


def make_board(
    plan: dict[str, Any],
    cells: Iterable[Record],
    scores: Iterable[Record],
    audits: Iterable[Record] = (),
) -> Board:
    """The leaderboard of a plan, from whatever records there are.

    Args:
        plan: As `Plan.to_json` gives it.
        cells: Newest records of cells; those the plan does not name are ignored.
        scores: Newest records of scores; likewise.
        audits: Newest records of audits; those about other mechanisms or other code are ignored.
    """
    said = Audits(audits)
    by_key = {record.key: record for record in cells}
    score_by_key = {record.key: record for record in scores}
    groups: dict[str, _Group] = {}
    for cell in plan["cells"]:
        name = canonical([cell["dataset"], cell["mechanism"], cell["budget"]])
        group = groups.setdefault(name, _Group(cell=cell))
        group.planned += 1
        _collect(group, cell, by_key.get(cell["key"]), plan["metrics"], score_by_key)
    ended = endings(plan, by_key.values(), score_by_key.values())
    drafts: list[_Draft] = []
    quarantined: list[Excluded] = []
    remarks: list[str] = []
    for group in groups.values():
        reasons = [r.error for r in group.records.values() if _overspent(r)]
        refuted = said.reason(group.sound[0]) if group.sound else ""
        if group.cell["role"] == Role.PRIVATE and one_release(group.sound):
            remarks.append(
                f"The {len(group.sound)} repeats of {group.cell['label']} on "
                f"{group.cell['dataset_label']} at {describe_budget(group.cell['budget'])} are one "
                f"and the same release: does it draw all its noise from `rng`?"
            )
        if reasons or refuted:
            quarantined.append(
                Excluded(
                    dataset=group.cell["dataset_label"],
                    mechanism=group.cell["label"],
                    budget=describe_budget(group.cell["budget"]),
                    reason=[*reasons, refuted][0],
                )
            )
        if reasons:
            continue
        for metric in plan["metrics"]:
            if metric["reads"] == group.cell["reads"]:
                drafts.extend(_drafts(group, metric, plan["versions"], said))
    drafts = _applicable(drafts)
    _rank(drafts)
    return Board(
        name=plan["grid"]["name"],
        title=plan["grid"]["title"],
        notion=plan["grid"]["notion"],
        rows=[draft.row for draft in drafts],
        details=[draft.detail for draft in drafts],
        panels=[draft.panels for draft in drafts],
        samples=[draft.values for draft in drafts],
        claims=[draft.claim for draft in drafts],
        quarantined=quarantined,
        remarks=remarks,
        failures=Counter(row["status"] for row in ended if row["status"] != Status.OK),
        labels={
            (cell["mechanism"]["name"], canonical(cell["mechanism"]["params"])): cell["label"]
            for cell in plan["cells"]
        },
    )


def _applicable(drafts: list[_Draft]) -> list[_Draft]:
    """Leave out components that no entry has on a dataset: its columns give them nothing to score.

    Where no entry was scored, because everything failed, the headline stays.
    """
    known: dict[tuple[str, str], set[str]] = {}
    headline: dict[tuple[str, str], str] = {}
    scored: Counter[tuple[str, str]] = Counter()
    for draft in drafts:
        where = (draft.row.dataset, draft.row.metric)
        headline.setdefault(where, draft.row.component)
        scored[where] += draft.scored
        if draft.values:
            known.setdefault(where, set()).add(draft.row.component)

    def applies(row: Row) -> bool:
        where = (row.dataset, row.metric)
        if not scored[where]:
            return row.component == headline[where]
        return row.component in known.get(where, ())

    return [draft for draft in drafts if applies(draft.row)]


def _overspent(record: Record) -> bool:
    return record.status is Status.INVALID and bool(record.guarantee)


def _score_keys(
    cell: dict[str, Any], record: Record, metrics: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Each metric that applies to an ok cell, with the key of its score."""
    for metric in metrics:
        if metric["reads"] == cell["reads"]:
            subject = score_subject(
                record.release,
                data=cell["data"],
                metric=metric["identity"],
                stream=cell["stream"],
                hashes=metric["hashes"],
            )
            yield metric, key_of(subject)


def _collect(
    group: _Group,
    cell: dict[str, Any],
    record: Record | None,
    metrics: list[dict[str, Any]],
    score_by_key: dict[str, Record],
) -> None:
    """Sort a cell's record and scores into its group."""
    if record is None:
        return
    group.records[cell["repeat"]] = record
    if record.status is Status.OK:
        for metric, key in _score_keys(cell, record, metrics):
            score = score_by_key.get(key)
            if score is None or score.status is not Status.OK:
                continue
            name = canonical(metric["identity"])
            group.scored[name] += 1
            for found in score.scores:
                group.scores.setdefault((name, found["component"]), {})[cell["repeat"]] = found


def relevant(
    plan: dict[str, Any], look_up: Callable[[str, str], Record | None]
) -> tuple[list[Record], list[Record]]:
    """The records of the plan's cells, and of its metrics on their releases.

    Args:
        plan: As `Plan.to_json` gives it.
        look_up: From "cell" or "score" and a key to the newest record, or None.
    """
    cells: dict[str, Record] = {}
    scores: dict[str, Record] = {}
    for cell in plan["cells"]:
        record = look_up("cell", cell["key"])
        if record is not None:
            cells[record.key] = record
            if record.status is Status.OK:
                for _, key in _score_keys(cell, record, plan["metrics"]):
                    score = look_up("score", key)
                    if score is not None:
                        scores[key] = score
    return list(cells.values()), list(scores.values())


def endings(
    plan: dict[str, Any], cells: Iterable[Record], scores: Iterable[Record]
) -> list[dict[str, str]]:
    """How each planned cell ended, its scores included: key, cell, status, phase, error, log."""
    by_key = {record.key: record for record in cells}
    score_by_key = {record.key: record for record in scores}
    rows = []
    for cell in plan["cells"]:
        ending = by_key.get(cell["key"])
        if ending is not None and ending.status is Status.OK:
            for _, key in _score_keys(cell, ending, plan["metrics"]):
                score = score_by_key.get(key)
                if score is None or score.status is not Status.OK:
                    ending = score
                    break
        told = f"{cell['label']} on {cell['dataset_label']}, {describe_budget(cell['budget'])}"
        rows.append(
            {
                "key": cell["key"],
                "cell": f"{told} #{cell['repeat']}",
                "status": "missing" if ending is None else ending.status.value,
                "phase": "" if ending is None else ending.phase,
                "error": "" if ending is None else ending.error,
                "log": "" if ending is None else ending.log,
            }
        )
    return rows


def _drafts(
    group: _Group, metric: dict[str, Any], versions: dict[str, str], said: Audits
) -> Iterable[_Draft]:
    cell, sound = group.cell, group.sound
    plugin = cell["mechanism"]["name"].split("/", 1)[0]
    guarantee = sound[0].guarantee if sound else {}
    figures = _figures(cell, guarantee)
    refuted = bool(sound) and bool(said.reason(sound[0]))
    for component in metric["components"]:
        name = canonical(metric["identity"])
        found = group.scores.get((name, component), {})
        if not found and group.scored[name] == group.planned:
            continue  # scored, and the component does not apply
        values = {
            repeat: tuple(score.get("cases", ())) or (score["value"],)
            for repeat, score in sorted(found.items())
        }
        whole = interval(list(values.values())) if values else None
        some = found[min(found)] if found else {}
        complete = len(values) == group.planned
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
            n_planned=group.planned,
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
            version=versions.get(plugin, ""),
        )
        told = {part for score in found.values() for part in score["detail"]}
        detail = {
            part: _mean([s["detail"][part] for s in found.values() if part in s["detail"]])
            for part in sorted(told)
        }
        yield _Draft(
            row=row,
            values=values,
            budget=canonical(cell["budget"]),
            claim=Claim(
                public=tuple(sorted(guarantee.get("public", ()))), note=guarantee.get("note", "")
            ),
            scored=group.scored[name],
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


def _rank(drafts: list[_Draft]) -> None:
    """Rank the drafts inside each class, metric, component and budget."""
    classes: dict[tuple[object, ...], list[_Draft]] = {}
    for draft in drafts:
        row = draft.row
        if row.section in RANKED:
            where = (row.dataset, row.privacy_unit, row.neighboring_relation)
            what = (draft.budget, row.metric, row.component)
            kind = (row.section, draft.claim.public)
            classes.setdefault((*where, *what, *kind), []).append(draft)
    for members in classes.values():
        named = {canonical([d.row.mechanism, d.row.params]): d for d in members}
        lower = members[0].row.direction == "lower"
        places = standings({name: d.values for name, d in named.items()}, lower=lower)
        for name, place in places.items():
            gap = place.difference
            named[name].row = dataclasses.replace(
                named[name].row,
                difference_to_best=gap.mean if gap else 0.0,
                difference_lower=gap.lower if gap else None,
                difference_upper=gap.upper if gap else None,
                tie_group=place.tie_group,
                rank=place.rank,
                rank_lower=place.rank_lower,
                rank_upper=place.rank_upper,
            )
