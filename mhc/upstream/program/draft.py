"""Turn a recording into the parts of a program."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mhc.declaration import Backward, Inference, InTuple
from mhc.memory import NAN_FILL
from mhc.operator import Operator
from mhc.oracles import determinism, nonfinite
from mhc.oracles.trial import same_bits
from mhc.upstream.program.kernels import Kernels, texts_of, tilelang_kernels, triton_kernels
from mhc.upstream.program.reference import key_of, reference
from mhc.upstream.program.script import STEADY, Call, Script, by_bits, by_class, by_exception, by_process, by_value, names_in
from mhc.upstream.source.definitions import closure
from mhc.upstream.source.text import Text, shape_text, strided_text, tensor_text
from mhc.upstream.trace.capture import Capture, Launch
from mhc.upstream.trace.recording import Recording
from mhc.upstream.verify import ExportError

_RUNS = 100
"""Of a program whose results differ from run to run."""

_CANARY = 7.0


def kernels_of(recording: Recording, to: str, *, cut: bool) -> tuple[Script, str]:
    """Return the program of the launched kernels, and what they are; with `cut` without what the result does not need.

    Raises:
        ExportError: it launched nothing of `to`, or what is wrong is not the kernels' doing.
    """
    own = _launches(recording.capture, to)
    wanted = _wanted(recording)
    result = "" if wanted else _result(recording)
    needed = (wanted or re.split(r"\W", result)[0]) if cut and (wanted or result) else None
    capture = recording.capture
    shapes = {
        **{name: tuple(tensor.shape) for name, tensor in capture.given.items() if not capture.strided(name)},
        **capture.shapes,
    }
    kernels = tilelang_kernels(own, shapes, needed) if own[0].target else triton_kernels(own, needed)
    return _script(recording, kernels, result), kernels.where


def host_code_of(recording: Recording, to: str) -> tuple[Script, str]:
    """Return the program of all that the stage's function leads to, and what that is.

    Raises:
        ExportError: that is more than one file can hold.
    """
    function = getattr(recording.implementation, recording.stage)
    key = key_of(function.function if isinstance(function, (InTuple, Backward)) else function)
    whole = closure([key])
    foreign = sorted({line.split()[1].partition(".")[0] for line in whole.imports} & {"triton", "tilelang"} - {to})
    builders = sorted({module for module, _ in whole.names if module.startswith("mhc.")})
    if foreign or (builders and to != "torch"):
        raise ExportError(f"its host code leads to {', '.join([*foreign, *builders])}")
    ends = recording.raised is not None or recording.found.fingerprint.subject == "process"
    if not ends and (recording.band is not None or _wanted(recording)):
        raise ExportError("what is written, and not returned, is shown by launches alone")
    case, table = recording.inputs.case, recording.found.operator_case.table
    arguments = getattr(table, f"{recording.stage}_arguments")
    keywords = recording.implementation.keywords(case.scalars, case.schedules.get(recording.implementation.name))
    kernel, texts = whole.names[key], texts_of(whole)
    options = [f"{option}={dict(value) if isinstance(value, Mapping) else value!r}" for option, value in keywords.items()]
    if isinstance(function, Backward):
        texts["backward"] = _differentiated(kernel, table, recording.given, options)
        kernel, options = "backward", []
    call = f"torch.no_grad()({kernel})" if isinstance(function, Inference) else kernel
    called = Call(
        kernel=kernel,
        arguments={one: one if recording.given[one] is not None else "None" for one in arguments},
        head=call if ends else f"returned = {call}",
        options=options,
    )
    result = "" if ends else "returned"
    alone = isinstance(function, InTuple)
    if not ends and not (alone and isinstance(function.function(*map(recording.given.get, arguments), **keywords), Tensor)):
        result += f"[{recording.outputs.index(recording.found.fingerprint.subject)}]"
    where = f"{recording.stage} of {recording.implementation.name}"
    return _script(recording, Kernels(whole.imports, texts, [called], where), result), where


def _differentiated(function: str, table: Operator, given: Mapping[str, Tensor | None], options: Sequence[str]) -> str:
    """Return the text of a backward: autograd's, of a plain function."""
    there = [spec.name for spec in (*table.inputs, *table.upstream) if given[spec.name] is not None]
    inputs = [spec.name if spec.name in there else "None" for spec in table.inputs]
    leaves = [name for name in inputs if name in there and given[name].is_floating_point()]  # type: ignore[union-attr]
    weights = [spec.name for spec in table.upstream if spec.name in there]
    made = [
        f"def backward({', '.join(table.backward_arguments)}):",
        f"    leaves = [one.requires_grad_() for one in ({', '.join(leaves)},)]",
        f"    {', '.join(spec.name for spec in table.outputs)} = {function}({', '.join([*inputs, *options])})",
        f"    outputs = [{', '.join(name.removeprefix('d') for name in weights)}]",
        f"    found = iter(torch.autograd.grad(outputs, leaves, [{', '.join(weights)}], allow_unused=True))",
        f"    return [{', '.join('next(found)' if spec.name in leaves else 'None' for spec in table.inputs)}]",
    ]
    return "\n".join(made)


