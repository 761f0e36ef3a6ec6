"""What of the grammar drawn programs have, for each target: the productions of those that it judges."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mhc.bench.apart import Ended, run_apart
from mhc.bench.programs.evaluators import judge, sample
from mhc.fuzz.worker.program_session import features_of
from mhc.oracles.verdict import Status
from mhc.programs import arithmetic, grammar
from mhc.programs.grammar import Program, bits_of, dtype_of, walk
from mhc.programs.known import known
from mhc.programs.targets import ProgramTarget
from mhc.programs.tiles import GEMM_DTYPES
from mhc.strategies.programs.statements import Features
from mhc.strategies.rounds import ROUND

PROGRAMS = 5 * ROUND
"""That are drawn and judged in one process."""
_LIMIT = 600.0
_REDUCTIONS = ("sum", "max", "min", "abssum", "absmax")
_KINDS_OF_COPY = ("whole", "a part", "over the end", "to another dtype")


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Some rounds that are drawn for a target.

    Attributes:
        spec: how the target is named on the command line.
    """

    spec: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.spec} {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Covered:
    """What came of some rounds.

    Attributes:
        target: its name, with its release. judged: programs with a verdict. masked: those that fail as a
            reported bug may, or in which one may end the process.
        productions: of each, how many of the judged programs have it. ended: the process ended on one of them.
    """

    name: str
    spec: str
    target: str
    judged: int = 0
    masked: int = 0
    productions: dict[str, int]
    ended: bool = False


def cover(one: Drawn) -> Covered:
    """Draw rounds for a target and judge them, in a process of its own."""
    try:
        found: Covered = run_apart(_covered, one.spec, one, limit=_LIMIT)
    except Ended:
        return Covered(name=one.name, spec=one.spec, target=one.spec, productions={}, ended=True)
    return found


def _covered(target: ProgramTarget, one: Drawn) -> Covered:
    drawn = sample(features_of(target), PROGRAMS, one.seed)
    safe = [program for program in drawn if known(program, target.release(), target.kind, ends=True) is None]
    unmasked = [
        (program, verdicts)
        for program, verdicts in judge(target, safe)
        if all(one.status is not Status.FAIL for one in verdicts) or known(program, target.release(), target.kind) is None
    ]
    judged = [
        program for program, verdicts in unmasked if any(verdict.status is not Status.NOT_APPLICABLE for verdict in verdicts)
    ]
    counts = Counter(label for program in judged for label in productions(program))
    return Covered(
        name=one.name,
        spec=one.spec,
        target=f"{target.name.partition('@')[0]}, {target.release()}",
        judged=len(judged),
        masked=len(drawn) - len(unmasked),
        productions=dict(counts),
    )


def productions(program: Program) -> set[str]:
    """Return the productions of the grammar that a program has."""
    found = {f"scope {one.scope}" for one in program.buffers} | {f"buffer {one.dtype}" for one in program.buffers}
    found |= {f"axes {len(one.shape)}" for one in program.buffers}
    found |= {"a symbolic size"} if program.symbols else set()
    found.add("several threads" if program.threads > 1 else "one thread")
    found.add("one block" if program.grid == (1,) else f"blocks along {len(program.grid)} axes")
    for node in walk(program):
        found.add(f"node {type(node).__name__}")
        found |= set(_of(node, program))
    return found


def _of(node: Any, program: Program) -> Iterator[str]:
    match node:
        case grammar.Binary() | grammar.Unary():
            yield f"operation {_operation(node)}"
            if dtype_of(node.a, program) != "bool":
                yield f"{_operation(node)} of {dtype_of(node.a, program)}"
        case grammar.Cast():
            yield f"cast {dtype_of(node.a, program)} to {node.dtype}"
        case grammar.Bits():
            yield f"bits of {dtype_of(node.a, program)} as {node.dtype}"
        case grammar.Const():
            yield f"constant {node.dtype}"
        case grammar.For():
            yield f"loop {node.kind}"
            if node.begin and node.kind != "vectorized":  # a reported bug of all releases, so that none is judged
                yield f"loop {node.kind} from above 0"
            if node.first is not None:
                yield "loop serial from a computed begin"
            if node.step != 1:
                yield f"loop {node.kind} with a step"
            if node.kind == "Pipelined":
                yield f"stages {node.stages}"
        case grammar.If() if node.otherwise:
            yield "if with else"
        case grammar.Copy():
            yield from (f"copy {one}" for one in _copied(node, program))
        case grammar.Fill():
            yield f"fill {node.value.dtype}"
        case grammar.Reduce():
            yield f"reduce {node.op}{'' if node.clear else ', not cleared'}"
        case grammar.Scan():
            yield f"cumsum{', reverse' if node.reverse else ''}"
        case grammar.Gemm():
            yield f"gemm {program.buffer(node.a).dtype} to {program.buffer(node.c).dtype}"
            yield f"gemm{', a transposed' if node.transpose_a else ''}{', b transposed' if node.transpose_b else ''}"
            if node.clear:
                yield "gemm, cleared"
        case grammar.AtomicAdd():
            yield f"atomic addition {program.buffer(node.buffer).dtype}"


def _operation(node: grammar.Binary | grammar.Unary) -> str:
    return node.op if isinstance(node, grammar.Binary) else f"unary {node.op}"


def _copied(node: grammar.Copy, program: Program) -> Iterator[str]:
    source, target = program.buffer(node.source), program.buffer(node.target)
    yield "whole" if source.shape == target.shape == node.extents else "a part"
    if source.dtype != target.dtype:
        yield "to another dtype"
    sides = (source.shape, node.source_at), (target.shape, node.target_at)
    ends = [
        (at, size, extent) for shape, begin in sides for at, size, extent in zip(begin, shape, node.extents, strict=True)
    ]
    if any(size % extent if not isinstance(at, int) else at + extent > size for at, size, extent in ends):
        yield "over the end"


def _pairs() -> dict[str, tuple[str, ...]]:
    """Return the productions that are pairs of an operation and a dtype or of two dtypes, by group."""
    binary = [(op, dtype) for op in grammar.ARITHMETIC for dtype in grammar.DTYPES if _is_defined(op, dtype)]
    binary += [(op, dtype) for op in grammar.COMPARISONS for dtype in grammar.DTYPES if dtype != "bool"]
    unary = [(op, one) for op in ("-", "+") for one in (*grammar.INTEGERS, *grammar.FLOATS)]
    unary += [("~", one) for one in grammar.INTEGERS]
    unary += [("abs", one) for one in (*grammar.SIGNED, *grammar.FLOATS)]
    unary += [(op, one) for op in grammar.FUNCTIONS for one in grammar.FLOATS]
    casts = [(a, b) for a, b in itertools.permutations(grammar.DTYPES, 2)]
    bits = [(a, b) for a, b in itertools.permutations((*grammar.INTEGERS, *grammar.FLOATS), 2) if bits_of(a) == bits_of(b)]
    return {
        "operations of two operands": tuple(f"{op} of {dtype}" for op, dtype in binary),
        "operations of one operand": tuple(f"unary {op} of {dtype}" for op, dtype in unary),
        "casts": tuple(f"cast {a} to {b}" for a, b in casts),
        "reinterpretations": tuple(f"bits of {a} as {b}" for a, b in bits if not {a, b} <= set(grammar.FLOATS)),
    }


def _is_defined(op: str, dtype: str) -> bool:
    try:
        arithmetic.operation(op, dtype)
    except arithmetic.Invalid:
        return False
    return True


def _singles() -> dict[str, tuple[str, ...]]:
    operations = (*grammar.ARITHMETIC, *grammar.COMPARISONS, *grammar.LOGIC, *(f"unary {one}" for one in _UNARY))
    loops = ("serial", "unroll", "vectorized", "Parallel", "Pipelined")
    return {
        "nodes": tuple(f"node {one.__name__}" for one in grammar.NODES),
        "statements": (
            "if with else",
            "loop serial from above 0",
            "loop unroll from above 0",
            "loop serial from a computed begin",
        ),
        "loops": (*(f"loop {one}" for one in loops), *(f"stages {one}" for one in range(4))),
        "buffers": (
            *(f"scope {one}" for one in ("global", "local", *grammar.SCALARS, "shared", "fragment")),
            *(f"axes {one}" for one in range(1, 8)),
        ),
        "dtypes": (*(f"buffer {one}" for one in grammar.DTYPES), *(f"constant {one}" for one in grammar.DTYPES)),
        "grid": ("one block", *(f"blocks along {one} axes" for one in (1, 2, 3)), "one thread", "several threads"),
        "sizes": ("a symbolic size",),
        "operations": tuple(f"operation {one}" for one in operations),
        "copies and fills": (
            *(f"copy {one}" for one in _KINDS_OF_COPY),
            *(f"fill {one}" for one in ("int32", "float16", "float32")),
        ),
        "reductions": (
            *(f"reduce {one}" for one in _REDUCTIONS),
            *(f"reduce {one}, not cleared" for one in ("sum", "max", "min")),
            "cumsum",
            "cumsum, reverse",
        ),
        "products": (
            *(f"gemm {a} to {c}" for a, c in GEMM_DTYPES),
            *("gemm", "gemm, a transposed", "gemm, b transposed", "gemm, a transposed, b transposed", "gemm, cleared"),
            *(f"atomic addition {one}" for one in ("int32", "float32")),
        ),
    }


_UNARY = ("-", "+", "~", "not", "abs", *grammar.FUNCTIONS)
SINGLES: Mapping[str, tuple[str, ...]] = MappingProxyType(_singles())
PAIRS: Mapping[str, tuple[str, ...]] = MappingProxyType(_pairs())

_TILES = (
    *("loop Pipelined", "stages", "scope fragment", "node Fill", "node Reduce", "node Scan", "node Gemm", "node AtomicAdd"),
    *("fill", "reduce", "cumsum", "gemm", "atomic", "copy a part", "copy over the end"),
)
_Rule = Callable[[str, Features], bool]
_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "operations of tiles are drawn for CUDA only": lambda one, has: not has.tiles and one.startswith(_TILES),
        "its release compiles no such loop": lambda one, has: (
            one.startswith("loop ") and not has.tiles and one.split()[1] not in has.loops
        ),
        "its release compiles no such buffer": lambda one, has: (
            one.startswith("scope ") and one.split()[1] not in (*has.scopes, *grammar.SCALARS, "global", "fragment")
        ),
        "its release compiles no copy": lambda one, has: (
            not has.copies and not has.tiles and one.startswith(("node Copy", "copy "))
        ),
        "it has no parameters": lambda one, has: one == "a symbolic size" and not has.symbols,
        "it has one thread": lambda one, has: one == "several threads" and len(has.threads) == 1,
        "constants of bool are not drawn: the front end folds what they decide": lambda one, has: one == "constant bool",
        "integers only": lambda one, has: "float32" not in has.dtypes and _is_of_floats(one),
    }
)


def _is_of_floats(production: str) -> bool:
    floating = production in {"operation /", *(f"operation unary {one}" for one in grammar.FUNCTIONS)}
    return floating or any(one in production.replace(",", "").split() for one in grammar.FLOATS)


def excluded(production: str, features: Features) -> str:
    """Return why no program of a target can have a production; empty where one can."""
    return next((why for why, rule in _RULES.items() if rule(production, features)), "")
