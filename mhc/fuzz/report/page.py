"""The page: `report.html`, one file that opens offline. It loads nothing and runs nothing."""

import time
from importlib.resources import files
from typing import Any

from mhc.case_json import parse
from mhc.fuzz.report import coverage, findings, tables
from mhc.fuzz.report.markup import Child, Markup, element, join
from mhc.fuzz.report.pictures import distribution, timeline
from mhc.fuzz.report.snapshot import Run
from mhc.fuzz.report.words import bounded, cut, duration, plural

# Whatever slips through: a browser that keeps to this policy neither loads nor runs anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(run: Run) -> str:
    """The campaign as HTML, which is XML too."""
    word, headline = run.outcome
    sections = [
        ("findings", "Findings", findings.cards(run)),
        ("implementations", "Cases by implementation", tables.implementations(run)),
        ("time", "Cases over time", _timeline(run)),
        ("coverage", "Coverage of the space of cases", coverage.maps(run)),
        ("errors", "Errors against their bounds", _distributions(run)),
        ("worst", "Worst case of each output", tables.worst(run)),
        ("spent", "Where the time went", tables.spent(run)),
        ("ran", "What ran", _ran(run)),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": _POLICY}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{headline} - mhc.fuzz"),
        element("style", Markup(files(__package__).joinpath("style.css").read_text(encoding="utf-8"))),
    )
    links = [element("a", title, href=f"#{id_}") for id_, title, _ in sections]
    top = element("header", element("h1", headline), _subtitle(run), element("nav", *links), class_=f"verdict {word}")
    body = [element("section", element("h2", title), *content, id=id_) for id_, title, content in sections]
    document = element("html", head, element("body", element("main", top, *body)), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


def _subtitle(run: Run) -> Markup:
    meta = run.meta
    about = [
        f"on {meta.get('device', '?')}",
        plural(len(run.names), "implementation"),
        cut(f"seed {meta.get('seed', '?')}", 80),
        *([f"started {_clock(run.legs[0].started)}"] if run.legs else []),
    ]
    parts: list[Child] = [element("p", ", ".join(about), class_="soft")]
    if run.gaps:
        told = [element("li", element("strong", name), f": {bounded(words)}.") for name, words in run.gaps.items()]
        parts.append(element("div", element("p", "Not judged:"), element("ul", *told)))
    if run.faults:
        told = [element("pre", bounded(fault.whole)) for fault in run.faults]
        parts.append(element("div", element("p", "Faults of the harness:"), *told))
    if run.unfinished:
        told = [element("li", bounded(str(one))) for one in run.unfinished]
        parts.append(element("div", element("p", "Still in hand at the end:"), element("ul", *told)))
    if run.legs and run.legs[-1].ended == "killed":
        hand = f"; {plural(len(run.in_hand), 'case')} in hand" if run.in_hand else ""
        parts.append(element("p", f"The last leg was killed, or still runs{hand}.", class_="soft"))
    return join(*parts)


def _ran(run: Run) -> list[Child]:
    meta, here = run.meta, run.meta.get("environment", {})
    specs = [
        str(one["name"]) if one["name"] == one.get("spec") else f"{one['name']} ({one.get('spec')})"
        for one in meta.get("implementations", [])
    ]
    told: dict[str, Child] = {
        "command": element("code", bounded(str(meta.get("command", "?"))), class_="copy"),
        "budget": bounded(str(meta.get("budget", "?")), 300),
        "seed": bounded(str(meta.get("seed", "?")), 300),
        "device": meta.get("device"),
        "workers": meta.get("workers"),
        "implementations": bounded(", ".join(specs)) or None,
        "devices": ("; ".join(here["devices"]) or "no CUDA device") if "devices" in here else None,
        "processor": here.get("processor"),
        "platform": here.get("platform"),
        "Python": here.get("python"),
        "packages": ", ".join(f"{name} {version}" for name, version in here.get("packages", {}).items()) or None,
        "CUDA": here.get("cuda"),
        "variables": " ".join(f"{name}={value}" for name, value in here.get("variables", {}).items()) or None,
        "known before": bounded("\n".join(map(str, meta.get("known", [])))) or None,
    }
    rows = [part for key, value in told.items() if value is not None for part in (element("dt", key), element("dd", value))]
    legs: list[list[Child]] = [
        [leg.number, tables.words(_clock(leg.started)), duration(leg.seconds), tables.words(leg.ended)] for leg in run.legs
    ]
    hand: list[list[Child]] = [[slot, tables.words(name), tables.words(_case_id(case))] for slot, name, case in run.in_hand]
    heads = (("leg", "started", "took", "ended"), ("slot", "implementation", "case"))
    under = [tables.table("Legs", heads[0], legs, text={1, 3})] if legs else []
    under += [tables.table("Begun and not counted", heads[1], hand, text={1, 2})] if hand else []
    return [
        element("div", element("dl", *rows), class_="card"),
        element("div", *under, class_="card beside") if under else None,
    ]


def _timeline(run: Run) -> list[Child]:
    picture = timeline(run)
    if picture is None:
        return [element("p", "No case has ended yet.", class_="soft")]
    note = "A red triangle is a finding, at the time when it was first met; a dashed line is where one leg ended."
    return [
        element("div", element("div", picture, class_="wide", tabindex=0), element("p", note, class_="soft"), class_="card")
    ]


def _distributions(run: Run) -> list[Child]:
    if not run.ratios:
        return [element("p", "Nothing was judged.", class_="soft")]
    note = (
        "For each output, how many cases had their largest |error| / bound in each power of two. Right of the line, at 1,"
        " is a failure. An output that stays far left of it everywhere may have a bound that is too wide."
    )
    cards = [
        element("div", element("h3", subject), distribution(run, subject), tables.bins(run, subject), class_="card")
        for subject in run.ratios
    ]
    return [element("p", note, class_="soft"), element("div", *cards, class_="cards", style="--least: 380px")]


def _case_id(case: str) -> str:
    try:
        fields: Any = parse(case)
        return ", ".join(f"{name} = {fields[name]}" for name in ("B", "S", "n", "D", "dtype"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return case


def _clock(at: float) -> str:
    """In local time, as the names of run folders are."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))
