"""Lines as SVG, with their numbers one click away as CSV."""

from __future__ import annotations

import csv
import html
import io
import math
import urllib.parse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from panelbench.extension import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from panelbench.board import Row

_WIDTH, _HEIGHT = 480, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 14, 44
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
_DASHES = ("", "6 3", "2 3", "8 3 2 3")
AXES = {"dp": ("epsilon", "epsilon"), "rdp": ("b_g", "B_G"), "zcdp": ("rho", "rho")}
"""For each notion the column of a row and the word for the horizontal axis."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a picture.

    Attributes:
        label: Its name in the legend.
        y: Values; a single one without `x` is drawn as a level line.
        x: Positions, ascending, as many as values.
        lower: Lower edge of a band around it, or empty.
        upper: Upper edge.
        dots: Whether its points are marked.
        truth: Drawn black, as what others are measured against.
        hidden: Not shown until its name in the legend is chosen.
        strong: Its band is drawn in full, others' faintly until their name is pointed at.
    """

    label: str
    y: Sequence[float]
    x: Sequence[float] = ()
    lower: Sequence[float | None] = ()
    upper: Sequence[float | None] = ()
    dots: bool = False
    truth: bool = False
    hidden: bool = False
    strong: bool = False

    def band(self) -> list[tuple[float, float, float]]:
        """Position, lower and upper edge, wherever both edges are known."""
        edges = zip(self.x, self.lower, self.upper, strict=True) if self.lower else ()
        return [(x, low, up) for x, low, up in edges if low is not None and up is not None]


class _Axis:
    """Maps values to pixels, logarithmically where they are all positive and spread."""

    def __init__(
        self, values: list[float], start: float, end: float, *, linear: bool = False
    ) -> None:
        self.log = not linear and min(values) > 0 and max(values) / min(values) > 5
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


def curve(rows: list[Row], labels: dict[tuple[str, str], str], title: str, notion: str) -> str:
    """Mean and interval against the budget; entries without one are level.

    Args:
        rows: Of one dataset, metric, component and neighboring relation.
        labels: Names for people.
        title: What is measured.
        notion: In which the grid states its budgets.

    Returns:
        The picture, or nothing where no entry has a budget.
    """
    column, word = AXES[notion]
    entries: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.mean is not None:
            entries.setdefault((row.mechanism, row.params), []).append(row)
    strong = _strong(entries, column)
    lines = []
    for name, members in entries.items():
        if all(_has_budget(row, column) for row in members):
            ordered = sorted(members, key=lambda row: float(getattr(row, column)))
            lines.append(
                Line(
                    label=labels[name],
                    x=[getattr(row, column) for row in ordered],
                    y=[row.mean for row in ordered if row.mean is not None],
                    lower=[row.lower for row in ordered],
                    upper=[row.upper for row in ordered],
                    dots=True,
                    strong=name in strong,
                )
            )
        else:
            lines.append(Line(label=labels[name], y=[members[0].mean or 0.0]))
    return draw(lines, across=word, title=title) if any(line.x for line in lines) else ""


