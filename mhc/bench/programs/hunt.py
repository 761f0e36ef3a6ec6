"""How many drawn programs it takes until one shows a planted fault, and how small that program becomes."""

import functools
import json
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mhc.bench.programs.evaluators import KINDS, sample
from mhc.bench.programs.plant import GENERATED, Fault, edited, planted
from mhc.files import replace_text
from mhc.fuzz.check.program_check import check, first_failing, lower, run, run_on_each, with_other_inputs
from mhc.oracles.verdict import Verdict
from mhc.programs.compile_error import CompileError
from mhc.programs.grammar import Buffer, Const, Program, Store, walk
from mhc.programs.known import known
from mhc.programs.minimise import search
from mhc.programs.targets import TARGETS, ProgramTarget
from mhc.programs.tilelang_words import signature
from mhc.strategies.programs.programs import CPU_BEFORE_VECTORS
from mhc.strategies.rounds import ROUND

LIMIT = 400.0
"""Seconds for a fault, after which its process is ended."""
_CHECKS, _SECONDS = 200, 4.0  # to minimise
_FORK = multiprocessing.get_context("fork")
_BATCH = {"plain-c": 64, "tilelang-to-c": 8}  # programs that are compiled in one file


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """A round of drawn programs that the target gets right without a fault.

    Attributes:
        programs: of each its number among all that were drawn, its JSON and what it is lowered to.
        drawn: programs of the round. wrong: those that the target itself gets wrong or refuses.
    """

    name: str
    programs: list[tuple[int, str, str]]
    drawn: int
    wrong: int


@dataclass(frozen=True, kw_only=True)
class Hunted:
    """What came of a fault.

    Attributes:
        target: that has it. after: the number of the first program that shows it; 0: none does.
        tried: programs that were run or refused: those whose text it changes. symptom: what the check says.
        nodes: of the first program. small: of the minimal one; 0 where the process ended. text: the minimal program's JSON.
        operations: of the minimal program.
    """

    name: str
    target: str
    after: int = 0
    tried: int = 0
    symptom: str = ""
    nodes: int = 0
    small: int = 0
    operations: str = ""
    text: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round to be lowered: of programs from `first` on."""

    target: str
    seed: int
    first: int

    @property
    def name(self) -> str:
        return f"{self.target} {self.seed}"


def rounds(target: str, programs: int, seed: int) -> list[Round]:
    """Return the rounds of so many programs."""
    return [Round(target=target, seed=seed + at, first=at * ROUND + 1) for at in range(-(-programs // ROUND))]


def right(one: Round) -> Lowered:
    """Draw a round in a process of its own, and return the programs that the target gets right."""
    found: Lowered | None = forked(one.target, _right, TARGETS[one.target], one)
    # where a program ends the process, none of the round counts
    return Lowered(name=one.name, programs=[], drawn=ROUND, wrong=ROUND) if found is None else found


def forked(target: str, function: Callable[..., Any], *arguments: Any, limit: float | None = None) -> Any:
    """Return what a function returns, called in a process that is forked after the target is warm; None where it ends.

    Args:
        limit: seconds, after which the process is ended.
    """
    _warm(target)
    here, there = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_ending, args=(_send, there, function, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(limit) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()
        here.close()


def _send(connection: Connection, function: Callable[..., Any], *arguments: Any) -> None:
    connection.send(function(*arguments))


def _right(target: ProgramTarget, one: Round) -> Lowered:
    features = CPU_BEFORE_VECTORS if target.kind == "c" else KINDS["cuda" if one.seed % 2 else "c"]
    drawn = sample(features, ROUND, one.seed)
    safe = [
        (number, program)
        for number, program in enumerate(drawn, start=one.first)
        if known(program, target.release(), target.kind, ends=True) is None
    ]
    lowered = [(number, program, text) for number, program in safe if isinstance(text := lower(target, program), str)]
    with tempfile.TemporaryDirectory(prefix="mhc-program-") as name:
        texts = [text for _, _, text in lowered]
        ready = target.prepare([program for _, program, _ in lowered], texts, Path(name), exact=False)
        found = [
            (number, program.json, text)
            for (number, program, text), one in zip(lowered, ready, strict=True)
            if first_failing(run_on_each(with_other_inputs(program, target.inputs), one)[1]) is None
        ]
    return Lowered(name=one.name, programs=found, drawn=len(drawn), wrong=len(safe) - len(found))


def hunt(fault: Fault, rounds_: Sequence[Lowered]) -> Hunted:
    """Hunt a fault in a process of its own, which it may end or hang. It is forked, so that the compiler is warm in it.

    Raises:
        RuntimeError: the hunt itself failed, which the process has said.
    """
    started = time.perf_counter()
    programs = [one for each in rounds_ for one in each.programs]
    target = TARGETS[fault.target]
    _warm(fault.target)
    with tempfile.TemporaryDirectory(prefix="mhc-programs-") as name:
        progress = Path(name) / "progress.json"
        process = _FORK.Process(target=_ending, args=(_hunted, target, fault, programs, progress), daemon=True)
        process.start()
        process.join(LIMIT)
        status = process.exitcode
        process.kill()
        process.join()
        if status == 1:  # Python's own, after a traceback
            raise RuntimeError(f"the hunt of {fault.name} failed")
        found = Hunted(**json.loads(progress.read_text(encoding="utf-8")))
    seconds = time.perf_counter() - started
    if found.symptom:
        return replace(found, seconds=seconds)
    if status == 0:  # the number is that of the last one tried
        return replace(found, after=0, seconds=seconds)
    return replace(found, symptom="hang" if status is None else f"status {status}", seconds=seconds)


def _ending(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function and end the process: one that is forked by a thread of a pool cannot end as others do."""
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


