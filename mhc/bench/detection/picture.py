"""A detection run as a picture: the share of mutants killed against the number of drawn cases, beside the fixed suites'."""

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from mhc.bench.detection.score import Score
from mhc.bench.detection.suites import COMPARATORS

_WIDTH, _HEIGHT = 820, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 250, 44, 56
_COLOURS = ("#b45309", "#15803d", "#7c3aed")
_OURS = "#1d4ed8"


def draw(score: Score, count: int) -> str:
    """Return an SVG, with cases on a logarithmic axis from 1 to `count`."""
    total = max(len(score.mutants), 1)
    firsts = sorted(row.hunt.first or 0 for row in score.killed)
    steps = [(1, 0.0)]
    for at, first in enumerate(firsts, 1):
        steps += [(first, steps[-1][1]), (first, at / total)]
    steps.append((count, len(firsts) / total))
    parts = [_axes(count)]
    labels = []
    for suite, colour in zip(COMPARATORS, _COLOURS, strict=True):
        share = sum(suite in row.suites for row in score.mutants) / total
        parts.append(_line([(1, share), (count, share)], count, colour, dashed=True))
        alarms, ran = score.suite_alarms(suite)
        flagged = f"{alarms} of {ran} clean flagged"
        labels.append((share, colour, f"{suite}: {100 * share:.0f} %", flagged))
    parts.append(_line(steps, count, _OURS))
    share, flagged = len(firsts) / total, f"{len(score.alarms)} of {len(score.correct)} clean flagged"
    labels.append((share, _OURS, f"drawn cases, these oracles: {100 * share:.0f} %", flagged))
    parts += _labels(labels)
    title = f"{total} mutants: share killed against drawn cases (dashed: fixed shapes, x ~ N(0, 1))"
    parts.append(f'<text x="{_LEFT}" y="24" font-size="15" font-weight="600">{escape(title)}</text>')
    body = "\n".join(parts)
    frame = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>\n'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _x(cases: float, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(max(cases, 1)) / math.log(max(count, 2))


def _y(share: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share)


def _line(points: Sequence[tuple[float, float]], count: int, colour: str, *, dashed: bool = False) -> str:
    path = " ".join(f"{_x(cases, count):.1f},{_y(share):.1f}" for cases, share in points)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def _axes(count: int) -> str:
    parts = []
    right = _WIDTH - _RIGHT
    for percent in range(0, 101, 20):
        y = _y(percent / 100)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#374151">{percent} %</text>')
    for cases in [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= count]:
        x = _x(cases, count)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle" fill="#374151">{cases}</text>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle:.1f}" y="{_HEIGHT - 14}" text-anchor="middle">drawn cases, logarithmic</text>')
    return "\n".join(parts)


def _labels(labels: Sequence[tuple[float, str, str, str]]) -> list[str]:
    """Return two lines of text for each curve at the right, from the top, kept apart."""
    parts = []
    lowest = -math.inf
    for share, colour, first, second in sorted(labels, key=lambda label: -label[0]):
        y = max(_y(share), lowest + 36)
        lowest = y
        x = _WIDTH - _RIGHT + 8
        parts.append(f'<text x="{x}" y="{y:.1f}" fill="{colour}" font-weight="600">{escape(first)}</text>')
        parts.append(f'<text x="{x}" y="{y + 15:.1f}" fill="{colour}">{escape(second)}</text>')
    return parts
