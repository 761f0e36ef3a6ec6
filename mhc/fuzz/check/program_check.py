"""Judges what a compiler makes of a program: its outputs against the evaluator's, bit for bit."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mhc.oracles.verdict import Verdict, element_name, failed, not_applicable, passed
from mhc.programs import grammar
from mhc.programs.arithmetic import Invalid
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import Program, children, walk
from mhc.programs.targets import ProgramTarget
from mhc.programs.tilelang_lower import CompileError, Run

EVALUATOR, COMPILER = "evaluator", "compiler"
WRONG = "wrong value"
NARROW = "narrow integer arithmetic"
_NARROW = ("int8", "int16")  # and the unsigned ones, whose names end in the same way


def check(target: ProgramTarget, program: Program, *, exact: bool = True) -> list[Verdict]:
    """Return a verdict for each output; where it does not compile, one on the stage that fails.

    Args:
        exact: as for `mhc.programs.tilelang_c.prepare`.
    """
    lowered = lower(target, program)
    if not isinstance(lowered, str):
        return lowered
    with tempfile.TemporaryDirectory(prefix="mhc-program-") as name:
        (ready,) = target.prepare([program], [lowered], Path(name), exact=exact)
        return run(program, ready)


def lower(target: ProgramTarget, program: Program) -> str | list[Verdict]:
    """Return what the compiler generates, or the verdicts where there is nothing to run."""
    try:
        evaluate(program)
    except Invalid as reason:
        return [not_applicable(EVALUATOR, "program", str(reason))]
    try:
        return target.lower(program)
    except CompileError as error:
        return [_uncompiled(error)]


def run(program: Program, ready: Run | CompileError) -> list[Verdict]:
    """Return the verdicts on a program that is lowered."""
    if isinstance(ready, CompileError):
        return [_uncompiled(ready)]
    try:
        got = ready()
    except CompileError as error:
        return [_uncompiled(error)]
    if not got:  # nothing runs
        return [passed(COMPILER, "lower")]
    wanted = evaluate(program)
    return [_compared(name, wanted[name], got[name], program) for name in wanted]


def wrong_pass(target: ProgramTarget, program: Program, verdict: Verdict) -> str:
    """Return which pass goes wrong where a result is wrong; nothing for another verdict, or where it is not known."""
    return target.wrong_pass(program) if (verdict.oracle, verdict.symptom) == (EVALUATOR, WRONG) else ""


def explained(target: ProgramTarget, program: Program, verdict: Verdict) -> Verdict:
    """Return a verdict whose message also names the pass that goes wrong, where that is known."""
    found = wrong_pass(target, program, verdict)
    return replace(verdict, message=f"{verdict.message}; goes wrong in {found}") if found else verdict


def _uncompiled(error: CompileError) -> Verdict:
    if error.is_limit:
        return not_applicable(COMPILER, error.stage, str(error).splitlines()[0])
    return failed(COMPILER, error.stage, error.kind, str(error))


def _compared(name: str, wanted: np.ndarray[Any, Any], got: np.ndarray[Any, Any], program: Program) -> Verdict:
    """Return the verdict on an output; 0.0 and -0.0 are one value, since the order of a sum decides on the sign."""
    wrong = wanted != got
    if not wrong.any():
        return passed(EVALUATOR, name)
    at = tuple(int(one) for one in np.argwhere(wrong)[0])
    message = f"{element_name(name, at)} = {got[at]}, evaluator {wanted[at]}; {wrong.sum()} of {wrong.size} differ"
    return failed(EVALUATOR, signature(program), WRONG, message)


def signature(program: Program) -> str:
    """Return the operations of a program in words: of a minimal one it says which are needed for the failure.

    Arithmetic of 8 and 16 bits is one operation, since compilers go wrong in all of it together: they leave out what
    truncates the result.
    """
    found: set[str] = set()

    def look(node: Any, *, index: bool) -> None:
        match node:
            case grammar.For(kind=kind) if kind != "serial":
                found.add(f"T.{kind}")
            case grammar.If():
                found.add("if")
            case grammar.Copy():
                found.add("T.copy" if _is_whole(node, program) else "T.copy of a part")
            case grammar.Fill():
                found.add("T.fill")
            case grammar.Reduce():
                found.add(f"T.reduce_{node.op}")
            case grammar.Scan():
                found.add("T.cumsum")
            case grammar.Gemm():
                found.add("T.gemm")
            case grammar.AtomicAdd():
                found.add("T.atomic_add")
        for one in _operation(node, program):
            narrow = isinstance(node, (grammar.Binary, grammar.Unary)) and one.endswith(_NARROW)
            found.add(NARROW if narrow else f"{one} in an index" if index else one)
        places = getattr(node, "at", ())
        for below in children(node):
            look(below, index=index or any(below is place for place in places))

    for statement in program.body:
        look(statement, index=False)
    scopes = [one.scope for one in program.buffers if one.scope in {"shared", "fragment"}]
    found |= {f"{'several ' if scopes.count(one) > 1 else ''}alloc_{one}" for one in scopes}
    if NARROW in found:
        found = {one for one in found if not one.startswith(("cast to", "int32 cast"))}
    return ", ".join(sorted(found)) or "none"


def _is_whole(node: grammar.Copy, program: Program) -> bool:
    return all(program.buffer(name).shape == node.extents for name in (node.source, node.target))


def _operation(node: Any, program: Program) -> list[str]:
    match node:
        case grammar.Binary(op=op) if op in grammar.LOGIC:
            return [op]
        case grammar.Binary(op=op, a=a):
            return [_of(op, grammar.dtype_of(a, program))]
        case grammar.Unary(op="not"):
            return ["not"]
        case grammar.Unary(op=op, a=a):
            return [_of(f"unary {op}", grammar.dtype_of(a, program))]
        case grammar.Cast(dtype=dtype):
            return [_of("cast to", dtype, "int32 cast")]
        case grammar.Bits():
            return ["reinterpret"]
        case grammar.Select():
            return ["if_then_else"]
    return []


def _of(what: str, dtype: str, plain: str = "") -> str:
    """Return an operation with its dtype, unless that is int32."""
    return f"{what} {dtype}" if dtype != "int32" else plain or what


def features(program: Program) -> frozenset[str]:
    """Return the labels of what a program has, for the map of what was covered."""
    labels = {f"node: {type(node).__name__.lower()}" for node in walk(program)}
    labels |= {f"operation: {one}" for node in walk(program) for one in _operation(node, program)}
    labels |= {f"dtype: {one.dtype}" for one in program.buffers}
    labels |= {f"scope: {one.scope}" for one in program.buffers}
    labels |= {f"loop: {one.kind}" for one in walk(program) if isinstance(one, grammar.For)}
    labels.add(f"threads: {program.threads}")
    labels.add(f"grid: {len(program.grid)} axes" if program.grid != (1,) else "grid: one block")
    return frozenset(labels)
