"""The summary for a terminal, in Markdown."""

from collections.abc import Mapping
from typing import Any

from mhc.fuzz.report.stored_run import Run, StoredFinding
from mhc.fuzz.report.unjudged import without_numbers
from mhc.fuzz.report.words import bounded, count, cut, duration, plural, ratio
from mhc.terminal import safe

_LARGEST = 3  # outputs in a row of the table; the page has all


def markdown(run: Run) -> str:
    """Return what ran, a row for each implementation, each finding with its replay command, and what was not judged."""
    meta, device = run.meta, run.meta.get("device", "?")
    here = meta.get("environment", {})
    lines = [
        f"# {run.cases} cases in {run.seconds:.0f} s on {_cell(device)}, {len(run.findings)} findings",
        "",
        f"{run.outcome[1]}. Seed {cut(str(meta.get('seed', '?')), 80)}.{_environment(here)}",
        *(f"Device: {line}." for line in here.get("devices", [])),
        *_legs(run),
        *([f"{run.starting}."] if run.starting else []),
        "",
        "| implementation | checked | refused | findings | restarts | compiles per 1000 cases | largest error / bound |",
        "|---|---|---|---|---|---|---|",
        *(_row(run, name) for name in run.names),
        *(["", *(f"- {_cell(pair)}" for pair in run.pairs)] if run.pairs else []),
        *(["", "Largest sizes judged:", *map(_reached, run.reached.items())] if run.reached else []),
    ]
    if run.findings:
        lines += ["", "## Findings"]
        for found in run.findings:
            lines += ["", *_finding(found)]
        lines += ["", f"{run.advice}."] if run.advice else []
    if run.faults:
        lines += ["", "## Faults of the harness", "", *(f"- {_cell(cut(fault.line, 1000))}" for fault in run.faults)]
        lines += ["", "The report in pictures has their cases and tracebacks."]
    if run.unfinished:
        lines += ["", "Under way at the end, and not judged:", "", *(f"- {_cell(one)}" for one in run.unfinished)]
    lines += ["", f"In pictures: {run.folder / 'report.html'}"]
    if run.precision:
        lines += ["", *(f"Judged as declared: {_cell(name)}: {cut(words, 1000)}." for name, words in run.precision.items())]
    if run.refusals:
        lines += ["", *(f"Refused: {_cell(name)}: {cut(words, 1000)}." for name, words in run.refusals.items())]
    if run.sampled:
        lines += ["", *(f"Sampled tolerance: {_cell(name)}: {cut(words, 1000)}." for name, words in run.sampled.items())]
        lines += [
            "(A sampled tolerance is statistical; it stands in where the derived bound is far too wide: docs/tolerances.md.)"
        ]
    if run.gaps:
        lines += ["", *(f"Not judged: {_cell(name)}: {cut(words, 1000)}." for name, words in run.gaps.items())]
    return safe("\n".join(lines)) + "\n"


def _environment(here: Mapping[str, Any]) -> str:
    if not here:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in here.get("packages", {}).items())
    return f" Python {here.get('python', '?')}, {versions}; {here.get('processor', '?')}."


def _legs(run: Run) -> list[str]:
    if len(run.legs) == 1 and run.legs[0].ended != "killed":
        return []
    legs = "; ".join(f"{duration(leg.seconds)}, {leg.ended}" for leg in run.legs)
    hand = f"; {plural(len(run.in_hand), 'case')} begun and not counted" if run.in_hand else ""
    return [f"Legs: {bounded(legs)}{hand}."] if run.legs else []


def _row(run: Run, name: str) -> str:
    checked, compiled = run.count(name, "checked"), run.count(name, "compiled")
    found = sum(one.implementation == name for one in run.findings)
    rate = f"{1000 * compiled / checked:.3g}" if compiled and checked else "-"
    largest = sorted(((by[name][0], subject) for subject, by in run.worst.items() if name in by), reverse=True)[:_LARGEST]
    worst = ", ".join(f"{subject} {ratio(value)}" for value, subject in largest)
    worst = worst or without_numbers(run.counts.get(name, {}), ()) or "nothing judged"
    cells = [name, checked, run.count(name, "refused"), found, run.restarted(name), rate, worst]
    return "| " + " | ".join(_cell(one) for one in cells) + " |"


def _reached(pair: tuple[str, Mapping[str, int]]) -> str:
    name, sizes = pair
    return f"- {_cell(name)}: {', '.join(f'{_cell(symbol)} {count(size)}' for symbol, size in sizes.items())}"


def _finding(found: StoredFinding) -> list[str]:
    state = f"{found.progress}, {found.stability}, seen {plural(found.seen, 'time')}"
    block = [
        *([cut(found.known, 1000)] if found.known else []),
        *found.message.splitlines(),
        *found.source.splitlines(),
        f"{found.shape}, {plural(found.elements, 'element')}",
        *([found.details] if found.details else []),
        found.replay,
    ]
    if found.fixture:
        block.append(f"fixture {cut(found.fixture, 300)}")
    return [f"- **{_cell(found.id)}** {_cell(found.title)}: {state}", "", *(f"      {line}" for line in block)]


def _cell(value: object) -> str:
    """Return a text on one line, and without the characters that end a table's cell."""
    return " ".join(safe(str(value)).split()).replace("|", "\\|")
