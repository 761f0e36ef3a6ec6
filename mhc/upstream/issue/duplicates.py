"""Compare a finding with issues that are known upstream, from a file beside this module.

The network is not used: the file is as old as it says, so search the tracker by hand before you file an issue.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mhc.files import replace_text
from mhc.upstream.issue import text as issue

FILE = Path(__file__).with_name("known_issues.json")
LIKELY, RELATED = 0.75, 0.4
"""From which score on an issue is called likely the same, and from which on it is named at all."""

_OTHER_SYMPTOM = 0.5
_NAMED = 5
_PLACES = 2  # one word in common says nothing


@dataclass(frozen=True, kw_only=True)
class Known:
    """One issue or pull request.

    Attributes:
        symptoms: of value, class, zero, raises, crash, hang, race. subjects: outputs of the operator, where it is of one.
        keywords: what a program or its message has if it is the same; the words of one entry, divided by `|`, are one place.
    """

    repository: str
    number: int
    state: str
    title: str
    symptoms: tuple[str, ...]
    subjects: tuple[str, ...]
    keywords: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.repository}#{self.number}"

    @property
    def address(self) -> str:
        """Return the address of the issue; GitHub redirects it to a pull request of that number."""
        return f"https://github.com/{self.repository}/issues/{self.number}"


@dataclass(frozen=True)
class Match:
    """How much an issue is like a finding, from 0 to 1, and why.

    Attributes:
        likely: it is of the DSL or of what that is built on, and has nearly all that it would have if it was the same.
    """

    known: Known
    score: float
    likely: bool
    reasons: tuple[str, ...]


@cache
def known_issues(path: Path = FILE) -> tuple[str, tuple[Known, ...]]:
    """Return the day on which the file was made, and its issues."""
    document = json.loads(path.read_text(encoding="utf-8"))
    plain = ("symptoms", "subjects", "keywords")
    issues = (Known(**{**one, **{name: tuple(one[name]) for name in plain}}) for one in document["issues"])
    return document["asked"], tuple(issues)


def symptom_kind(symptom: str) -> str:
    """Return the kind of a fingerprint's symptom, as the file names it."""
    first = symptom.split(maxsplit=1)[0] if symptom else ""
    return {"all": "zero", "hang": "hang", "timeout": "hang"}.get(first, "crash" if first.startswith("SIG") else first)


def matches(text: str, symptom: str, subject: str, issues: Sequence[Known], *, to: str) -> list[Match]:
    """Return the issues that may be the same, the likeliest first.

    The score is the part of an issue's keywords that the text has, where a keyword of fewer issues weighs more; it is
    halved where the symptom differs. An issue of an operator's output is left out where another output is wrong,
    and one of another DSL always; one of a kernel of this operator elsewhere is named, and never likely: it shows what such
    kernels get wrong.

    Args:
        text: the finding's program and messages. symptom: of its fingerprint. subject: the output that is wrong, or a stage.
        to: of `REPOSITORIES`, whose maintainers are to read the issue.
    """
    kind, family = symptom_kind(symptom), issue.REPOSITORIES[to]
    weights = {place: _weight(place, issues) for one in issues for place in one.keywords}
    found = [match for one in issues if (match := _match(one, text, kind, subject, weights, family)) is not None]
    return sorted(found, key=lambda one: (not one.likely, -one.score, one.known.repository != family[0], -one.known.number))


def _match(
    known: Known, text: str, symptom: str, subject: str, weights: Mapping[str, float], family: Sequence[str]
) -> Match | None:
    own = known.repository in family
    if subject not in known.subjects and (known.subjects or not own):
        return None
    seen = {place: word for place in known.keywords for word in place.split("|") if _has(text, word)}
    score = sum(weights[place] for place in seen) / sum(weights[place] for place in known.keywords)
    same = symptom in known.symptoms
    score *= 1.0 if same else _OTHER_SYMPTOM
    if score < RELATED or (own and len(seen) < _PLACES):
        return None
    reasons = [f"`{word}`" for word in seen.values()]
    reasons += [f"the output {subject}"] if known.subjects else []
    reasons.append("the same symptom" if same else "another symptom")
    return Match(known, score, own and score >= LIKELY, tuple(reasons))


def _weight(place: str, issues: Sequence[Known]) -> float:
    words = set(place.split("|"))
    having = sum(any(words & set(other.split("|")) for other in one.keywords) for one in issues)
    return math.log((len(issues) + 1) / having)


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def section(found: Sequence[Match], asked: str) -> str:
    """Return the section of an issue, the likely ones first."""
    if not found:
        return f"None of the issues known on {asked} looks like it.\n"
    lines = [f"From the issues known on {asked}; search once more before filing."]
    for heading, likely in (("Likely the same:", True), ("Perhaps related:", False)):
        part = [one for one in found if one.likely == likely]
        if part:
            lines += ["", heading, "", *map(_line, part[:_NAMED])]
    return "\n".join(lines) + "\n"


def _line(one: Match) -> str:
    why = "; ".join(one.reasons)
    return f"- [{one.known.name}]({one.known.address}) ({one.known.state}): {one.known.title}. Has {why}."


def write(folder: Path) -> list[Match]:
    """Compare an exported folder with the known issues, keep the section there, and compose its issue anew."""
    document = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    repro = (folder / "repro.py").read_text(encoding="utf-8")
    asked, issues = known_issues()
    text = "\n".join([issue.title(document), document["told"]["values"], _own(repro)])
    subject = document.get("finding", {}).get("fingerprint", {}).get("subject", "")
    found = matches(text, document["symptom"], subject, issues, to=document["to"])
    replace_text(folder / "duplicates.md", section(found, asked))
    likely = [
        {"name": one.known.name, "address": one.known.address, "state": one.known.state, "score": round(one.score, 3)}
        for one in found
        if one.likely
    ]
    replace_text(folder / "duplicates.json", json.dumps({"asked": asked, "likely": likely[:_NAMED]}, indent=2) + "\n")
    issue.write(folder)
    return found


def _own(repro: str) -> str:
    """Return a repro without the beginning and the end that all of them have."""
    return repro.partition("sys.excepthook = other\n")[2].partition('\nprint(f"')[0] or repro
