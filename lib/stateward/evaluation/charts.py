"""Charts as SVG text: no plotting library, no network, colours from CSS variables so that light and dark both work.

Every chart has a title and a description for screen readers; the numbers behind it stand in a table beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 30, 40
#: Colours of runs; charts with more runs begin again.
COLORS = 8

#: For a chart in a file of its own (report.md shows these). Colours: Okabe & Ito, told apart by colour-blind readers.
STANDALONE_STYLE = """<style>
svg{--ink:#1a1a1a;--faint:#5c636d;--grid:#e3e6ea;--paper:#fff;--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#b3589a;--s4:#8a6d00;
--s5:#4c5fb0;--s6:#7a4a2b;--s7:#5c636d;--never:#8a929c;--sometimes:#c08a1e;--always:#009e73;
background:var(--paper);font:12px system-ui,sans-serif}
@media (prefers-color-scheme:dark){svg{--ink:#e8e8e8;--faint:#a4abb5;--grid:#33373d;--paper:#16181c;
--s0:#56b4e9;--s1:#f0a04b;--s2:#3dc79a;--s3:#e3a0c5;--s4:#d9c04f;--s5:#9fabee;--s6:#c9a184;--s7:#a4abb5;
--never:#79818b;--sometimes:#d9b04f;--always:#3dc79a}}
</style>"""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line: points (x, y), NaN y leaves a gap. `low` and `high`, if given, make a band. `color` counts from 0.

    `legend` stands above the chart; None: the name; empty: nothing.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: int
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dashed: bool = False
    legend: str | None = None


def standalone(svg: str) -> str:
    """The chart as a file of its own, with its colours inside."""
    at = svg.index(">") + 1
    return svg[:at] + STANDALONE_STYLE + svg[at:]


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    percent: bool = False,
    size: tuple[int, int] = (560, 300),
    y_range: tuple[float, float] | None = None,
) -> str:
    """Lines with optional bands and a legend above."""
    values = [v for s in series for v in (*s.y, *s.low, *s.high) if not math.isnan(v)]
    xs = [v for s in series for v in s.x]
    if not values:
        return _empty(title, size)
    low, high = y_range or (min(0.0, *values), max(values))
    if low == high:  # nothing but zeros still has an axis
        high = low + (0.1 if percent else 1.0)
    ticks = _ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    named = [(s.name if s.legend is None else s.legend, s.color, s.dashed) for s in series]
    legend, more = _legend([entry for entry in named if entry[0]], size[0])
    size = (size[0], size[1] + more)
    frame = _Frame(size, (min(xs), max(xs)), (low, high), more)
    parts = [_axes(frame, ticks, _x_ticks(min(xs), max(xs)), x_label, percent)]
    for s in series:
        if s.low:
            upper = [(x, y) for x, y in zip(s.x, s.high, strict=True) if not math.isnan(y)]
            lower = [(x, y) for x, y in zip(s.x, s.low, strict=True) if not math.isnan(y)]
            points = " ".join(frame.point(x, y) for x, y in [*upper, *reversed(lower)])
            parts.append(f'<polygon points="{points}" fill="var(--s{s.color})" opacity=".13"/>')
    for s in series:
        dash = ' stroke-dasharray="6 4"' if s.dashed else ""
        for run in _unbroken(s.x, s.y):
            points = " ".join(frame.point(x, y) for x, y in run)
            if len(run) == 1:
                x, y = frame.at(*run[0])
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="var(--s{s.color})"/>')
            parts.append(f'<polyline points="{points}" fill="none" stroke="var(--s{s.color})" stroke-width="2"{dash}/>')
    parts.append(legend)
    ends = "; ".join(f"{s.name}: {_number(s.y[0], percent)} to {_number(s.y[-1], percent)}" for s in series)
    return _svg(title, ends, size, "".join(parts))


def bar_chart(
    title: str,
    groups: Sequence[str],
    bars: Sequence[tuple[str, Sequence[float]]],
    *,
    x_label: str,
    size: tuple[int, int] = (560, 300),
) -> str:
    """Bars side by side: one group a label, one bar a run. Counts, so the axis starts at 0."""
    top = max((v for _, values in bars for v in values), default=0.0)
    if not groups or top <= 0:
        return _empty(title, size)
    ticks = _ticks(0.0, top)
    legend, more = _legend([(name, b % COLORS, False) for b, (name, _) in enumerate(bars)], size[0])
    size = (size[0], size[1] + more)
    frame = _Frame(size, (0.0, float(len(groups))), (0.0, max(top, ticks[-1])), more)
    every = max(1, math.ceil(len(groups) / 21))
    labels = [(i + 0.5, g) for i, g in enumerate(groups) if i % every == 0]
    parts = [_axes(frame, ticks, labels, x_label, percent=False)]
    width = 0.8 / len(bars)
    for b, (name, values) in enumerate(bars):
        for i, value in enumerate(values):
            left, y = frame.at(i + 0.1 + b * width, value)
            right, zero = frame.at(i + 0.1 + (b + 1) * width, 0.0)
            parts.append(
                f'<rect x="{left:.1f}" y="{y:.1f}" width="{right - left:.1f}" height="{zero - y:.1f}" '
                f'fill="var(--s{b % COLORS})"><title>{escape(f"{name}, {groups[i]}: {value:g}")}</title></rect>'
            )
    parts.append(legend)
    said = "; ".join(f"{name}: " + ", ".join(f"{v:g}" for v in values) for name, values in bars)
    return _svg(title, said, size, "".join(parts))


def flow_chart(
    title: str,
    states: Sequence[str],
    table: Sequence[Sequence[int]],
    ends: tuple[str, str],
    size: tuple[int, int] = (560, 300),
) -> str:
    """Where tasks went: states of the first run on the left, of the second on the right, bands as wide as counts."""
    total = sum(map(sum, table))
    if not total:
        return _empty(title, size)
    width, height = size
    gap, bar = 14.0, 16.0
    scale = (height - _TOP - 20 - gap * (len(states) - 1)) / total
    left, right = 120.0, width - 120.0
    out_y: list[float] = []
    in_y: list[float] = []
    parts: list[str] = []
    for side, x in ((0, left), (1, right)):
        y = float(_TOP)
        for i, state in enumerate(states):
            count = sum(table[i]) if side == 0 else sum(row[i] for row in table)
            (out_y if side == 0 else in_y).append(y)
            tall = max(count * scale, 1.0)
            parts.append(
                f'<rect x="{x - bar / 2:.1f}" y="{y:.1f}" width="{bar}" height="{tall:.1f}" fill="var(--{state})"/>'
            )
            anchor, text_x = ("end", x - bar) if side == 0 else ("start", x + bar)
            parts.append(_text(text_x, y + tall / 2 + 4, f"{state} {count}", anchor))
            y += tall + gap
        parts.append(_text(x, _TOP - 12, ends[side], "middle"))
    a, b = list(out_y), list(in_y)
    for i in range(len(states)):
        for j in range(len(states)):
            tall = table[i][j] * scale
            if not table[i][j]:
                continue
            x0, x1 = left + bar / 2, right - bar / 2
            mid = (x0 + x1) / 2
            y0, y1 = a[i], b[j]
            path = (
                f"M{x0:.1f} {y0:.1f}C{mid:.1f} {y0:.1f} {mid:.1f} {y1:.1f} {x1:.1f} {y1:.1f}V{y1 + tall:.1f}"
                f"C{mid:.1f} {y1 + tall:.1f} {mid:.1f} {y0 + tall:.1f} {x0:.1f} {y0 + tall:.1f}Z"
            )
            said = escape(f"{table[i][j]} tasks: {states[i]} → {states[j]}")
            parts.append(f'<path d="{path}" fill="var(--{states[j]})" opacity=".35"><title>{said}</title></path>')
            if i != j:  # the number of those that moved, where their band begins
                parts.append(_text(x0 + 8, y0 + tall / 2 + 4, str(table[i][j]), "start"))
            a[i], b[j] = y0 + tall, y1 + tall
    said = "; ".join(
        f"{states[i]} to {states[j]}: {table[i][j]}" for i in range(len(states)) for j in range(len(states))
    )
    return _svg(title, said, size, "".join(parts))


class _Frame:
    """Maps data to pixels. `legend`: height of the legend's further lines."""

    def __init__(self, size: tuple[int, int], x: tuple[float, float], y: tuple[float, float], legend: int) -> None:
        self.size, self.x, self.y, self.top = size, x, y, _TOP + legend

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        wide, high = self.size[0] - _LEFT - _RIGHT, self.size[1] - self.top - _BOTTOM
        return _LEFT + across * wide, self.top + (1 - up) * high

    def point(self, x: float, y: float) -> str:
        return "{:.1f},{:.1f}".format(*self.at(x, y))


def _axes(
    frame: _Frame, ticks: Sequence[float], x_ticks: Sequence[tuple[float, str]], x_label: str, percent: bool
) -> str:
    width, height = frame.size
    parts = []
    for tick in ticks:
        _, y = frame.at(frame.x[0], tick)
        parts.append(f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--grid)"/>')
        parts.append(_text(_LEFT - 6, y + 4, _number(tick, percent), "end"))
    for value, text in x_ticks:
        x, _ = frame.at(value, frame.y[0])
        parts.append(_text(x, height - _BOTTOM + 16, text, "middle"))
    parts.append(_text((width + _LEFT) / 2, height - 6, x_label, "middle"))
    return "".join(parts)


def _legend(entries: Sequence[tuple[str, int, bool]], width: int) -> tuple[str, int]:
    """The legend above a chart, and the height of its lines after the first."""
    parts, x, y = [], float(_LEFT), 12
    for name, color, dashed in entries:
        wide = 34 + 6.6 * len(name)
        if x > _LEFT and x + wide > width:
            x, y = float(_LEFT), y + 17
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        parts.append(
            f'<line x1="{x:.0f}" x2="{x + 18:.0f}" y1="{y}" y2="{y}" stroke="var(--s{color})" stroke-width="3"{dash}/>'
        )
        parts.append(_text(x + 23, y + 4, name, "start"))
        x += wide
    return "".join(parts), y - 12


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="var(--ink)" font-size="12">{escape(text)}</text>'
    )


def _svg(title: str, description: str, size: tuple[int, int], body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {size[0]} {size[1]}" '
        f'width="{size[0]}" height="{size[1]}" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{body}</svg>"
    )


def _empty(title: str, size: tuple[int, int]) -> str:
    return _svg(title, "no data", size, _text(size[0] / 2, size[1] / 2, "no data", "middle"))


def _ticks(low: float, high: float) -> list[float]:
    span = (high - low) or abs(high) or 1.0
    step = 10 ** math.floor(math.log10(span / 4))
    for factor in (1, 2, 5, 10):
        if span / (step * factor) <= 5:
            step *= factor
            break
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _x_ticks(low: float, high: float) -> list[tuple[float, str]]:
    if high - low <= 12:
        return [(t, f"{t:g}") for t in map(float, range(math.ceil(low), math.floor(high) + 1))]
    whole = [t for t in _ticks(low, high) if low <= t <= high and t == int(t)]
    # The first value is always named, unless the next stands too close to it.
    return [(t, f"{t:g}") for t in ([low] if whole and whole[0] - low >= (high - low) / 12 else []) + whole]


def _unbroken(xs: Sequence[float], ys: Sequence[float]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(xs, ys, strict=True):
        if math.isnan(y):
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if run]


def _number(value: float, percent: bool) -> str:
    if math.isnan(value):
        return "undefined"
    return f"{round(value * 100, 4):g} %" if percent else f"{value:,g}"
