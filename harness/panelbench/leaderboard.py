"""From a plan and its records to a leaderboard; pure functions."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from panelbench.board import RANKED, Board, Excluded, Row
from panelbench.entries import Draft, Repeats, describe_budget, drafts_of
from panelbench.extension import Role
from panelbench.grid import canonical, key_of, score_subject
from panelbench.quarantine import Audits, one_release
from panelbench.record import Status
from panelbench.statistics import standings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from panelbench.record import Record


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
    groups: dict[str, Repeats] = {}
    for cell in plan["cells"]:
        name = canonical([cell["dataset"], cell["mechanism"], cell["budget"]])
        group = groups.setdefault(name, Repeats(cell=cell))
        group.planned += 1
        _collect(group, cell, by_key.get(cell["key"]), plan["metrics"], score_by_key)
    ended = endings(plan, by_key.values(), score_by_key.values())
    drafts: list[Draft] = []
    quarantined: list[Excluded] = []
    remarks: list[str] = list(plan.get("remarks", ()))
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
        for metric, _ in _metrics_of(group.cell, plan["metrics"]):
            drafts.extend(drafts_of(group, metric, plan["versions"], said))
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


def _applicable(drafts: list[Draft]) -> list[Draft]:
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


def _metrics_of(
    cell: dict[str, Any], metrics: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Each metric that applies to a cell, with the hashes it was scored by.

    A cell that was published elsewhere says by which; `beside` puts it there.
    """
    elsewhere = cell.get("scored_by")
    for metric in metrics:
        name = canonical(metric["identity"])
        if metric["reads"] == cell["reads"] and (elsewhere is None or name in elsewhere):
            yield metric, metric["hashes"] if elsewhere is None else elsewhere[name]


def _score_keys(
    cell: dict[str, Any], record: Record, metrics: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], str]]:
    """Each metric that applies to an ok cell, with the key of its score."""
    for metric, hashes in _metrics_of(cell, metrics):
        subject = score_subject(
            record.release,
            data=cell["data"],
            metric=metric["identity"],
            stream=cell["stream"],
            hashes=hashes,
        )
        yield metric, key_of(subject)


def _collect(
    group: Repeats,
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


def _rank(drafts: list[Draft]) -> None:
    """Rank the drafts inside each class, metric, component and budget."""
    classes: dict[tuple[object, ...], list[Draft]] = {}
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
