"""The statements that must hold of a soak, what contradicts each, and the page."""

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mhc.bench.markdown import table
from mhc.bench.soak.run import RIGHT, Leg, Plan, Snapshot
from mhc.bench.verbs import today
from mhc.environment import environment
from mhc.oracles.mutants.misbehaving.catalogue import MISBEHAVING

LATE = 10.0
"""Seconds after its time within which a campaign ends."""
_FEWEST = 10  # cases of a right implementation, without which "nothing false" says nothing
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):?\n(?:[ \t][^\n]*\n)*([^\n]*)")
_SHOWN = 5  # of what contradicts a statement


@dataclass(frozen=True)
class Statement:
    """A statement that must hold of a soak, and what contradicts it."""

    words: str
    against: Sequence[str]

    @property
    def holds(self) -> bool:
        return not self.against

    def __str__(self) -> str:
        if self.holds:
            return f"holds: {self.words}"
        more = f"; {len(self.against) - _SHOWN} more" if len(self.against) > _SHOWN else ""
        return f"FAILS: {self.words}: {'; '.join(self.against[:_SHOWN])}{more}"


def statements(plan: Plan, legs: Sequence[Leg]) -> list[Statement]:
    """Return all statements that must hold, each with what contradicts it."""
    last = legs[-1].after

    def each(wrong: Callable[[Leg], Iterable[str]], *, orderly: bool = False) -> Iterator[str]:
        for number, leg in enumerate(legs, 1):
            if leg.orderly or not orderly:
                yield from (f"leg {number}: {one}" for one in wrong(leg))

    checks: Sequence[tuple[str, Iterator[str]]] = (
        ("nothing lost: findings stay, counts never shrink, the store is whole", _lost(legs)),
        ("nothing false: correct implementations are clean, the others show what they do", _false(last)),
        ("nothing missed: each misbehaving one was found", _missed(plan, last)),
        (
            f"a leg ends within {LATE:g} s of its time or of a signal",
            each(lambda leg: [f"{leg.late:.0f} s"] if leg.late > LATE else []),
        ),
        (
            "a leg that was not ended by SIGKILL writes its reports",
            each(lambda leg: [] if leg.reported else ["no reports"], orderly=True),
        ),
        (
            "no process outlives a leg that was not ended by SIGKILL",
            each(lambda leg: [", ".join(leg.left)] if leg.left else [], orderly=True),
        ),
        ("the exit status is 1, or 3 with a fault on record", each(_status, orderly=True)),
        ("no traceback and no control character is printed", each(_printed)),
    )
    return [Statement(words, list(found)) for words, found in checks]


def _lost(legs: Sequence[Leg]) -> Iterator[str]:
    """Yield what was there and is not any more, but for what was taken back."""
    before = Snapshot()
    known: set[str] = set()
    for number, leg in enumerate(legs, 1):
        known = (known | leg.printed | set(before.findings)) - leg.dropped
        yield from (f"{one} after leg {number}" for one in sorted(known - set(leg.after.findings)))
        for name, n in before.counts.items():
            now = leg.after.counts.get(name, 0.0)
            if now < n:
                yield f"{name}: {n:g}, after leg {number} {now:g}"
        if not leg.after.whole:
            yield f"the file is damaged after leg {number}"
        before = leg.after


def _false(last: Snapshot) -> Iterator[str]:
    for text, (name, oracle, symptom) in last.findings.items():
        if name not in MISBEHAVING or not MISBEHAVING[name].allows(oracle, symptom):
            yield text
    for name, message in last.faults:
        if name not in MISBEHAVING or not MISBEHAVING[name].faults:
            yield f"fault of {name or 'the harness'}: {_first_line(message)}"
    for name in RIGHT:
        if last.cases.get(name, 0) < _FEWEST:
            yield f"{name} was given {last.cases.get(name, 0)} cases"


def _missed(plan: Plan, last: Snapshot) -> Iterator[str]:
    found = {name for name, _, _ in last.findings.values()}
    for name in plan.names:
        if name not in found and not MISBEHAVING[name].missable:
            yield f"{name} ({last.cases.get(name, 0)} cases)"


