"""Make a program smaller, statement by statement, while it does the same: delta debugging on more than one input.

Comparing the one wrong number is not enough: if a compiler drops a term, the number is the same with and without the term in
the source. So a smaller program must, bit for bit,

- give the whole of the wrong result, for what was found and for other numbers in its place (`mhc.upstream.program.witness`);
- do what the larger one does under each other setting that is asked for: one that heals the compiler's fault, or an
  interpreter. There the result is what the source says;
- read every input that the reference reads and that is not all zeros;
- stay inside its tensors, which on a CPU lie between protected pages.
"""

import ast
import builtins
import copy
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mhc.upstream.diagnose.attribution import EVALUATED, Setting
from mhc.upstream.program.program import Program
from mhc.upstream.program.script import Call, Script, names_in
from mhc.upstream.reduce.edits import Definitions, edited, edits, free, sites, without
from mhc.upstream.reduce.probe import Probe
from mhc.upstream.source.flat import Flat, parameters
from mhc.upstream.source.shrink import shrink
from mhc.upstream.source.slice import cut, prim_func
from mhc.upstream.source.text import unparse
from mhc.upstream.verify import Outcome, confirmed, verify

SECONDS = 180.0
_PATIENCE = 5.0
_LEAST = 5.0
"""A smaller program may take so many times as long as the whole one, and at least so many seconds."""

_FILLED = Setting(name="locals filled with a pattern", more=("-ftrivial-auto-var-init=pattern",))
_INTERPRETED = Setting(name="interpreted", variables={"TRITON_INTERPRET": "1"})


def shortened(
    program: Program, repro: Path, heals: Sequence[Setting], *, seconds: float = SECONDS
) -> tuple[Program, list[Outcome]]:
    """Write the smallest program that reproduces each time to `repro`; return it and its runs.

    Args:
        heals: settings of the compiler that heal it; under them the result must stay what it is.

    Raises:
        ExportError: neither a smaller program nor `program` reproduces each time.
    """
    semantics = _semantics(program, heals)
    if program.script.device == "cpu" or semantics:  # else nothing says what its source means
        with ExitStack() as probes:
            started = [Probe(program.script, program.witnesses), *(_under(program, one) for one in semantics)]
            for probe in started:
                probes.callback(probe.close)
            small = replace(program, script=reduced(program.script, started, seconds=seconds))
        if small.lines < program.lines:
            repro.write_text(small.text, encoding="utf-8")
            outcomes = verify(repro)
            if outcomes[-1].reproduced:
                return small, outcomes
    repro.write_text(program.text, encoding="utf-8")
    return program, confirmed(repro)


def _semantics(program: Program, heals: Sequence[Setting]) -> list[Setting]:
    """Return the settings under which the program does what its source says, or shows that it reads uninitialised memory."""
    if program.to == "triton" and "TRITON_INTERPRET" not in program.script.environment:
        return [_INTERPRETED, *heals[:1]]
    on_c = program.to == "tilelang" and program.script.device == "cpu"
    return [*([EVALUATED, _FILLED] if on_c else []), *(one for one in heals[:1] if one is not EVALUATED)]


def _under(program: Program, setting: Setting) -> Probe:
    python = (sys.executable, "-P", *(["-c", setting.boot] if setting.boot else []))
    return Probe(program.script, program.witnesses, python, variables=setting.environment)


@dataclass(frozen=True)
class Candidate:
    """Definitions and launches of a program."""

    definitions: Definitions
    calls: tuple[Call, ...]


def reduced(whole: Script, probes: Sequence[Probe], *, seconds: float = SECONDS) -> Script:
    """Return the smallest program found within `seconds`; the given one if two runs of it differ.

    Args:
        probes: each with a setting of its own; the first has the finding's. One under which nothing is seen is not asked.
    """
    deadline = time.monotonic() + seconds
    seen = [_baseline(probe, whole) for probe in probes]
    if seen[0] is None:
        return whole
    asked = [(probe, one) for probe, one in zip(probes, seen, strict=True) if one is not None]
    search = _Search(whole, asked, deadline)
    search.shrink()
    text = ""
    while text != (text := search.script(search.state).text()):
        search.fewer()
        search.shrink()
        search.simpler(addresses=whole.alone and all(probe.guarded for probe, _ in asked))
        search.shrink()
    return search.script(search.state)


def _baseline(probe: Probe, whole: Script) -> str | None:
    """Return what the whole program does; None if two runs differ. The probe learns how long a run takes."""
    for guarded in (True, False):
        probe.guarded = guarded
        started = time.monotonic()
        seen = [probe.observe(whole) for _ in range(2)]
        if seen[0] != seen[1] or ('"seen"' not in seen[0] and whole.result):
            continue
        probe.seconds = max(_LEAST, _PATIENCE * (time.monotonic() - started))
        return seen[0]
    return None