def place(recording: Recording) -> str:
    """Return what is wrong, as a title names it: `dx[0, 0]`, or the stage that raises."""
    subject = recording.found.fingerprint.subject
    if recording.raised is not None or subject == "process":
        return recording.stage
    if recording.band is not None:
        return f"memory beside {recording.band[0]}"
    name = subject if recording.verdict is None else recording.verdict.subject
    return f"{name}{list(recording.at)}"


def _launches(capture: Capture, to: str) -> list[Launch]:
    own = [launch for launch in capture.launches if (launch.target == "") == (to == "triton")]
    if not own or len(own) != len(capture.launches):
        raise ExportError(f"it launched {len(own)} kernels of {to}, and {len(capture.launches) - len(own)} others")
    return own


def _wanted(recording: Recording) -> str:
    """Return the variable that was written, or written beside, and should not have been; "" where a result is wrong."""
    if recording.band is not None:
        return recording.band[0]
    name = "" if recording.verdict is None else recording.verdict.subject
    if name in recording.outputs or not name:
        return ""
    if name not in recording.capture.direct:
        raise ExportError(f"{name} was written, but no launched kernel was given its memory: the host code wrote it")
    return name


def _result(recording: Recording) -> str:
    ends = recording.raised is not None or recording.found.fingerprint.subject == "process"
    return "" if ends else recording.capture.result(recording.value)


def _script(recording: Recording, kernels: Kernels, result: str) -> Script:
    found = recording.found.fingerprint
    made = dict(recording.capture.made)
    given = {name: _given(one, recording, name) for name, one in recording.given.items() if one is not None}
    script = Script(
        title=f"{found.subject}: {found.symptom}" + (f", on {about}" if (about := recording.scene.about) else ""),
        environment={
            name: value
            for name, value in recording.found.variables.items()
            if name.startswith(("TRITON_", "TILELANG_", "TL_"))
        },
        imports=[*kernels.imports, *(line for text in (*made.values(), *given.values()) for line in text.imports)],
        device=recording.inputs.device.type,
        definitions=kernels.definitions,
        calls=kernels.calls,
        given=given,
        made=made,
        result=result,
        end=(),
        observed=[result] if result else (),
    )
    if found.subject == "process":
        return _ended(script, found.symptom)
    if recording.raised is not None:
        return replace(
            script,
            imports=[*script.imports, "import re"],
            helpers=STEADY,
            around="try:",
            end=by_exception(recording.stage, recording.said),
        )
    if recording.band is not None:
        return _beside(script, *recording.band)
    if name := _wanted(recording):
        element = f"{list(recording.at)}.item()"
        end = [f"expected, actual = before{element}, {name}{element}", *by_bits(f"{name}{list(recording.at)}")]
        return replace(script, start=[f"before = {name}.clone()"], observed=[name], end=end)
    return _again(script, recording) if recording.again is not None else _wrong(script, recording)


def _ended(script: Script, symptom: str) -> Script:
    imports = [*script.imports, "import signal", "import subprocess"]
    end = by_process(symptom)
    return replace(script, imports=imports, around="def run():", observed=["run()"], end=end)


def _wrong(script: Script, recording: Recording) -> Script:
    """Return the script with the check that a result is too far from float64, or of another class."""
    subject, case = recording.found.fingerprint.subject, recording.inputs.case
    present = {name: tensor is not None for name, tensor in recording.inputs.tensors.items()}
    formula = reference(case, subject, present)
    parameters = formula.parameters
    assert recording.verdict is not None
    class_alone = recording.verdict.oracle == nonfinite.NAME
    cast = f".to({recording.value.dtype!s})" if class_alone else ""
    floating = [bool(recording.inputs.tensors[one].is_floating_point()) for one in parameters]  # type: ignore[union-attr]
    if len(parameters) > 1 and all(floating):
        wide = f"*(one.double() for one in ({', '.join(parameters)}))"
    else:
        wide = ", ".join(f"{one}.double()" if wider else one for one, wider in zip(parameters, floating, strict=True))
    at = list(recording.at)
    value = recording.value[recording.at].item()
    judged = (
        by_class(f"{subject}{at}", value)
        if class_alone
        else by_value(f"{subject}{at}", float(recording.number.error[recording.at]))
    )
    needs = [name for name in parameters if bool((recording.inputs.tensors[name] != 0).any())]  # type: ignore[union-attr]
    return replace(
        script,
        imports=[*script.imports, *formula.imports],
        reference=formula.text,
        start=[f"expected = reference({wide}){cast}{at}.item()"],
        end=[f"actual = {script.result}{at}.item()", *judged],
        needs=needs,
    )


