"""Error-against-budget curves as SVG."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from panelbench.board import Row

_WIDTH, _HEIGHT = 720, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 220, 14, 44
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")


class _Axis:
    """Maps values to pixels, logarithmically where they are all positive and spread."""

    def __init__(self, values: list[float], start: float, end: float) -> None:
        self.log = min(values) > 0 and max(values) / min(values) > 5
        low, high = (self._on(min(values)), self._on(max(values)))
        margin = (high - low or abs(high) or 1.0) * 0.05
        self.low, self.high = low - margin, high + margin
        self.start, self.end = start, end

    def _on(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def __call__(self, value: float) -> float:
        share = (self._on(max(value, 1e-300) if self.log else value) - self.low) / (
            self.high - self.low
        )
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether a value lies on the axis."""
        return (value > 0 or not self.log) and self.low <= self._on(value) <= self.high

    def ticks(self) -> list[float]:
        """Round values inside the axis."""
        if self.log:
            decades = range(math.floor(self.low), math.ceil(self.high) + 1)
            steps = (1, 2, 5) if self.high - self.low < 2.5 else (1,)
            found = [step * 10.0**decade for decade in decades for step in steps]
            return [v for v in found if self.low <= math.log10(v) <= self.high]
        step = 10 ** math.floor(math.log10((self.high - self.low) / 2))
        step *= 2 if (self.high - self.low) / step > 8 else 1
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, math.floor(self.high / step) + 1)]


def curve(rows: list[Row], labels: dict[tuple[str, str], str], title: str) -> str:
    """Mean and interval against epsilon, a line an entry; entries without a budget are level."""
    known = [row for row in rows if row.mean is not None]
    budgeted = [row for row in known if _has_budget(row)]
    if not budgeted:
        return ""
    epsilons = sorted({row.epsilon for row in budgeted if row.epsilon is not None})
    up = _Axis(_heights(known, budgeted), _HEIGHT - _BOTTOM, _TOP)
    across = _Axis(epsilons, _LEFT, _WIDTH - _RIGHT)
    entries: dict[tuple[str, str, str], list[Row]] = {}
    for row in known:
        relation = row.neighboring_relation if _has_budget(row) else ""
        entries.setdefault((row.mechanism, row.params, relation), []).append(row)
    relations = {key[2] for key in entries} - {""}
    parts = [
        (
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" '
            f'font-size="12" aria-label="{html.escape(title)} against epsilon">'
        ),
        *_frame(across, up, epsilons),
    ]
    for index, ((mechanism, params, relation), members) in enumerate(entries.items()):
        label = labels[mechanism, params] + (f", {relation}" if len(relations) > 1 else "")
        parts.extend(_line(members, across, up, index, label))
    return "".join([*parts, "</svg>"])


def _heights(known: list[Row], budgeted: list[Row]) -> list[float]:
    """What the vertical axis must show: no level line stretches it beyond a thousandth."""
    found = [v for row in known for v in (row.mean, row.lower, row.upper) if v is not None]
    means = [row.mean for row in budgeted if row.mean is not None]
    if min(means) > 0:
        found = [v for v in found if v > min(means) / 1000] or means
    return found


def _has_budget(row: Row) -> bool:
    return row.role == "private" and row.epsilon is not None and math.isfinite(row.epsilon)


def _frame(across: _Axis, up: _Axis, epsilons: list[float]) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value in up.ticks():
        y = up(value)
        yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="currentColor" opacity=".15"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'
    for value in epsilons:
        x = across(value)
        yield f'<path d="M{x:.1f} {bottom}v5" stroke="currentColor"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{value:.3g}</text>'
    yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor"/>'
    middle = (_LEFT + right) / 2
    yield f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">epsilon</text>'


def _line(rows: list[Row], across: _Axis, up: _Axis, index: int, label: str) -> Iterator[str]:
    color, dash = _COLORS[index % len(_COLORS)], _DASHES[index // len(_COLORS) % len(_DASHES)]
    pen = f'fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"'
    points = (
        [(across(row.epsilon), row) for row in rows if row.epsilon is not None]
        if all(_has_budget(row) for row in rows)
        else []
    )
    points.sort(key=lambda point: point[0])
    top = _TOP + 14 + 18 * index
    yield f'<path d="M{_WIDTH - _RIGHT + 14} {top - 4}h22" {pen}/>'
    text = label if len(label) < 28 else label[:26] + "…"
    yield f'<text x="{_WIDTH - _RIGHT + 42}" y="{top}">{html.escape(text)}</text>'
    if not points:
        level = up(rows[0].mean or 0.0)
        if not up.holds(rows[0].mean or 0.0):
            yield f'<text x="{_WIDTH - _RIGHT + 42}" y="{top + 11}" font-size="9">'
            yield f"at {rows[0].mean:.2g}, off the scale</text>"
        pen = f'fill="none" stroke="{color}" stroke-width="1.5" stroke-dasharray="3 4"'
        yield f'<path d="M{_LEFT} {level:.1f}H{_WIDTH - _RIGHT}" {pen}/>'
        return
    band = [(x, row) for x, row in points if row.lower is not None and row.upper is not None]
    if len(band) > 1:
        edge = [f"{x:.1f} {up(row.upper or 0.0):.1f}" for x, row in band]
        edge += [f"{x:.1f} {up(row.lower or 0.0):.1f}" for x, row in reversed(band)]
        yield f'<path d="M{"L".join(edge)}Z" fill="{color}" opacity=".15"/>'
    path = "L".join(f"{x:.1f} {up(row.mean or 0.0):.1f}" for x, row in points)
    yield f'<path d="M{path}" {pen}/>'
    for x, row in points:
        told = f"{label}: {row.mean:.4g} at epsilon {row.epsilon:.3g}"
        yield f'<circle cx="{x:.1f}" cy="{up(row.mean or 0.0):.1f}" r="3" fill="{color}">'
        yield f"<title>{html.escape(told)}</title></circle>"
