"""Fill `report.html` into its templates: one file that opens offline, loads nothing and runs nothing."""

import json
import math
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache, partial

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from mhc import drawn_case
from mhc.case_json import CaseError
from mhc.fuzz.check.differential import Pair
from mhc.fuzz.report import error_picture, pictures, words
from mhc.fuzz.report.stored_run import Run
from mhc.terminal import safe

_SHADES = 8
_ENDS = {"passed": "c0", "failing": "bad", "refused": "rest"}


@dataclass(frozen=True)
class Live:
    """What a page that is served says of its campaign.

    Attributes:
        word: waiting, running, silent or ended. line: the same for people. more: what changes all the time.
    """

    word: str
    line: str
    more: str = ""


def page(run: Run, live: Live | None = None) -> str:
    """Return the campaign as HTML, which is also XML.

    Args:
        live: of a page that updates itself, with a script that its server has; None for a page that runs nothing.
    """
    seconds = {name: run.spent(name) for name in run.names}
    aspects = run.aspects()
    labels = [label for listed in aspects.values() for label in listed]
    holes = [(name, label) for name in run.names for label in labels if not run.regions.get(name, {}).get(label)]
    missing = Counter(label for _, label in holes)
    kinds = list(next(iter(seconds.values()), {}))
    compiling = {name: run.counts.get(name, {}).get("compiling", 0.0) for name in run.names}
    return _template().render(
        run=run,
        live=live,
        about=_about(run),
        unjudged=[(name, one) for name in run.names for one in run.unjudged(name)],
        ends={name: _ends(run, name) for name in run.names},
        classes=_ENDS,
        owners=[name for name in run.names if any(name in by_name for by_name in run.worst.values())],
        judged={
            subject: {name: by_name[name] for name in run.names if by_name.get(name)}
            for subject, by_name in run.ratios.items()
        },
        kinds=kinds,
        seconds={"all": {kind: sum(row[kind] for row in seconds.values()) for kind in kinds}, **seconds},
        compiling={"all": sum(compiling.values()), **compiling},
        aspects=aspects,
        labels=labels,
        holes=holes,
        nowhere=[label for label in labels if missing[label] == len(run.names)],
        most=max((n for counts in run.regions.values() for n in counts.values()), default=1),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        finalize=_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = (words.bounded, words.count, words.cut, words.duration, words.plural, words.ratio, words.short)
    drawn = (pictures.distribution, pictures.hues, pictures.interval, pictures.shares, pictures.steps, pictures.timeline)
    environment.globals.update({one.__name__: one for one in (*shown, *drawn, error_picture.error_pictures)})
    environment.globals.update(cell_words=error_picture.WORDS, cell_classes=error_picture.CLASSES)
    environment.globals.update(
        case_id=_case_id, clock=_clock, indented=partial(json.dumps, indent=2), reasons=_reasons, shade=_shade
    )
    return environment.get_template("page.html")


def _text(value: object) -> object:
    """Return what a template writes for a value: text without control characters, and floats to a tenth."""
    if hasattr(value, "__html__"):
        return value
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else safe(str(value))


def _about(run: Run) -> dict[str, object]:
    """Return what ran, by name; None if it is not known."""
    meta, here = run.meta, run.meta.get("environment", {})
    specs = [
        str(one["name"]) if one["name"] == one.get("spec") else f"{one['name']} ({one.get('spec')})"
        for one in meta.get("implementations", [])
    ]
    return {
        "budget": words.bounded(str(meta.get("budget", "?")), 300),
        "seed": words.bounded(str(meta.get("seed", "?")), 300),
        "device": meta.get("device"),
        "workers": meta.get("workers"),
        "implementations": words.bounded(", ".join(specs)) or None,
        "devices": ("; ".join(here["devices"]) or "no CUDA device") if "devices" in here else None,
        "processor": here.get("processor"),
        "platform": here.get("platform"),
        "Python": here.get("python"),
        "packages": ", ".join(f"{name} {version}" for name, version in here.get("packages", {}).items()) or None,
        "CUDA": here.get("cuda"),
        "variables": " ".join(f"{name}={value}" for name, value in here.get("variables", {}).items()) or None,
        "known before": words.bounded("\n".join(map(str, meta.get("known", [])))) or None,
    }


def _ends(run: Run, name: str) -> dict[str, float]:
    """Count the cases of an implementation that passed, failed and were refused."""
    checked, failing, refused = (float(run.count(name, what)) for what in ("checked", "failing", "refused"))
    return {"passed": max(0.0, checked - failing), "failing": failing, "refused": refused}


def _reasons(pair: Pair) -> str:
    return ", ".join(f"{why} {words.count(n)}" for why, n in pair.missing.items())


def _shade(n: int, most: int) -> str:
    """Return the class of a cell in a coverage map, on a logarithmic scale."""
    return "none" if n == 0 else f"h{min(_SHADES - 1, int(_SHADES * math.log1p(n) / math.log1p(max(most, 2))))}"


def _case_id(case: str) -> str:
    try:
        return drawn_case.read(case).words
    except CaseError:
        return case


def _clock(at: float) -> str:
    """Return a time of day in local time, as in the names of run folders."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))
