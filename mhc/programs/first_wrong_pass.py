"""Names the pass that goes wrong: the first after which the IR, evaluated, no longer gives what the program means."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from mhc.programs.arithmetic import Invalid
from mhc.programs.evaluate import evaluate, inputs_of, passed_of
from mhc.programs.grammar import Program
from mhc.programs.tilelang_c import source_of
from mhc.programs.tilelang_lower import build, tilelang
from mhc.programs.tir_evaluate import evaluate_function

FRONT_END, GENERATOR = "the front end", "the generator of C"
_Arrays = dict[str, np.ndarray[Any, Any]]


def first_wrong_pass(program: Program) -> str:
    """Return in words where the `c` target goes wrong: a pass, several of which not all can be evaluated, or the ends.

    Args:
        program: one whose compiled result is wrong.
    """
    wanted, skipped = evaluate(program), []
    for name, function in _stages(program):
        right = _is_right(function, program, wanted)
        if right is None:
            skipped.append(name)
        elif right:
            skipped.clear()
        else:
            return f"one of {', '.join([*skipped, name])}" if skipped else name
    return f"one of {', '.join(skipped)}, or {GENERATOR}" if skipped else GENERATOR


def _stages(program: Program) -> Iterator[tuple[str, Any]]:
    """Yield what the front end makes, and what each pass that changes anything makes of it, with their names."""
    tvm, function = tilelang().tvm, build(source_of(program))
    stages: list[tuple[str, Any]] = []

    @tvm.ir.instrument.pass_instrument
    class Recorder:
        def run_after_pass(self, module: Any, info: Any) -> None:
            one = _kernel(module)
            if one is not None and not (stages and tvm.ir.structural_equal(stages[-1][1], one)):
                stages.append((str(info.name), one))

    configs = dict(program.configs)
    with tvm.transform.PassContext(opt_level=3, config=configs, instruments=[Recorder()]), tvm.target.Target("c"):
        tilelang().lower(function, target="c", enable_host_codegen=False, enable_device_compile=False)
    yield FRONT_END, function
    yield from stages


def _kernel(module: Any) -> Any:
    """Return the function that runs on the device; None where a module holds only the host's."""
    functions = {variable.name_hint: one for variable, one in module.functions.items()}
    whole = functions.get("f")
    return functions.get("f_kernel") or (whole if whole is not None and len(whole.buffer_map) else None)


def _is_right(function: Any, program: Program, wanted: _Arrays) -> bool | None:
    """Return whether a function gives what is wanted; None where it cannot be evaluated."""
    try:
        got = evaluate_function(function, inputs_of(program), passed_of(program))
    except NotImplementedError:
        return None
    except (Invalid, ZeroDivisionError, OverflowError):
        return False
    return all(np.array_equal(got[name], right) for name, right in wanted.items() if name in got)