def _again(script: Script, recording: Recording) -> Script:
    """Return the script with the check that two runs give the same."""
    again = recording.again
    assert again is not None
    assert recording.scene.again is not None
    at = f"{list(recording.at)}.item()"
    subject = recording.found.fingerprint.subject
    judged = by_bits(f"{subject}{list(recording.at)}")
    if recording.found.fingerprint.oracle == determinism.NAME:
        end = [
            f"expected = run(){at}",
            f"runs = [run(){at} for _ in range({_RUNS})]",
            "actual = next((one for one in runs if repr(one) != repr(expected)), expected)",
        ]
        return replace(script, around="def run():", end=[*end, *judged], observed=["run()", "run()"])
    made = dict(script.made)
    varied = {
        name: (tensor, other)
        for name, other in again.items()
        if (tensor := recording.given[name]) is not None and other is not None and not bool(same_bits(tensor, other).all())
    }
    used = names_in("\n".join([*(call.line for call in script.calls), *(text.expression for text in made.values())]))
    varied = {name: both for name, both in varied.items() if name in used}
    given = dict(script.given)
    first, second = list(varied), []
    for name, (tensor, other) in varied.items():
        doubled = bool((other == 2 * tensor).all()) and tensor.is_contiguous()
        if not doubled:
            given[f"{name}_again"] = _given(other, recording, name)
        second.append(f"2 * {name}" if doubled else f"{name}_again")
    parameters = list(varied)
    if recording.scene.again.fill != NAN_FILL:
        made = {
            name: replace(text, expression=text.expression.replace("math.nan", "fill", 1))
            if text.filled == "math.nan"
            else text
            for name, text in made.items()
        }
        parameters, first, second = [*parameters, "fill"], [*first, "3.0"], [*second, "math.nan"]
    one, other_run = (f"run({', '.join(values)})" for values in (first, second))
    times = f" * {recording.scene.times!r}" if recording.scene.times != 1 else ""
    return replace(
        script,
        given=given,
        made=made,
        around=f"def run({', '.join(parameters)}):",
        end=[f"expected, actual = {one}{at}{times}, {other_run}{at}", *judged],
        observed=[one, other_run],
    )


def _beside(script: Script, name: str, offset: int) -> Script:
    """Return the script with the check of memory beside a tensor that a kernel writes to."""
    text = script.made[name]
    matched = re.fullmatch(r"torch\.\w+\(\(([\d, ]*)\).*dtype=(torch\.\w+)\)", text.expression)
    if matched is None:
        raise ExportError(f"{name}, which is written beside, is not memory of its own")
    shape = [int(one) for one in matched[1].split(",") if one.strip()]
    size = math.prod(shape)
    dtype: torch.dtype = getattr(torch, matched[2].removeprefix("torch."))
    at = offset // dtype.itemsize
    pad = 64 // dtype.itemsize * (1 + max(-at, at - size, 0) * dtype.itemsize // 64)
    whole = f"around_{name}"
    made: dict[str, Text] = {}
    for other, one in script.made.items():
        if other == name:
            made[whole] = Text(f"torch.full(({2 * pad + size},), {_CANARY}, dtype={matched[2]})")
        made[other] = Text(f"{whole}[{pad}:{pad + size}].view({shape_text(shape)})") if other == name else one
    place = f"{at - size} elements after {name}" if at >= size else f"{-at} elements before {name}"
    end = [f"expected, actual = {_CANARY}, {whole}[{pad + at}].item()", *by_bits(place)]
    return replace(script, made=made, observed=[whole], end=end)


def _given(tensor: Tensor, recording: Recording, name: str) -> Text:
    text = tensor_text(tensor)
    if recording.capture.strided(name):
        return replace(text, after=(*text.after, *strided_text(tensor, tensor.shape)))
    return text
