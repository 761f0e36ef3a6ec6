"""What reports show of a campaign: its run, with findings, legs, and what was not finished or not judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mhc import drawn_case
from mhc.case_json import operator_of, parse
from mhc.fuzz.campaign.harness_faults import FaultRecord, read_faults
from mhc.fuzz.check.differential import Pair
from mhc.fuzz.findings.finding import UNCONFIRMED, UNKNOWN_CAUSE, Finding, Reduction
from mhc.fuzz.findings.ordering import elements
from mhc.fuzz.report.unjudged import Unjudged, by_sampling, nothing_judged, refusals, summary, unjudged, why_nothing
from mhc.fuzz.report.words import bounded, details, duration, has_special, plural
from mhc.operator import OPERATORS
from mhc.oracles import bound, nonfinite
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.languages import language_of
from mhc.strategies.regions import labels

_MUCH = 0.2  # of the time that workers start, from which on the report says it

_OFTEN = 5
"""So many times a wrong value is not met by chance."""
_KEPT = "wrong only after other calls, which leave something behind: a stale cache, or one whose key leaves out an argument"

Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class StoredFinding:
    """A finding, with what the store knows of it.

    Attributes:
        document: its file. known: the known issue that it is, in words; None if it is new.
        seen: how many times its fingerprint was met. state: raw or minimal.
        at: seconds of campaign time when it was first met.
        replay: the command that shows it again.
        fixture: the file that the test suite replays from now on, where one was written.
    """

    id: str
    finding: Finding
    document: Mapping[str, Any]
    seen: int
    state: str
    at: float
    known: str | None
    replay: str
    fixture: str | None

    @property
    def implementation(self) -> str:
        return self.finding.fingerprint.implementation

    @property
    def title(self) -> str:
        """Return the fingerprint in words."""
        return bounded(str(self.finding.fingerprint), 300)

    @property
    def message(self) -> str:
        """Return its message; of a wrong value that is not reproduced and was met often, that this is no chance."""
        words = self.finding.message
        if self.seen >= _OFTEN and self.finding.fingerprint.oracle in {bound.NAME, nonfinite.NAME}:
            words = words.replace(UNKNOWN_CAUSE, f"met {self.seen:,} times, so not by chance: {_KEPT}")
        return bounded(words)

    @property
    def case(self) -> Mapping[str, Any]:
        """Return the case as it is in the file."""
        case: Mapping[str, Any] = self.document["case"]
        return case

    @property
    def shape(self) -> str:
        return self.finding.case.words

    @property
    def details(self) -> str:
        """Return what its case has, in words."""
        return details(self.finding.case)

    @property
    def source(self) -> str:
        """Return the text of a program; nothing for a case of an operator."""
        case = self.finding.case
        return bounded(language_of(case).text(case)) if isinstance(case, DrawnProgram) else ""

    @property
    def reduction(self) -> Reduction | None:
        return self.finding.reduction

    @property
    def elements(self) -> int:
        """Return the number of elements of the first input."""
        return elements(self.finding.case)

    @property
    def stability(self) -> str:
        """Return how often it failed again in a fresh process."""
        again = self.reduction
        if again is None or not again.runs:
            return UNCONFIRMED
        if not again.reproduced:
            return f"not reproduced in {plural(again.runs, 'new process', 'new processes')}"
        return f"{'stable' if again.stable else 'flaky'}, {again.reproduced} of {again.runs}"

    @property
    def progress(self) -> str:
        """Return in words whether its case is minimal; one that did not fail again is the one that was drawn."""
        if self.state == "raw" or (self.state == "minimal" and self.reduction is not None and not self.reduction.reproduced):
            return "as drawn"
        return self.state


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """What a worker had in hand at the end. doing: in a word. seconds: for how long. case: its JSON, if it had begun one."""

    implementation: str
    doing: str
    seconds: float
    case: str | None

    def __str__(self) -> str:
        case = "" if self.case is None else f" {drawn_case.name_of(self.case)}"
        return f"{self.implementation}: {self.doing}{case} for {duration(self.seconds)}"


@dataclass(frozen=True)
class Leg:
    """One process's part of a campaign. started: time of day."""

    number: int
    started: float
    seconds: float
    ended: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """A campaign.

    Attributes:
        names: of implementations, in the order of the command line.
        counts: by implementation and word, as in `Store`.
        regions: cases, by implementation and label. timeline: by implementation and tick.
        ratios: outputs judged, by output, implementation and bin.
        reached: by implementation and symbol, the largest size of a case that was judged.
        worst: by output and implementation, the largest |error| / bound and the JSON of its case.
        pairs: who was compared with whom, and how often.
        restarts: (implementation, reason, times). in_hand: (slot, implementation, case) of what was begun and not counted.
    """

    folder: Path
    meta: Mapping[str, Any]
    names: Sequence[str]
    counts: Mapping[str, Mapping[str, float]]
    regions: Counts
    ratios: Mapping[str, Mapping[str, Mapping[int, int]]]
    worst: Mapping[str, Mapping[str, tuple[float, str]]]
    reached: Mapping[str, Mapping[str, int]]
    timeline: Mapping[str, Mapping[int, int]]
    pairs: Sequence[Pair]
    restarts: Sequence[tuple[str, str, int]]
    legs: Sequence[Leg]
    findings: Sequence[StoredFinding]
    in_hand: Sequence[tuple[int, str, str]]

    @property
    def seconds(self) -> float:
        return sum(leg.seconds for leg in self.legs)

    @property
    def cases(self) -> int:
        return sum(self.count(name, "checked") + self.count(name, "refused") for name in self.names)

    @property
    def new_findings(self) -> Sequence[StoredFinding]:
        """Return the findings that are not known issues."""
        return [found for found in self.findings if not found.known]

    @property
    def faults(self) -> Sequence[FaultRecord]:
        """Return the faults of the harness; the campaign continued after most of them."""
        found = read_faults(self.meta)
        if not found and self.legs and self.legs[-1].ended == "fault":  # of an older version, which kept only the last
            found = [FaultRecord(implementation="", message=str(self.meta.get("fault") or "fault"))]
        return found

    @property
    def unfinished(self) -> Sequence[Unfinished]:
        """Return the cases that were still in hand when the last leg ended."""
        return [Unfinished(**one) for one in self.meta.get("unfinished", ())]

    @property
    def status(self) -> int:
        """Return the exit status of its campaign.

        0 clean, 1 findings that are no known issues, 3 fault of the harness; 2 where nothing was judged of any
        implementation, or of one that was asked for by its name.
        """
        if self.faults or self.new_findings:
            return 3 if self.faults else 1
        every = len(self.empty) == len(self.names)
        return 2 if every or (self.empty and self.meta.get("chosen")) else 0

    @property
    def empty(self) -> Sequence[str]:
        """Return the implementations of which nothing was judged."""
        return [name for name in self.names if nothing_judged(self.counts.get(name, {}))]

    def unjudged(self, name: str) -> Sequence[Unjudged]:
        """Return the outputs of an implementation that were not always returned, or never judged."""
        return unjudged(self.counts.get(name, {}))

    @property
    def gaps(self) -> Mapping[str, str]:
        """Return what was not judged, in words, by implementation; without those of which everything was judged.

        Those that were not available are among them.
        """
        unjudged = {
            name: f"nothing was judged: {why_nothing(self.counts.get(name, {}))}"
            if name in self.empty
            else summary(self.unjudged(name))
            for name in self.names
        }
        return {**self.unavailable, **{name: words for name, words in unjudged.items() if words}}

    @property
    def unavailable(self) -> Mapping[str, str]:
        """Return the built-in implementations that were left out, by name, with what to install for them."""
        return {str(name): f"not available: {reason}" for name, reason in self.meta.get("unavailable", {}).items()}

    @property
    def precision(self) -> Mapping[str, str]:
        """Return the precision that implementations declare, where it is less than the reference's, in words."""
        listed = {str(one["name"]): str(one.get("precision", "")) for one in self.meta.get("implementations", ())}
        return {name: words for name, words in listed.items() if words}

    @property
    def advice(self) -> str:
        """Return what to declare if kernels never get the inputs of some findings; empty where none is so."""
        special = sum(has_special(one.finding.case, one.finding.fingerprint.subject) for one in self.findings)
        if not special:
            return ""
        some = f"{special} of {plural(len(self.findings), 'finding')} {'has' if special == 1 else 'have'}"
        out = "@operator(..., finite=True) leaves them out, if your kernels never get them"
        return f"{some} NaN or infinities among the inputs: {out}"

    @property
    def refusals(self) -> Mapping[str, str]:
        """Return why cases were refused, in words, by implementation; without those of which nothing was judged."""
        some = {name: refusals(self.counts.get(name, {})) for name in self.names if name not in self.empty}
        return {name: words for name, words in some.items() if words}

    @property
    def sampled(self) -> Mapping[str, str]:
        """Return what was judged with a sampled tolerance, in words, by implementation."""
        found = {name: by_sampling(self.counts.get(name, {})) for name in self.names}
        return {name: words for name, words in found.items() if words}

    @property
    def outcome(self) -> tuple[str, str]:
        """Return a word (fault, findings, known, nothing, partly, clean) and the headline."""
        over = f"{plural(self.cases, 'case')} in {duration(self.seconds)}"
        known = len(self.findings) - len(self.new_findings)
        if self.faults:
            met = plural(len(self.faults), "fault")
            return "fault", f"{met} of the harness, and {plural(len(self.findings), 'finding')}, in {over}"
        if self.new_findings:
            more = f" and {known} known" if known else ""
            return "findings", f"{len(self.new_findings)} new{more} findings in {over}" if more else (
                f"{plural(len(self.new_findings), 'finding')} in {over}"
            )
        if len(self.empty) == len(self.names):
            return "nothing", f"Nothing was judged: {over}"
        mostly = [name for name in self.refusals if self.count(name, "refused") > self.count(name, "checked")]
        partly = "; not everything was judged" if self.gaps else ""
        partly += f"; most cases of {', '.join(mostly)} were refused" if mostly else ""
        if known:
            return "known", f"Nothing new: {plural(known, 'known finding')} in {over}{partly}"
        return "partly" if partly else "clean", f"No findings in {over}{partly}"

    @property
    def starting(self) -> str:
        """Return how long each worker took to start, in words, where that is a large part of the time; "" elsewhere."""
        workers = self.meta.get("workers") or 1
        each = sum(self.spent(name)["starting"] for name in self.names) / workers
        if each < _MUCH * self.seconds:
            return ""
        whose = "The worker was" if workers == 1 else "Each worker was"
        return f"{whose} starting for {duration(each)} of {duration(self.seconds)}; no case ran meanwhile"

    def count(self, name: str, what: str) -> int:
        return round(self.counts.get(name, {}).get(what, 0))

    def spent(self, name: str) -> dict[str, float]:
        """Return the seconds by what they were spent on; `judging` is `checking` without the kernel and the reference."""
        counts = self.counts.get(name, {})
        running, reference = counts.get("running", 0.0), counts.get("reference", 0.0)
        return {
            "running": running,
            "reference": reference,
            "judging": max(0.0, counts.get("checking", 0.0) - running - reference),
            "drawing": counts.get("drawing", 0.0),
            "starting": counts.get("starting", 0.0),
        }

    def restarted(self, name: str) -> int:
        return sum(n for owner, _, n in self.restarts if owner == name)

    def aspects(self) -> dict[str, list[str]]:
        """Return the labels of regions by aspect, including those without a case."""
        operators = {found.finding.fingerprint.operator for found in self.findings}
        for by_name in self.worst.values():
            operators |= {operator_of(parse(case)) for _, case in by_name.values()}
        wanted = [label for name, table in OPERATORS.items() if name in operators for label in labels(table)]
        seen = sorted({label for counts in self.regions.values() for label in counts})
        found: dict[str, list[str]] = {}
        for label in dict.fromkeys([*wanted, *seen]):
            found.setdefault(label.partition(": ")[0], []).append(label)
        return found
