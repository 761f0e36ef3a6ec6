"""Compute the pictures of a report as shapes, which a template writes as inline SVG; colours are classes of `style.css`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mhc.fuzz.campaign.store import TICK
from mhc.fuzz.findings.finding import Reduction
from mhc.fuzz.report.stored_run import Run
from mhc.fuzz.report.words import ceiling, count, cut, duration, plural, short, step

HUES = 8
"""Colours that can be distinguished; the names after the first eight share a grey."""

_WIDTH, _HEIGHT = 960, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 22, 34
_LEAST, _MOST = -40, 4
_NAME, _ROW, _BAR = 138, 26, 20
_LETTERS = 18  # of a name, in the room of _NAME


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    class_: str
    title: str


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str
    anchor: str = "end"
    strong: bool = False


@dataclass(frozen=True)
class Mark:
    """A vertical line."""

    x: float
    y1: float
    y2: float
    class_: str
    title: str


@dataclass(frozen=True)
class Path:
    """An SVG path. d: its commands."""

    d: str
    class_: str
    title: str


@dataclass(frozen=True)
class Picture:
    """An image: its shapes, from back to front.

    Attributes:
        grid: horizontal lines, (x1, x2, y). triangles: (x, title) of marks at the top.
    """

    title: str
    width: int
    height: int
    grid: list[tuple[float, float, float]] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    triangles: list[tuple[float, str]] = field(default_factory=list)


def hues(names: Sequence[str]) -> dict[str, str]:
    """Return the class of each name's colour, for a legend."""
    shown = {name: f"c{at}" for at, name in enumerate(names[:HUES])}
    return {**shown, **({f"{len(names) - HUES} others": "rest"} if len(names) > HUES else {})}


def timeline(run: Run) -> Picture | None:
    """Draw cases over campaign time, stacked by implementation, with a triangle for each finding and a line between legs."""
    ticks = [tick for by_tick in run.timeline.values() for tick in by_tick]
    if not ticks:
        return None
    span = max(run.seconds, (max(ticks) + 1) * TICK)
    width = step(span)
    bins = math.ceil(span / width)
    stacks: list[dict[int, int]] = [{} for _ in range(bins)]
    for at, name in enumerate(run.names):
        for tick, n in run.timeline.get(name, {}).items():
            stack = stacks[min(bins - 1, int(tick * TICK / width))]
            stack[min(at, HUES)] = stack.get(min(at, HUES), 0) + n
    top = ceiling(max(sum(stack.values()) for stack in stacks))
    bottom, across = _HEIGHT - _BOTTOM, (_WIDTH - _LEFT - _RIGHT) / bins
    gap = min(1.0, across / 6)

    def y(n: float) -> float:
        return bottom - (bottom - _TOP) * n / top

    def x(seconds: float) -> float:
        return _LEFT + across * min(seconds / width, bins)

    picture = Picture(f"Cases in each {duration(width)}, by implementation", _WIDTH, _HEIGHT)
    for level in (share * top for share in (0, 0.5, 1) if share * top == int(share * top)):
        picture.grid.append((_LEFT, _WIDTH - _RIGHT, y(level)))
        picture.labels.append(Label(_LEFT - 6, y(level) + 4, count(level)))
    between = step(bins * width, most=8)
    for at in range(int(bins * width / between) + 1):
        place = x(at * between)
        anchor = "end" if place > _WIDTH - _RIGHT - 30 else "middle"
        picture.labels.append(Label(place, bottom + 20, duration(at * between), anchor))
    for at, stack in enumerate(stacks):
        below = 0
        for which, n in sorted(stack.items()):
            who, class_ = (run.names[which], f"c{which}") if which < HUES else ("others", "rest")
            title = f"{who}: {plural(n, 'case')}, {duration(at * width)} to {duration((at + 1) * width)}"
            tall = y(below) - y(below + n)
            picture.boxes.append(Box(x(at * width) + gap, y(below + n), across - 2 * gap, tall, class_, title))
            below += n
    ended = 0.0
    for leg in run.legs[:-1]:
        ended += leg.seconds
        picture.marks.append(Mark(x(ended), _TOP, bottom, "leg", f"leg {leg.number} ended: {leg.ended}"))
    for found in run.findings:
        picture.triangles.append((x(found.at), f"{found.id} {found.title}, {duration(found.at)}"))
    return picture


