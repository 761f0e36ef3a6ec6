"""How short exported programs are, and whether they run by themselves: one of each known-bad kernel's smallest finding."""

import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mhc.bench.minimal.measure import Minimal
from mhc.bench.state import Results
from mhc.case import Case
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.registry import load
from mhc.upstream.export import program_of
from mhc.upstream.reduce.reduction import shortened
from mhc.upstream.verify import ExportError
from oracles.mutants.load import SPEC
from oracles.mutants.record import Mutant

GOAL = 120
"""Lines of a program, at most, in the median of a DSL."""

TO = {"triton": "triton", "tilelang": "tilelang", "manual": "torch"}
"""By the mutant's base, whose program it is."""


@dataclass(frozen=True, kw_only=True)
class Repro:
    """What became of one mutant's finding.

    Attributes:
        fingerprint: as `Minimal` has it. form: of the program. values: what it says is expected, and what it got.
        lines: of the program; whole: before its statements were reduced. widest: columns of its longest line.
        runs: in which it reproduced, each a fresh process.
        refused: why there is no program.
    """

    name: str
    base: str
    fingerprint: str
    form: str = ""
    values: str = ""
    lines: int = 0
    whole: int = 0
    widest: int = 0
    runs: int = 0
    refused: str = ""
    seconds: float = 0.0


class State(Results[Repro]):
    """Mutants that are done."""

    key, kind = "repros", Repro


def measure(
    mutants: Sequence[Mutant],
    found: Iterable[Minimal],
    state: State,
    *,
    jobs: int,
    seconds: float,
    texts: Path | None = None,
    on_result: Callable[[Repro], None] = lambda result: None,
) -> list[Repro]:
    """Export the smallest finding of each mutant that has one and that `state` does not have yet, `jobs` at a time.

    Args:
        seconds: that reducing one program may take. texts: a folder that gets the programs, NAME.py.
    """
    smallest = {one.name: one for one in found if one.case}
    chosen = [mutant for mutant in mutants if mutant.name in smallest]
    waiting = [mutant for mutant in chosen if mutant.name not in state.done]

    def one(mutant: Mutant) -> Repro:
        return export_one(smallest[mutant.name], seconds, texts)

    state.complete(waiting, one, jobs, lambda mutant, result: on_result(result))
    return [state.done[mutant.name] for mutant in chosen]


def finding_of(small: Minimal) -> Finding:
    """The finding that `minimal` made smaller."""
    matched = re.fullmatch(r"(\w+): (.+) \((\w+)\)", small.fingerprint)
    assert matched is not None, small.fingerprint
    case, spec = Case.from_json(small.case), SPEC.format(small.name)
    implementation = load(spec)
    subject, symptom, oracle = matched.groups()
    fingerprint = Fingerprint(
        operator=case.operator, implementation=implementation.name, oracle=oracle, subject=subject, symptom=symptom
    )
    return Finding(fingerprint=fingerprint, spec=spec, variables=implementation.env, case=case, message=small.message)


def export_one(small: Minimal, seconds: float, texts: Path | None) -> Repro:
    """The program of a finding, seen to reproduce; or why there is none."""
    started = time.monotonic()
    result = Repro(name=small.name, base=small.base, fingerprint=small.fingerprint)
    with tempfile.TemporaryDirectory() as folder:
        repro = Path(folder) / "repro.py"
        try:
            program = program_of(finding_of(small), TO[small.base], "cpu", repro)
            program, outcomes = shortened(program, repro, [], seconds=seconds)
        except ExportError as refusal:
            return _timed(result, started, refused=str(refusal))
        text = repro.read_text(encoding="utf-8")
    if texts is not None:
        (texts / f"{small.name}.py").write_text(text, encoding="utf-8")
    return _timed(
        result,
        started,
        form=program.form,
        values=outcomes[-1].values,
        lines=program.lines,
        whole=len(program.unreduced.splitlines()),
        widest=max(map(len, text.splitlines())),
        runs=len(outcomes),
    )


def _timed(result: Repro, started: float, **fields: object) -> Repro:
    return Repro(**{**vars(result), **fields, "seconds": time.monotonic() - started})


def median(results: Iterable[Repro], base: str) -> float:
    """Lines of the programs of one base; 0 where there is none."""
    return statistics.median([one.lines for one in results if one.base == base and one.lines] or [0])
