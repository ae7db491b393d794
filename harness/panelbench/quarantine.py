"""What audits say about the entries of a board; and audits as a table of their own."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from panelbench.grid import canonical
from panelbench.record import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from panelbench.record import Record

COLUMNS = (
    *("mechanism", "params", "neighboring_relation", "privacy_unit", "accounting", "epsilon"),
    *("delta", "mu", "audit_epsilon_lower", "contradiction", "method", "releases", "canaries"),
    *("statistic", "hits", "trials", "false_hits", "false_trials", "seed", "seconds"),
)


class Audits:
    """Audits by what they are about: a mechanism with its parameters, at one state of its code."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._about: dict[str, list[Record]] = {}
        for record in sorted(records, key=lambda record: record.key):
            if record.status is Status.OK:
                self._about.setdefault(_subject(record.subject), []).append(record)

    def epsilon_lower(self, cell: Record) -> float | None:
        """The bound for a cell's mechanism, code and budget; None where that was not audited.

        Of several audits the one with the most releases or canaries counts, not the highest bound:
        each of them may be wrong once in a hundred times.
        """
        budget = canonical(cell.subject["budget"])
        found = [
            record
            for record in self._about.get(_subject(cell.subject), ())
            if canonical(record.subject["budget"]) == budget
        ]
        if not found:
            return None
        return float(max(found, key=_size).info["epsilon_lower"])

    def reason(self, cell: Record) -> str:
        """Why the entry is quarantined: an audit at any budget contradicts its claim."""
        found = self._about.get(_subject(cell.subject), ())
        return next((record.info["reason"] for record in found if record.info["reason"]), "")

    def relevant(self, cells: Iterable[Record]) -> list[Record]:
        """The audits that are about any of these cells, in the order of their keys."""
        wanted = {_subject(cell.subject) for cell in cells}
        found = [r for name, records in self._about.items() if name in wanted for r in records]
        return sorted(found, key=lambda record: record.key)


def one_release(repeats: Sequence[Record]) -> bool:
    """Whether several repeats with a ledger are the same release, bit for bit.

    Repeats have random streams of their own, so noise was not drawn from them; a release that holds
    hardly any information can be the same by chance.
    """
    noisy = len(repeats) > 1 and repeats[0].guarantee.get("ledger")
    return bool(noisy) and len({record.release for record in repeats}) == 1


def _subject(subject: dict[str, Any]) -> str:
    return canonical([subject["mechanism"], subject["hashes"]["code"]])


def _size(record: Record) -> tuple[int, str]:
    found = record.info["found"]
    return int(found.get("canaries", found["releases"])), record.key


def to_csv(records: Iterable[Record]) -> str:
    """Audits that ended well, one row each, the same bytes from the same records."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    rows = [_row(record) for record in records if record.status is Status.OK]
    writer.writerows(sorted(rows, key=lambda row: [str(row[name]) for name in COLUMNS]))
    return stream.getvalue()


def _row(record: Record) -> dict[str, object]:
    found, figures = record.info["found"], record.guarantee["figures"]
    event = found.get("mu") or found.get("epsilon") or {}
    row = {
        "mechanism": record.subject["mechanism"]["name"],
        "params": canonical(record.subject["mechanism"]["params"]),
        "neighboring_relation": record.guarantee["relation"],
        "privacy_unit": record.guarantee["unit"],
        "accounting": record.guarantee["established"],
        "epsilon": figures["epsilon"],
        "delta": figures["delta"],
        "mu": figures["mu"],
        "audit_epsilon_lower": record.info["epsilon_lower"],
        "contradiction": record.info["reason"],
        "method": found["method"],
        "releases": found["releases"],
        "canaries": found.get("canaries"),
        "seed": record.subject["seed"],
        "seconds": sum(record.seconds.values()),
        **{n: event.get(n) for n in ("statistic", "hits", "trials", "false_hits", "false_trials")},
    }
    return {name: _cell(row[name]) for name in COLUMNS}


def _cell(value: object) -> object:
    if value is None:
        return ""
    return format(value, ".10g") if isinstance(value, float) else value