@functools.cache
def _warm(name: str) -> None:
    """Have a compiler lower a program in this process, which makes later ones faster in all that are forked."""
    store = Store("y", (Const(0),), Const(0))
    TARGETS[name].lower(Program(buffers=(Buffer("y", (1,), "int32", written=True),), body=(store,)))


def _hunted(target: ProgramTarget, fault: Fault, rows: Sequence[tuple[int, str, str]], progress: Path) -> None:
    """Hunt a fault, and keep in a file how far it is."""
    begun = Hunted(name=fault.name, target=fault.target)

    def keep(one: Hunted) -> None:
        replace_text(progress, json.dumps(asdict(one)))

    keep(begun)
    with planted(fault) as wrong:
        for tried, (number, program, verdicts) in enumerate(_tried(wrong, fault, rows, begun, keep), start=1):
            failure = first_failing(verdicts)
            begun = replace(begun, tried=tried)
            if failure is not None:
                nodes = sum(1 for _ in walk(program))
                begun = replace(begun, after=number, symptom=failure.symptom, nodes=nodes)
                keep(begun)
                small = _minimal(wrong, program, failure)
                nodes = sum(1 for _ in walk(small))
                keep(replace(begun, small=nodes, text=small.json, operations=signature(small)))
                return
        keep(begun)


def _tried(
    wrong: ProgramTarget, fault: Fault, rows: Sequence[tuple[int, str, str]], begun: Hunted, keep: Callable[[Hunted], None]
) -> Iterator[tuple[int, Program, list[Verdict]]]:
    """Yield the verdicts on the programs that the fault may change."""
    waiting: list[tuple[int, Program, str]] = []
    for number, text, before in rows:
        program = Program.from_json(text)
        try:
            now = edited(fault, before) if fault.place == GENERATED else wrong.lower(program)
        except CompileError as error:
            yield from _run(wrong, waiting, begun, keep)
            waiting = []
            yield number, program, run(program, error)
            continue
        if now != before or not fault.is_in_the_text:
            waiting.append((number, program, now))
        if len(waiting) == _BATCH[fault.target]:
            yield from _run(wrong, waiting, begun, keep)
            waiting = []
    yield from _run(wrong, waiting, begun, keep)


def _run(
    wrong: ProgramTarget, waiting: Sequence[tuple[int, Program, str]], begun: Hunted, keep: Callable[[Hunted], None]
) -> Iterator[tuple[int, Program, list[Verdict]]]:
    if not waiting:
        return
    with tempfile.TemporaryDirectory(prefix="mhc-program-") as name:
        sources = [text for _, _, text in waiting]
        ready = wrong.prepare([program for _, program, _ in waiting], sources, Path(name), exact=False)
        for (number, program, _), one in zip(waiting, ready, strict=True):
            keep(replace(begun, after=number))
            yield number, *run_on_each(with_other_inputs(program, wrong.inputs), one)


def _minimal(wrong: ProgramTarget, program: Program, failure: Verdict) -> Program:
    """Return the simplest program that fails in the same way."""

    def holds(candidate: Program) -> bool:
        seen = first_failing(check(wrong, candidate, exact=False))
        return seen is not None and (seen.oracle, seen.symptom) == (failure.oracle, failure.symptom)

    return search(program, holds, checks=_CHECKS, seconds=_SECONDS)
