"""The findings of a report, a card for each."""

import json

from mhc.fuzz.report.markup import Child, Markup, element
from mhc.fuzz.report.snapshot import Found, Run
from mhc.fuzz.report.words import bounded, count, duration, plural

_LONGEST_CASE = 20_000


def cards(run: Run) -> list[Child]:
    if not run.findings:
        return [element("p", "None.", class_="soft")]
    cards = [_card(found) for found in run.findings]
    return [element("div", *cards, class_="cards", style="--least: 500px")]


def folded_case(text: str) -> Markup:
    """A case's JSON, to be copied into a file and replayed."""
    return element(
        "details", element("summary", "case as JSON"), element("pre", bounded(text, _LONGEST_CASE), class_="copy")
    )


def _card(found: Found) -> Markup:
    again = found.reduction
    sure = "good" if again is not None and again.stable else "warn"
    badges = [
        element("span", "known" if found.known else "new", class_="badge" if found.known else "badge bad"),
        element("span", found.stability, class_=f"badge {sure}"),
        element("span", found.state, class_="badge"),
        element("span", f"seen {plural(found.seen, 'time')}", class_="badge"),
        element("span", f"first after {duration(found.at)}", class_="badge"),
    ]
    variables = found.document.get("environment", {}).get("variables", {})
    told: dict[str, Child] = {
        "case": found.shape + ("" if found.elements is None else f"; {plural(found.elements, 'element')}"),
        "implementation": bounded(str(found.document.get("implementation", "?")), 300),
        "variables": " ".join(f"{name}={value}" for name, value in variables.items()) or None,
        "minimised": _minimised(found),
        "fixture": element("code", bounded(found.fixture, 300)) if found.fixture else None,
        "ledger": None if found.known is None else bounded(found.known, 1000),
    }
    rows = [part for key, value in told.items() if value is not None for part in (element("dt", key), element("dd", value))]
    return element(
        "article",
        element("h3", element("code", found.id), " ", found.title),
        element("div", *badges),
        element("pre", found.message),
        element("dl", *rows),
        element("pre", found.replay, class_="copy", title="replay"),
        folded_case(json.dumps(found.case, indent=2)),
        class_="card",
        id=f"finding-{found.id}",
    )


def _minimised(found: Found) -> str | None:
    """What minimising made of it and cost, where it was done."""
    how = found.reduction
    if how is None:
        return None
    sizes = f"{count(how.elements_before)} to {plural(how.elements, 'element')}"
    return f"{sizes}, in {plural(how.checks, 'check')} and {duration(how.seconds)}"