def _strong(entries: dict[tuple[str, str], list[Row]], column: str) -> set[tuple[str, str]]:
    """The first entry, and the two best at the middle budget."""
    private = [
        (name, row) for name, rows in entries.items() for row in rows if _has_budget(row, column)
    ]
    budgets = sorted({getattr(row, column) for _, row in private})
    at = budgets[len(budgets) // 2] if budgets else None
    sign = -1.0 if any(row.direction == "higher" for _, row in private) else 1.0
    ranked = sorted(
        (sign * (row.mean or 0.0), name) for name, row in private if getattr(row, column) == at
    )
    return {name for name, _ in private[:1]} | {name for _, name in ranked[:2]}


def _has_budget(row: Row, column: str) -> bool:
    level = getattr(row, column)
    return row.role == Role.PRIVATE and level is not None and math.isfinite(level)


def draw(lines: list[Line], *, across: str, title: str, unit: str = "", time: bool = False) -> str:
    """A picture of lines with a legend, and a link to its numbers.

    Args:
        lines: At least one with positions.
        across: Name of the horizontal axis.
        title: For those who hear the page, and the name of the CSV.
        unit: Of the vertical axis.
        time: Whether positions are times: a linear axis with round ticks, instead of a tick at each
            position.
    """
    height = _HEIGHT
    positions = sorted({x for line in lines for x in line.x})
    up = _Axis(_heights(lines), height - _BOTTOM, _TOP)
    along = _Axis(positions, _LEFT, _WIDTH - _RIGHT, linear=time)
    ticks = along.ticks() if time else positions
    name = html.escape(f"{title} against {across}")
    parts = [
        (
            f'<div class="picture"><svg class="plot" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" role="img" font-size="13" aria-label="{name}">'
        ),
        *_frame(along, up, ticks, height),
        *_names(height, across, unit),
    ]
    keys: list[str] = []
    color = 0
    for line in lines:
        hue = "currentColor" if line.truth else _COLORS[color % len(_COLORS)]
        dash = "" if line.truth else _DASHES[color // len(_COLORS) % len(_DASHES)]
        color += not line.truth
        parts.extend(_line(line, along, up, hue, dash))
        keys.extend(_key(line, up, hue, dash))
    link = (
        f'<a class="data" download="{html.escape(title)}.csv" '
        f'href="data:text/csv;charset=utf-8,{urllib.parse.quote(_numbers(lines, across))}">'
        f"the numbers as CSV</a>"
    )
    return "".join([*parts, '</svg><ul class="keys">', *keys, "</ul></div>", link])


def _numbers(lines: list[Line], across: str) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["line", across, "value", "lower", "upper"])
    for line in lines:
        edges = {x: (low, high) for x, low, high in line.band()}
        for x, y in zip(line.x or ("",), line.y, strict=True):
            low, high = edges.get(x, ("", "")) if isinstance(x, float) else ("", "")
            writer.writerow([line.label, x, y, low, high])
    return stream.getvalue()


def _heights(lines: list[Line]) -> list[float]:
    """What the vertical axis must show: the lines that are shown at first.

    No level line or band stretches it beyond a thousandth of the smallest mean, no level line
    beyond three times the largest, and nothing beyond a hundred-thousandth of it; what lies beyond
    is drawn at the edge.
    """
    shown = [line for line in lines if not line.hidden]
    means = [y for line in shown if line.x for y in line.y]
    means = [y for y in means if y > max(means) / 1e5] if min(means) > 0 else means
    most = max(3 * max(means), 0.0)
    found = [y for line in shown for y in line.y if line.x or y <= most]
    found += [edge for line in shown for _, low, high in line.band() for edge in (low, high)]
    if min(means) > 0:
        found = [v for v in found if v > min(means) / 1000] or means
    return found


def _frame(along: _Axis, up: _Axis, ticks: Sequence[float], height: int) -> Iterator[str]:
    bottom, right = height - _BOTTOM, _WIDTH - _RIGHT
    for value in up.ticks():
        y = up(value)
        yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="currentColor" opacity=".15"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'
    last = -math.inf
    for value in ticks:
        x = along(value)
        yield f'<path d="M{x:.1f} {bottom}v5" stroke="currentColor"/>'
        if x - last > 30:
            yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{value:.3g}</text>'
            last = x
    yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor"/>'


def _names(height: int, across: str, unit: str) -> Iterator[str]:
    bottom, middle = height - _BOTTOM, (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle}" y="{height - 8}" text-anchor="middle">{html.escape(across)}</text>'
    if unit:
        yield f'<text x="14" y="{(_TOP + bottom) / 2}" text-anchor="middle" '
        yield f'transform="rotate(-90 14 {(_TOP + bottom) / 2})">{html.escape(unit)}</text>'


def _key(line: Line, up: _Axis, hue: str, dash: str) -> Iterator[str]:
    """The name of a line, which shows and hides it."""
    dash = dash if line.x else "3 4"
    text = line.label
    if not line.x and not up.holds(line.y[0]):
        text += f" {line.y[0]:.2g}, off the scale"
    yield f'<li><button aria-pressed="{"false" if line.hidden else "true"}">'
    yield '<svg width="26" height="10" aria-hidden="true"><path d="M1 5h24" '
    yield f'fill="none" stroke="{hue}" stroke-width="2" stroke-dasharray="{dash}"/></svg> '
    yield f"<span>{html.escape(text)}</span></button></li>"


def _line(line: Line, along: _Axis, up: _Axis, hue: str, dash: str) -> Iterator[str]:
    pen = f'fill="none" stroke="{hue}" stroke-width="{2.5 if line.truth else 2}"'
    pen += f' stroke-dasharray="{dash}" class="stroke"'
    yield f'<g class="line{" strong" if line.strong else ""}"{" hidden" * line.hidden}>'
    if not line.x:
        pen = f'fill="none" stroke="{hue}" stroke-width="1.5" stroke-dasharray="3 4"'
        yield f'<path d="M{_LEFT} {up(line.y[0]):.1f}H{_WIDTH - _RIGHT}" {pen}/></g>'
        return
    band = line.band()
    if len(band) > 1:
        edge = [f"{along(x):.1f} {up(high):.1f}" for x, _, high in band]
        edge += [f"{along(x):.1f} {up(low):.1f}" for x, low, _ in reversed(band)]
        yield f'<path class="band" d="M{"L".join(edge)}Z" fill="{hue}"/>'
    points = [(along(x), up(y), x, y) for x, y in zip(line.x, line.y, strict=True)]
    yield f'<path d="M{"L".join(f"{h:.1f} {v:.1f}" for h, v, _, _ in points)}" {pen}/>'
    for h, v, x, y in points if line.dots else ():
        yield f'<circle cx="{h:.1f}" cy="{v:.1f}" r="3" fill="{hue}">'
        yield f"<title>{html.escape(f'{line.label}: {y:.4g} at {x:.3g}')}</title></circle>"
    yield "</g>"