def _status(leg: Leg) -> Iterator[str]:
    found = 3 if leg.after.faults else 1 if leg.after.findings else None
    allowed = (0, 2) if found is None else (found,)  # a leg may end before anything is found, or judged
    if leg.status not in allowed:
        yield "did not end" if leg.status is None else str(leg.status)


def _printed(leg: Leg) -> Iterator[str]:
    for name, text in (("output", leg.output), ("errors", leg.errors)):
        for raised in _TRACEBACK.findall(text):
            yield f"a traceback in its {name}, {raised[:200]}"
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text):
            yield f"a control character in its {name}"


def line(number: int, leg: Leg) -> str:
    """Return one leg as a line for a terminal."""
    cases = sum(leg.after.cases.values())
    return f"leg {number}: {_ended(leg)}, {leg.seconds:.0f} s, {cases} cases, {len(leg.after.findings)} findings"


def _ended(leg: Leg) -> str:
    end = "its time" if leg.end is None else signal.Signals(leg.end).name
    return end if not leg.orderly else f"{end}, {'no end' if leg.status is None else f'status {leg.status}'}"


def render(plan: Plan, legs: Sequence[Leg], *, command: str) -> str:
    """Return the page."""
    here, last = environment(), legs[-1].after
    parts = [
        "# Soak: a campaign over implementations that misbehave, killed and resumed",
        "Whether a campaign loses or invents anything while its kernels crash, hang and leak and its process is killed.",
        ", ".join([today(), here.processor, f"Python {here.python}", f"torch {here.packages['torch']}", *here.devices]),
        f"    {command}",
        f"One campaign of {plan.seconds / 60:g} minutes on {plan.workers} workers (device {plan.device}), over "
        f"{len(plan.names)} misbehaving implementations beside {' and '.join(RIGHT)}; its main process was ended "
        f"{plan.kills} times at moments that seed {plan.seed} drew, and resumed each time. "
        f"{sum(last.cases.values()):,} cases, {len(last.findings)} findings, {len(last.faults)} faults.",
        "\n".join(f"- {one}" for one in statements(plan, legs)),
        "## Legs",
        "Late: seconds from the signal, or from the end of its time, to the end. Left: processes that still ran at the "
        "end of the leg. (After SIGKILL, no process remains that could end what a kernel has started.)",
        table(_LEGS, _legs(legs), ("---:", "---", "---:", "---:", "---:", "---:", "---")),
        "## Implementations",
        table(("implementation", "cases", "found", "expected"), _rows(plan, last), ("---", "---:", "---", "---")),
    ]
    return "\n\n".join(parts) + "\n"


_LEGS = ("leg", "ended by", "s", "late", "cases", "findings", "left")


def _legs(legs: Sequence[Leg]) -> Iterator[tuple[str, ...]]:
    for number, leg in enumerate(legs, 1):
        cases = sum(leg.after.cases.values())
        numbers = f"{leg.seconds:.0f}", f"{leg.late:.1f}", f"{cases:,}", str(len(leg.after.findings))
        left = ", ".join(f"{n} x `{words}`" for words, n in Counter(leg.left).items()) or "nothing"
        yield str(number), _ended(leg), *numbers, left


def _rows(plan: Plan, last: Snapshot) -> Iterator[tuple[str, ...]]:
    found: Mapping[str, list[str]] = {name: [] for name in (*RIGHT, *plan.names)}
    for name, oracle, symptom in sorted(set(last.findings.values())):
        found.get(name, []).append(f"{oracle}: {symptom}")
    for name, message in last.faults:
        found.get(name, []).append(f"fault: {_first_line(message)}")
    for name, words in found.items():
        yield name, f"{last.cases.get(name, 0):,}", "; ".join(words) or "nothing", expected(name)


def _first_line(message: str) -> str:
    """Return what fits in a cell, with files without their folders; PyTorch's message for a CUDA error has five lines."""
    return re.sub(r"/(?:[^/\s']+/)+", "", next(iter(message.splitlines()), ""))[:60]


def expected(name: str) -> str:
    """Return what a campaign must find in an implementation, in words."""
    if name in RIGHT or not MISBEHAVING[name].finds:
        return "nothing"
    one = MISBEHAVING[name]
    words = [*one.finds, *(["a fault"] if one.faults else []), *([] if one.must else ["nothing"])]
    return " or ".join(words)
