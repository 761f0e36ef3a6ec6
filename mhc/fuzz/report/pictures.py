"""The pictures of a report, as inline SVG. Colours are classes of the page's style, so that they follow light and dark."""

import math
from collections.abc import Mapping, Sequence

from mhc.fuzz.campaign.store import TICK
from mhc.fuzz.report.markup import Child, Markup, element, join
from mhc.fuzz.report.snapshot import Run
from mhc.fuzz.report.words import ceiling, count, cut, duration, plural, step

HUES = 8
"""Colours that can be told apart; what has none of its own shares a grey."""

_WIDTH, _HEIGHT = 960, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 22, 34
_LEAST, _MOST = -40, 4
_NAME, _ROW, _BAR = 138, 26, 20
_LETTERS = 18  # of a name, in the room of _NAME


def hue(at: int) -> str:
    """The class of the `at`-th colour."""
    return f"c{at}" if at < HUES else "rest"


def legend(names: Sequence[str]) -> Markup:
    """Which colour is whose."""
    shown = [*names[:HUES], *([f"{len(names) - HUES} others"] if len(names) > HUES else [])]
    keys = [element("li", element("i", class_=f"key {hue(at)}"), name) for at, name in enumerate(shown)]
    return element("ul", *keys, class_="legend")


def timeline(run: Run) -> Markup | None:
    """Cases over campaign time, stacked by implementation; a triangle where a finding was first met, a line between legs."""
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

    def y(n: float) -> float:
        return bottom - (bottom - _TOP) * n / top

    def x(seconds: float) -> float:
        return _LEFT + across * min(seconds / width, bins)

    parts = [
        *_rows([(y(share * top), count(share * top)) for share in (0, 0.5, 1) if share * top == int(share * top)]),
        *_columns([(x(at), duration(at)) for at in _marks(bins * width)], bottom),
    ]
    for at, stack in enumerate(stacks):
        below = 0
        for which in sorted(stack):
            n, who = stack[which], run.names[which] if which < HUES else "others"
            title = f"{who}: {plural(n, 'case')}, {duration(at * width)} to {duration((at + 1) * width)}"
            gap = min(1.0, across / 6)
            box = _box(x(at * width) + gap, y(below + n), across - 2 * gap, y(below) - y(below + n), hue(which), title)
            parts.append(box)
            below += n
    started = 0.0
    for leg in run.legs[:-1]:
        started += leg.seconds
        at_x, title = x(started), _title(f"leg {leg.number} ended: {leg.ended}")
        parts.append(element("line", title, class_="leg", x1=at_x, x2=at_x, y1=_TOP, y2=bottom))
    for found in run.findings:
        mark = f"M{x(found.at) - 6:.1f} 4h12l-6 11z"
        parts.append(element("path", _title(f"{found.id} {found.title}, {duration(found.at)}"), class_="found", d=mark))
    label = f"Cases in each {duration(width)}, by implementation"
    return join(_svg(label, _WIDTH, _HEIGHT, parts, "timeline"), legend(run.names))


def distribution(run: Run, subject: str) -> Markup:
    """|error| / bound of an output: for each implementation, how many cases had it in each power of two."""
    by_name = {name: run.ratios[subject][name] for name in run.names if run.ratios[subject].get(name)}
    height = _ROW * len(by_name) + 24
    width, right = 370, 10
    across = (width - _NAME - right) / (_MOST - _LEAST + 1)

    def x(bin_: int) -> float:
        return _NAME + across * (bin_ - _LEAST)

    one, bottom = x(1), height - 20
    parts: list[Markup] = []
    for at, (name, bins) in enumerate(by_name.items()):
        base = _ROW * (at + 1)
        parts.append(element("text", cut(name, _LETTERS), x=_NAME - 6, y=base - 4, text_anchor="end"))
        parts.append(_line(_NAME, base, width - right, base, "grid"))
        most = math.log1p(max(bins.values()))
        for bin_, n in sorted(bins.items()):
            tall = max(2.0, (_ROW - 5) * math.log1p(n) / most)
            title = f"{name}: {plural(n, 'case')} with {interval(bin_)}"
            parts.append(_box(x(bin_) + 0.5, base - tall, across - 1, tall, "bad" if bin_ > 0 else "c0", title))
    parts.append(element("line", _title("|error| = bound"), class_="one", x1=one, x2=one, y1=2, y2=bottom + 4))
    for bin_, told in ((_LEAST, "0"), (-29, "2⁻³⁰"), (-19, "2⁻²⁰"), (-9, "2⁻¹⁰")):
        parts.append(
            element("text", told, x=x(bin_) + (across / 2 if bin_ == _LEAST else 0), y=height - 4, text_anchor="middle")
        )
    parts.append(element("text", "1", x=one, y=height - 4, text_anchor="middle", class_="strong"))
    return _svg(f"{subject}: cases by |error| / bound, height logarithmic", width, height, parts, "distribution")


def interval(bin_: int) -> str:
    """The ratios in a bin of `store.ratio_bin`."""
    if bin_ <= _LEAST:
        return f"at most 2^{_LEAST}"
    return f"over 2^{bin_ - 1}" + ("" if bin_ >= _MOST else f", at most 2^{bin_}")


def shares(label: str, rows: Mapping[str, Mapping[str, float]], classes: Mapping[str, str]) -> Markup:
    """A bar for each row, its parts as shares of the row's sum."""
    width = 640
    parts: list[Markup] = []
    for at, (name, row) in enumerate(rows.items()):
        y, whole, begin = at * (_BAR + 6), sum(row.values()), float(_NAME + 4)
        parts.append(element("text", cut(name, _LETTERS), x=begin - 8, y=y + 14, text_anchor="end"))
        room = width - begin
        parts.append(_box(begin, y, room, _BAR, "empty", f"{name}: {'nothing' if not whole else label}"))
        for what, part in row.items():
            long = room * part / whole if whole else 0.0
            if long > 0:
                share = f"{name}: {what} {100 * part / whole:.1f} %"
                parts.append(_box(begin, y, max(long - 1, 0.5), _BAR, classes[what], share))
                begin += long
    keys = [element("li", element("i", class_=f"key {class_}"), what) for what, class_ in classes.items()]
    picture = _svg(label, width, len(rows) * (_BAR + 6), parts, "shares")
    return join(element("div", picture, class_="wide", tabindex=0), element("ul", *keys, class_="legend"))


def _marks(span: float) -> list[float]:
    """Times to write under an axis, at most nine."""
    width = step(span, most=8)
    return [at * width for at in range(int(span / width) + 1)]


def _rows(places: Sequence[tuple[float, str]]) -> list[Markup]:
    parts = []
    for y, told in places:
        parts.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"))
        parts.append(element("text", told, x=_LEFT - 6, y=y + 4, text_anchor="end"))
    return parts


def _columns(places: Sequence[tuple[float, str]], bottom: float) -> list[Markup]:
    texts = []
    for x, told in places:
        near = "end" if x > _WIDTH - _RIGHT - 30 else "middle"
        texts.append(element("text", told, x=x, y=bottom + 20, text_anchor=near))
    return texts


def _box(x: float, y: float, width: float, height: float, class_: str, title: str) -> Markup:
    place = {"x": float(x), "y": float(y), "width": float(width), "height": float(height)}
    return element("rect", _title(title), class_=class_, **place)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return element("line", class_=class_, x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2))


def _title(text: str) -> Markup:
    return element("title", text)


def _svg(title: str, width: int, height: int, parts: Sequence[Child], class_: str) -> Markup:
    return element("svg", _title(title), *parts, class_=class_, viewBox=f"0 0 {width} {height}", role="img")
