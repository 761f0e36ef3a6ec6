"""A verified program, reduced and verified again."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from mhc.upstream.diagnose.attribution import EVALUATED, Setting
from mhc.upstream.program.program import Program
from mhc.upstream.reduce.probe import Probe
from mhc.upstream.reduce.reduction import SECONDS, reduced
from mhc.upstream.verify import Outcome, confirmed, verify

_FILLED = Setting(name="locals filled with a pattern", more=("-ftrivial-auto-var-init=pattern",))
_INTERPRETED = Setting(name="interpreted", variables={"TRITON_INTERPRET": "1"})


def shortened(
    program: Program, repro: Path, heals: Sequence[Setting], *, seconds: float = SECONDS
) -> tuple[Program, list[Outcome]]:
    """The smallest program that was found and reproduces each time, which `repro` holds then, and its runs.

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
    """Settings under which the program does what its source says, or shows that it reads what nobody wrote."""
    if program.to == "triton" and "TRITON_INTERPRET" not in program.script.environment:
        return [_INTERPRETED, *heals[:1]]
    on_c = program.to == "tilelang" and program.script.device == "cpu"
    return [*([EVALUATED, _FILLED] if on_c else []), *(one for one in heals[:1] if one is not EVALUATED)]


def _under(program: Program, setting: Setting) -> Probe:
    python = (sys.executable, "-P", *(["-c", setting.boot] if setting.boot else []))
    return Probe(program.script, program.witnesses, python, variables=setting.environment)