def smaller(whole: Script, state: Candidate, *, shrinks: bool) -> Candidate | None:
    """Return a candidate without its unused parts; None if it does not read an input that it must read.

    Args:
        shrinks: it is written out and folded anew.
    """
    made = Flat(set(), {name: copy.deepcopy(node) for name, node in state.definitions.items()})
    variables = {*whole.given, *whole.made}
    wanted = names_in(whole.result or "\n".join(whole.observed)) & variables
    calls = list(state.calls)
    if not calls:
        return None
    if wanted and not calls[0].head.startswith("returned = "):
        launched = [(call.kernel, _variables(call, variables)) for call in calls]
        calls = [calls[at] for at in cut(made, launched, set(wanted))]
    entries = list(dict.fromkeys(call.kernel for call in calls))
    if not entries:
        return None
    made.keep(entries)
    if shrinks:
        shrink(made, entries)
    left = []
    for call in calls:
        read = parameters(prim_func(made.functions[call.kernel]))
        left.append(replace(call, arguments={name: value for name, value in call.arguments.items() if name in read}))
    script = replace(whole, calls=left)
    needed = names_in("\n".join([*script.launches, *(one.expression for one in script.used.values())]))
    return Candidate(made.definitions, tuple(left)) if set(whole.needs) <= needed else None


def _variables(call: Call, variables: set[str]) -> dict[str, str]:
    """Return the variable that each argument is, where it is one."""
    found = {name: sorted(names_in(value) & variables) for name, value in call.arguments.items()}
    return {name: those[0] for name, those in found.items() if those}


class _Search:
    """A state that becomes smaller.

    Args:
        asked: probes, each with what it saw of the whole program.
    """

    def __init__(self, whole: Script, asked: Sequence[tuple[Probe, str]], deadline: float) -> None:
        self._whole, self._asked, self._deadline = whole, asked, deadline
        self._known = {name for line in whole.imports for name in line.split()[-1].split(".")[:1]} | set(vars(builtins))
        # most definitions are shared by two states
        self._text = cache(lambda definition: "\n".join(unparse([definition])))
        self._free = cache(free)
        self._tried = {_launched(whole)}
        self.state = Candidate(
            {name: ast.parse(text).body[0] for name, text in whole.definitions.items()}, tuple(whole.calls)
        )

    def script(self, state: Candidate) -> Script:
        """Return the program of a state."""
        texts = {name: self._text(node) for name, node in state.definitions.items()}
        return replace(self._whole, definitions=texts, calls=state.calls)

    def _sound(self, definitions: Definitions) -> bool:
        """Return whether every name that is read is bound, and every buffer that is read is written to."""
        read = [self._free(node) for node in definitions.values()]
        return all(names is not None and names <= self._known | definitions.keys() for names in read)

    def _same(self, state: Candidate) -> bool:
        """Return whether a state does what the whole program does; False too of what was tried before."""
        if time.monotonic() > self._deadline or not self._sound(state.definitions):
            return False
        script = self.script(state)
        text = _launched(script)
        if text in self._tried:  # what was tried is no better, and what the state is already no smaller
            return False
        self._tried.add(text)
        return all(probe.observe(script, seen) == seen for probe, seen in self._asked)

    def accepts(self, candidate: Candidate) -> bool:
        """Return whether a candidate does the same; then it becomes the state, without the parts that it no longer needs."""
        if not self._same(candidate):
            return False
        small = smaller(self._whole, candidate, shrinks=False)
        if small is None:
            return False
        self.state = small if self._same(small) else candidate
        return True

    def shrink(self) -> None:
        """Try the state written out and folded anew."""
        small = smaller(self._whole, self.state, shrinks=True)
        if small is not None and self._same(small):
            self.state = small

    def fewer(self) -> None:
        """Try to drop statements: half of them, a quarter, and so on to one at a time, from the end to the beginning."""
        many = len(sites(self.state.definitions))
        while many > 1:
            many = many // 2
            at, there = 0, sites(self.state.definitions)[::-1]
            while at < len(there):
                if self.accepts(Candidate(without(self.state.definitions, there[at : at + many]), self.state.calls)):
                    there = sites(self.state.definitions)[::-1]
                else:
                    at += many
        for call in self.state.calls[::-1]:
            others = tuple(one for one in self.state.calls if one is not call)
            if others:
                self.accepts(Candidate(self.state.definitions, others))

    def simpler(self, *, addresses: bool) -> None:
        """Try edits, one at a time."""
        at, there = 0, list(edits(self.state.definitions, addresses=addresses))
        while at < len(there):
            if self.accepts(Candidate(edited(self.state.definitions, there[at]), self.state.calls)):
                there = list(edits(self.state.definitions, addresses=addresses))
            else:
                at += 1


def _launched(script: Script) -> str:
    """Return definitions and launches as text."""
    return "\n".join([*script.definitions.values(), *(call.line for call in script.calls)])
