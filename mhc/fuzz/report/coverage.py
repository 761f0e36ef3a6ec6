"""Coverage of the space of cases: for each aspect a map of label by implementation, in which holes show."""

import math

from mhc.fuzz.report.markup import Child, Markup, element
from mhc.fuzz.report.snapshot import Run
from mhc.fuzz.report.words import plural, short

_SHADES = 8
_NAMED = 24  # of the regions that nothing reached; the maps show all


def maps(run: Run) -> list[Child]:
    aspects = run.aspects()
    if not aspects or not run.names:
        return [element("p", "No case has ended yet.", class_="soft")]
    labels = [label for listed in aspects.values() for label in listed]
    holes = sum(not run.regions.get(name, {}).get(label) for name in run.names for label in labels)
    nowhere = [label for label in labels if not any(run.regions.get(name, {}).get(label) for name in run.names)]
    most = max((n for counts in run.regions.values() for n in counts.values()), default=1)
    note = (
        f"Cases by implementation and region, the stronger the more, on a logarithmic scale up to {short(most)}."
        f" {plural(holes, 'hole')} in {plural(len(run.names) * len(labels), 'cell')}"
        " (hatched: no case of that implementation was there)."
    )
    more = f"; and {plural(len(nowhere) - _NAMED, 'other')}" if len(nowhere) > _NAMED else ""
    never = f"Reached by no implementation: {'; '.join(nowhere[:_NAMED])}{more}." if nowhere else "Some reached each region."
    cards = [_map(run, aspect, listed, most) for aspect, listed in aspects.items()]
    return [
        element("p", note, class_="soft"),
        element("p", never, class_="soft"),
        element("div", *cards, class_="cards", style=f"--least: {min(600, 150 + 34 * len(run.names))}px"),
    ]


def _map(run: Run, aspect: str, labels: list[str], most: int) -> Markup:
    heads = [element("th", element("span", name), scope="col") for name in run.names]
    rows = []
    for label in labels:
        value = label.partition(": ")[2] or label
        cells = [_cell(name, label, run.regions.get(name, {}).get(label, 0), most) for name in run.names]
        rows.append(element("tr", element("th", value, scope="row"), *cells))
    head = element("thead", element("tr", element("td"), *heads))
    body = element("table", element("caption", aspect), head, element("tbody", *rows), class_="heat")
    return element("div", element("div", body, class_="wide", tabindex=0), class_="card")


def _cell(name: str, label: str, n: int, most: int) -> Markup:
    shade = "none" if n == 0 else f"h{min(_SHADES - 1, int(_SHADES * math.log1p(n) / math.log1p(max(most, 2))))}"
    return element("td", short(n), class_=shade, title=f"{name}, {label}: {plural(n, 'case')}")
