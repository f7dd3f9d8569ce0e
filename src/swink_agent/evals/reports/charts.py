"""Draws figures as SVG in the page, with the page's style.

The only texts are dates and figures: no text of a case, a model or a tool gets into a chart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 320, 108
_LEFT, _RIGHT, _TOP, _BOTTOM = 4, 8, 10, 8
_RADIUS = 42


class Point(NamedTuple):
    """A figure of one run. `label` is its tooltip; `is_this` marks the run of the page."""

    value: float
    label: str
    is_this: bool = False


def ring(part: float) -> str:
    """A share as an arc of a ring."""
    around = 2 * math.pi * _RADIUS
    shown = around * _within(part)
    return (
        '<svg class="ring" viewBox="0 0 100 100" role="img" aria-hidden="true">'
        f'<circle class="rest" cx="50" cy="50" r="{_RADIUS}"></circle>'
        f'<circle class="part" cx="50" cy="50" r="{_RADIUS}" transform="rotate(-90 50 50)" '
        f'stroke-dasharray="{shown:.2f} {around:.2f}"></circle></svg>'
    )


def bar(value: float, threshold: float | None = None) -> str:
    """A value from 0 to 1 as a bar, with a line at the threshold."""
    line = ""
    if threshold is not None:
        at = min(_within(threshold) * 100, 99)
        line = f'<rect class="limit" x="{at:.1f}" y="0" width="1" height="8"></rect>'
    return (
        '<svg class="value" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="rest" x="0" y="2" width="100" height="4" rx="2"></rect>'
        f'<rect class="part" x="0" y="2" width="{_within(value) * 100:.1f}" height="4" rx="2"></rect>{line}</svg>'
    )


def over_time(title: str, points: Sequence[Point], words: Callable[[float], str], *, top: float | None = None) -> str:
    """A figure of several runs, oldest at the left. `top` is the upper end, by default the highest value."""
    values = [point.value if math.isfinite(point.value) else 0.0 for point in points]
    highest = top if top is not None else max([*values, 0.0]) or 1.0
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(points) - 1)
    places = [
        (_LEFT + step * index if len(points) > 1 else _WIDTH / 2, _height(value / highest))
        for index, value in enumerate(values)
    ]
    path = " ".join([f"{x:.1f},{y:.1f}" for x, y in places])
    base = _HEIGHT - _BOTTOM
    area = f"{places[0][0]:.1f},{base} {path} {places[-1][0]:.1f},{base}"
    dots = "".join(
        [
            f'<circle class="{"dot this" if point.is_this else "dot"}" cx="{x:.1f}" cy="{y:.1f}" '
            f'r="{4 if point.is_this else 2.5}"><title>{escape(point.label)}</title></circle>'
            for point, (x, y) in zip(points, places, strict=True)
        ]
    )
    heights = [_height(part) for part in (0.0, 0.5, 1.0)]
    lines = "".join([f'<line class="grid" x1="0" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}"></line>' for y in heights])
    this = next((point.value for point in points if point.is_this), values[-1])
    return (
        f'<figure class="chart"><figcaption><span>{escape(title)}</span> <strong>{escape(words(this))}</strong>'
        f"<small>0 to {escape(words(highest))}</small></figcaption>\n"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)} of {len(points)} runs">{lines}'
        f'<polygon class="area" points="{area}"></polygon><polyline class="trend" points="{path}"></polyline>{dots}'
        "</svg></figure>\n"
    )


def _height(part: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * _within(part)


def _within(part: float) -> float:
    return min(max(part, 0.0), 1.0) if part == part else 0.0
