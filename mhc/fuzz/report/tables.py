"""The numbers of a report as tables, most of them beside a picture."""

from collections.abc import Collection, Sequence

from mhc.fuzz.check.differential import Pair
from mhc.fuzz.report.findings import folded_case
from mhc.fuzz.report.markup import Child, Markup, element
from mhc.fuzz.report.pictures import interval, shares
from mhc.fuzz.report.snapshot import Run
from mhc.fuzz.report.words import bounded, count, duration, plural, ratio

_ENDS = {"passed": "c0", "failing": "bad", "refused": "rest"}


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Child]], text: Collection[int] = ()) -> Markup:
    """A table that scrolls by itself; the first cell of a row names it. text: columns that are no numbers."""
    head = [element("th", told, scope="col", class_="text" if at in text else None) for at, told in enumerate(heads)]
    lines = []
    for first, *others in rows:
        cells = [one if isinstance(one, Markup) and one.startswith("<td") else element("td", one) for one in others]
        lines.append(element("tr", element("th", first, scope="row"), *cells))
    parts = [element("caption", caption), element("thead", element("tr", *head)), element("tbody", *lines)]
    return element("div", element("table", *parts), class_="wide", tabindex=0)


def words(value: str) -> Markup:
    """A cell of text."""
    return element("td", bounded(value, 300), class_="text")


def implementations(run: Run) -> list[Child]:
    """What became of the cases of each, and why workers were replaced."""
    if not run.names:
        return [element("p", "None was there yet.", class_="soft")]
    rows: list[list[Child]] = []
    split = {}
    for name in run.names:
        checked, failing, refused = (run.count(name, what) for what in ("checked", "failing", "refused"))
        found = sum(one.implementation == name for one in run.findings)
        compiled, restarted = run.count(name, "compiled"), run.restarted(name)
        rate = f"{1000 * compiled / checked:.3g}" if checked and compiled else "-"
        numbers = [count(checked), count(refused), _bad(failing), _bad(found), count(run.count(name, "probes"))]
        rows.append([name, *numbers, count(compiled), rate, count(restarted)])
        split[name] = {"passed": float(max(0, checked - failing)), "failing": float(failing), "refused": float(refused)}
    heads = (
        "",
        "checked",
        "refused",
        "failing",
        "findings",
        "probes",
        "compiled",
        "per 1000 cases",
        "restarts",
    )
    note = "Failing cases are among the checked; probes are runs of shrinking, and count as nothing else."
    cards: list[Child] = [
        element(
            "div",
            shares("Cases that passed, failed and were refused", split, _ENDS),
            table("Cases", heads, rows),
            element("p", note, class_="soft"),
            class_="card",
        )
    ]
    if run.reached:
        symbols = list(dict.fromkeys(symbol for sizes in run.reached.values() for symbol in sizes))
        farthest: list[list[Child]] = [
            [name, *(count(sizes[symbol]) if symbol in sizes else "-" for symbol in symbols)]
            for name, sizes in run.reached.items()
        ]
        cards.append(element("div", table("Largest sizes judged", ("", *symbols), farthest), class_="card"))
    if run.pairs:
        compared: list[list[Child]] = [
            [one.name, words(one.against), count(one.cases), count(sum(one.missing.values())), words(_reasons(one))]
            for one in run.pairs
        ]
        told = table("Compared with one another", ("", "with", "cases", "not on", "because"), compared, text={1, 4})
        cards.append(element("div", told, class_="card"))
    gaps: list[list[Child]] = [
        [name, words(one.subject), words(one.why)] for name in run.names for one in run.unjudged(name)
    ]
    if gaps:
        told = table("Outputs not judged", ("", "output", "why"), gaps, text={1, 2})
        cards.append(element("div", told, class_="card"))
    if run.restarts:
        reasons = [[name, words(reason), count(n)] for name, reason, n in run.restarts]
        restarts = table("Workers that were replaced", ("", "reason", "times"), reasons, text={1})
        cards.append(element("div", restarts, class_="card"))
    return cards


def bins(run: Run, subject: str) -> Markup:
    """The numbers under a distribution."""
    by_name = {name: run.ratios[subject][name] for name in run.names if run.ratios[subject].get(name)}
    filled = sorted({bin_ for counts in by_name.values() for bin_ in counts}, reverse=True)
    rows = [[interval(bin_), *(count(counts.get(bin_, 0)) for counts in by_name.values())] for bin_ in filled]
    total: list[Child] = ["judged", *(count(sum(counts.values())) for counts in by_name.values())]
    numbers = table(f"{subject}: cases by |error| / bound", ("", *by_name), [total, *rows])
    return element("details", element("summary", "numbers"), numbers)


def worst(run: Run) -> list[Child]:
    """For each output the largest |error| / bound, with its case."""
    if not any(run.worst.values()):
        return [element("p", "Nothing was judged.", class_="soft")]
    owners = [name for name in run.names if any(name in by_name for by_name in run.worst.values())]
    rows: list[list[Child]] = []
    folded = []
    for subject, by_name in run.worst.items():
        cells = [_ratio(by_name[name][0]) if name in by_name else "-" for name in owners]
        rows.append([subject, *cells])
        cases = [
            element("div", element("h3", f"{name}: {ratio(by_name[name][0])}"), folded_case(by_name[name][1]))
            for name in owners
            if name in by_name
        ]
        most = max((value for value, _ in by_name.values()), default=0.0)
        folded.append(element("details", element("summary", f"{subject}: its cases, up to {ratio(most)}"), *cases))
    note = "Largest |error| / bound; above 1 is a failure. A case replays from a file: python -m mhc.fuzz replay FILE"
    return [
        element("div", table("Largest |error| / bound", ("", *owners), rows), class_="card"),
        element("div", element("p", note, class_="soft"), *folded, class_="card"),
    ]


def spent(run: Run) -> list[Child]:
    """Seconds, by what they went to."""
    by_name = {name: run.spent(name) for name in run.names}
    whole = sum(sum(row.values()) for row in by_name.values())
    if not whole:
        return [element("p", "Nothing was timed.", class_="soft")]
    kinds = list(next(iter(by_name.values())))
    compiling = {name: run.counts.get(name, {}).get("compiling", 0.0) for name in run.names}
    compiling["all"] = sum(compiling.values())
    total = {kind: sum(row[kind] for row in by_name.values()) for kind in kinds}
    rows = [
        [name, *(duration(row[kind]) for kind in kinds), duration(sum(row.values())), duration(compiling[name])]
        for name, row in {"all": total, **by_name}.items()
    ]
    picture = shares(
        "Share of each worker's time", {"all": total, **by_name}, {kind: f"c{at}" for at, kind in enumerate(kinds)}
    )
    told = f"{duration(whole)} of worker time in {duration(run.seconds)} of campaign"
    workers = run.meta.get("workers")
    told += f", with {plural(workers, 'worker')}." if isinstance(workers, int) else "."
    heads = ("", *kinds, "in all", "on cases that compiled")
    return [element("div", picture, table("Time", heads, rows), element("p", told, class_="soft"), class_="card")]


def _reasons(pair: Pair) -> str:
    return ", ".join(f"{why} {count(n)}" for why, n in pair.missing.items())


def _bad(n: int) -> Markup:
    return element("td", count(n), class_="bad" if n else None)


def _ratio(value: float) -> Markup:
    return element("td", ratio(value), class_="bad" if value > 1 else None)