def steps(reduction: Reduction) -> Picture | None:
    """Draw how a case became small: elements over checks, a mark for each simpler case that still failed.

    None if no smaller case failed.
    """
    if len({one.elements for one in reduction.steps}) < 2:
        return None
    width, height, left, right, top, bottom = 340, 96, 46, 10, 12, 68
    most = max(1, reduction.checks, *(one.checks for one in reduction.steps))
    highest = max(1.0, math.log2(1 + max(one.elements for one in reduction.steps)))

    def x(checks: int) -> float:
        return left + (width - left - right) * checks / most

    def y(elements: int) -> float:
        return bottom - (bottom - top) * math.log2(1 + elements) / highest

    picture = Picture("Elements of the first input over checks; height logarithmic", width, height)
    picture.grid.append((left, width - right, bottom))
    line, before = "", None
    for one in reduction.steps:
        place = f"{x(one.checks):.2f} {y(one.elements):.2f}"
        line += f"M{place}" if before is None else f"H{x(one.checks):.2f}V{y(one.elements):.2f}"
        sizes = ", ".join(f"{name} = {size}" for name, size in one.sizes.items())
        same = before is not None and (one.elements, one.sizes) == (before.elements, before.sizes)
        what = "simpler values, dtype or layout" if same else sizes
        title = f"check {count(one.checks)}: {plural(one.elements, 'element')}" + (f"; {what}" if what else "")
        picture.boxes.append(Box(x(one.checks) - 3, y(one.elements) - 3, 6, 6, "rest" if same else "c0", title))
        before = one
    picture.paths.append(Path(f"{line}H{x(reduction.checks):.2f}", "descent", picture.title))
    first, last = reduction.steps[0], reduction.steps[-1]
    picture.labels.append(Label(left - 8, y(first.elements) + 4, short(first.elements)))
    if y(last.elements) - y(first.elements) > 12:
        picture.labels.append(Label(left - 8, y(last.elements) + 4, short(last.elements)))
    picture.labels.append(Label(left, height - 8, "0", "middle"))
    picture.labels.append(Label(width - right, height - 8, f"{plural(reduction.checks, 'check')}"))
    return picture


def distribution(subject: str, by_name: Mapping[str, Mapping[int, int]]) -> Picture:
    """Draw |error| / bound of an output: how many cases of each implementation had it in each power of two."""
    width, right, height = 370, 10, _ROW * len(by_name) + 24
    across = (width - _NAME - right) / (_MOST - _LEAST + 1)

    def x(bin_: int) -> float:
        return _NAME + across * (bin_ - _LEAST)

    picture = Picture(f"{subject}: cases by |error| / bound, height logarithmic", width, height)
    for at, (name, bins) in enumerate(by_name.items()):
        base = _ROW * (at + 1)
        picture.labels.append(Label(_NAME - 6, base - 4, cut(name, _LETTERS)))
        picture.grid.append((_NAME, width - right, base))
        most = math.log1p(max(bins.values()))
        for bin_, n in sorted(bins.items()):
            tall = max(2.0, (_ROW - 5) * math.log1p(n) / most)
            class_, title = "bad" if bin_ > 0 else "c0", f"{name}: {plural(n, 'case')} with {interval(bin_)}"
            picture.boxes.append(Box(x(bin_) + 0.5, base - tall, across - 1, tall, class_, title))
    picture.marks.append(Mark(x(1), 2, height - 16, "one", "|error| = bound"))
    axis = ((x(_LEAST) + across / 2, "0"), (x(-29), "2⁻³⁰"), (x(-19), "2⁻²⁰"), (x(-9), "2⁻¹⁰"), (x(1), "1"))
    picture.labels.extend(Label(place, height - 4, text, "middle", text == "1") for place, text in axis)
    return picture


def interval(bin_: int) -> str:
    """Return the ratios in a bin of `store.ratio_bin`, in words."""
    if bin_ <= _LEAST:
        return f"at most 2^{_LEAST}"
    return f"over 2^{bin_ - 1}" + ("" if bin_ >= _MOST else f", at most 2^{bin_}")


def shares(title: str, rows: Mapping[str, Mapping[str, float]], classes: Mapping[str, str]) -> Picture:
    """Draw a bar for each row, its parts as shares of the row's sum."""
    picture = Picture(title, 640, len(rows) * (_BAR + 6))
    for at, (name, row) in enumerate(rows.items()):
        y, total, begin = at * (_BAR + 6), sum(row.values()), float(_NAME + 4)
        picture.labels.append(Label(begin - 8, y + 14, cut(name, _LETTERS)))
        room = picture.width - begin
        picture.boxes.append(Box(begin, y, room, _BAR, "empty", f"{name}: {title if total else 'nothing'}"))
        for what, part in row.items():
            long = room * part / total if total else 0.0
            if long > 0:
                share = f"{name}: {what} {100 * part / total:.1f} %"
                picture.boxes.append(Box(begin, y, max(long - 1, 0.5), _BAR, classes[what], share))
                begin += long
    return picture
