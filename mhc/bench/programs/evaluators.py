"""The two evaluators against each other: drawn programs in Python and in C of our own."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

from mhc.fuzz.check.program_check import check_all
from mhc.oracles.verdict import Status, Verdict
from mhc.programs.grammar import Program
from mhc.programs.targets import TARGETS, ProgramTarget
from mhc.strategies.programs.programs import CPU, GPU
from mhc.strategies.programs.programs import programs as drawn_programs
from mhc.strategies.programs.statements import Features
from mhc.strategies.rounds import ROUND, drawn

CHUNK = 500
"""Programs that are drawn, compiled in one file and compared at a time."""
KINDS: Mapping[str, Features] = MappingProxyType({"c": CPU, "cuda": GPU})
"""What is drawn for a compiler's target of a kind."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Programs to be compared: of a kind, from a seed on."""

    kind: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What came of a chunk.

    Attributes:
        distinct: programs that differ from one another. outputs: that were compared. judged: programs with a verdict.
        differences: a program's JSON and what differs. seconds: of one core, from drawing to comparing.
    """

    name: str
    kind: str
    judged: int
    distinct: int
    outputs: int
    differences: list[list[str]]
    seconds: float


def chunks(programs: int, seed: int) -> list[Chunk]:
    """Return chunks of `programs` programs in all, of each kind in turn. The seeds of rounds follow one another."""
    each = CHUNK // ROUND
    kinds = list(KINDS)
    numbers = range(-(-programs // CHUNK))
    return [Chunk(kind=kinds[number % len(kinds)], seed=seed + number * each) for number in numbers]


def compare(chunk: Chunk, target: ProgramTarget = TARGETS["plain-c"]) -> Compared:
    """Draw the programs of a chunk, and return where the target's outputs differ from the evaluator's."""
    started = _cpu_seconds()
    programs = sample(KINDS[chunk.kind], CHUNK, chunk.seed)
    results = list(judge(target, programs))
    failed = [(program, one) for program, verdicts in results for one in verdicts if one.status is Status.FAIL]
    return Compared(
        name=chunk.name,
        kind=chunk.kind,
        judged=sum(any(one.status is not Status.NOT_APPLICABLE for one in verdicts) for _, verdicts in results),
        distinct=len({program.id for program in programs}),
        outputs=sum(len(verdicts) for _, verdicts in results),
        differences=[[program.json, one.message] for program, one in failed],
        seconds=_cpu_seconds() - started,
    )


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of the compilers that it ran."""
    return sum(os.times()[:4])


def sample(features: Features, programs: int, seed: int) -> list[Program]:
    """Return programs as a campaign draws them: in rounds, whose seeds follow one another."""
    found: list[Program] = []
    for one in count(seed):
        found += drawn(drawn_programs(features), ROUND, one)
        if len(found) >= programs:
            break
    return found[:programs]


def judge(target: ProgramTarget, programs: Sequence[Program]) -> Iterator[tuple[Program, list[Verdict]]]:
    """Return each program with the verdicts on what a target makes of it; all are compiled at once."""
    return zip(programs, check_all(target, programs), strict=True)
