"""A verified program, reduced and verified again."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from mhc.upstream.attribution import BOOT, Setting
from mhc.upstream.probe import Probe
from mhc.upstream.program import Program
from mhc.upstream.reduction import SECONDS, reduced
from mhc.upstream.verify import Outcome, verify

_FILLED = Setting(name="locals filled with a pattern", more=("-ftrivial-auto-var-init=pattern",))
_INTERPRETED = Setting(name="interpreted", variables={"TRITON_INTERPRET": "1"})


def shortened(
    program: Program, outcomes: Sequence[Outcome], repro: Path, heals: Sequence[Setting], *, seconds: float = SECONDS
) -> tuple[Program, list[Outcome]]:
    """The smallest program that was found and reproduces each time, which `repro` holds then, and its runs.

    Args:
        outcomes: of `program`. heals: settings of the compiler that heal it; under them the result must stay what it is.
    """
    if len({one.values for one in outcomes}) > 1 or not (program.script.device == "cpu" or _semantics(program, heals)):
        return program, list(outcomes)  # no two tries of it could be compared, or nothing says what its source means
    with ExitStack() as probes:
        started = [Probe(program.script, program.witnesses)]
        started += [_under(program, one) for one in _semantics(program, heals)]
        for probe in started:
            probes.callback(probe.close)
        script = reduced(program.script, started, seconds=seconds)
    small = replace(program, script=script)
    repro.write_text(small.text, encoding="utf-8")
    again = verify(repro)
    if again[-1].reproduced and small.lines < program.lines:
        return small, again
    repro.write_text(program.text, encoding="utf-8")
    return program, list(outcomes)


def _semantics(program: Program, heals: Sequence[Setting]) -> list[Setting]:
    """Settings under which the program is what its source says, or shows that it reads what nobody wrote."""
    if program.to == "triton" and "TRITON_INTERPRET" not in program.script.environment:
        return [_INTERPRETED, *heals[:1]]
    return [*([_FILLED] if program.to == "tilelang" and program.script.device == "cpu" else []), *heals[:1]]


def _under(program: Program, setting: Setting) -> Probe:
    if setting.variables:
        return Probe(program.script, program.witnesses, variables=setting.variables)
    python = (sys.executable, "-P", "-c", BOOT)
    return Probe(program.script, program.witnesses, python, variables={"REPRO_SETTING": setting.document})
