"""The program of a finding: one file that needs the DSL alone. Made in a process of its own, where the kernel runs once."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import Tensor

from mhc.fuzz.finding import Finding, from_document
from mhc.upstream.capture import Capture, Launch
from mhc.upstream.errors import ExportError
from mhc.upstream.kernels import Kernels, tilelang_kernels, triton_kernels
from mhc.upstream.recording import Recording, record, wrong_element
from mhc.upstream.reference import reference
from mhc.upstream.script import Judge, Script, judge_class, judge_raise, judge_value
from mhc.upstream.source import closure
from mhc.upstream.tensors import Text, dtype_text, strided_text, tensor_text
from mhc.upstream.text import unparse
from oracles import bound, liveness, nonfinite

SECONDS = 300.0
CUT, WHOLE, HOST = "cut", "whole", "host"
FORMS = {
    CUT: "the kernels as they were launched, without what the wrong output does not need",
    WHOLE: "the kernels as they were launched",
    HOST: "the implementation with its host code",
}
"""What a program is made of, in the order in which they are tried."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """The text of `repro.py`.

    Attributes:
        to: "triton", "tilelang" or "torch". form: of `FORMS`.
        at: the element that is wrong, as `dx[0, 0]`, or the stage that raises. where: what it launches.
    """

    text: str
    to: str
    form: str
    at: str
    where: str

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def make(found: Finding, to: str, device: str, form: str) -> Program:
    """Run the finding's stage once and write down what it did.

    Raises:
        ExportError: it did nothing of `to`, did not fail, or failed in a way that no program is made of.
    """
    if found.against is not None:
        raise ExportError(f"it is a difference from {found.against}: export the implementation that is wrong by itself")
    raises = found.fingerprint.oracle == liveness.NAME and found.fingerprint.subject in {"forward", "backward"}
    if found.fingerprint.oracle not in {bound.NAME, nonfinite.NAME} and not raises:
        gate = f"{found.fingerprint.oracle}: {found.fingerprint.symptom}"
        raise ExportError(f"no program is made for the gate {gate}; made are wrong elements, and exceptions")
    task = {
        "finding": found.document,
        "variables": dict(found.variables),
        "to": to,
        "device": device,
        "form": form,
    }
    with tempfile.TemporaryDirectory() as name:
        answer = Path(name) / "answer.json"
        environment = {**os.environ, **found.variables, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            done = subprocess.run(
                [sys.executable, "-c", f"import {__name__} as made; made.child({str(answer)!r})"],
                input=json.dumps(task),
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise ExportError(f"no answer within {SECONDS:g} s while it was recorded") from late
        if not answer.exists():
            last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            raise ExportError(f"its process ended while it was recorded, with status {done.returncode}: {last}")
        told = json.loads(answer.read_text(encoding="utf-8"))
    if "refused" in told:
        raise ExportError(told["refused"])
    return Program(**told)


def child(answer: str) -> None:
    """What `make` starts: the task is on standard input, the program or the refusal goes to the file `answer`."""
    task = json.load(sys.stdin)
    found = replace(from_document(task["finding"]), variables=task["variables"])
    try:
        told = asdict(_program(record(found, task["device"]), task["to"], task["form"]))
    except ExportError as error:
        told = {"refused": str(error)}
    except Exception as error:  # told, and not a traceback of a process that nobody sees
        told = {"refused": f"cannot be recorded: {type(error).__name__}: {error}"}
    Path(answer).write_text(json.dumps(told), encoding="utf-8")


def _program(recording: Recording, to: str, form: str) -> Program:
    raises = recording.raised is not None
    at: tuple[int, ...] = () if raises else wrong_element(recording)[0]
    if form == HOST:
        kernels, result = _host_code(recording, to)
    else:
        own = _launches(recording.capture, to)
        result = "" if raises else recording.capture.result(recording.value)
        kernels = _kernels(recording.capture, own, re.split(r"\W", result)[0] if form == CUT and result else None)
    subject = recording.found.fingerprint.subject
    where = subject if raises else f"{subject}{list(at)}"
    run = [line for call in kernels.calls for line in call]
    definitions = list(kernels.definitions)
    needed = {} if raises else _reference(recording, definitions)
    texts, made = _variables(recording, [*run, result], needed)
    inputs = [line for name, text in texts.items() for line in _lines(name, text)]
    if recording.inputs.device.type == "cuda":
        inputs.insert(0, 'torch.set_default_device("cuda")')
    if not raises:
        inputs.append(_expected(recording, at, needed))
        run.append(f"actual = {result}{list(at)}.item()")
    script = Script(
        title=f"{subject}: {recording.found.fingerprint.symptom}",
        where=where,
        environment={
            name: value
            for name, value in recording.found.variables.items()
            if name.startswith(("TRITON_", "TILELANG_", "TL_"))
        },
        imports=frozenset(kernels.imports.union(*(text.imports for text in texts.values()))),
        definitions=definitions,
        inputs=inputs,
        run=[*(line for name, text in made.items() for line in _lines(name, text)), *run],
        judge=_judge(recording, at),
    )
    return Program(text=script.text(), to=to, form=form, at=where, where=kernels.where)


def _judge(recording: Recording, at: tuple[int, ...]) -> Judge:
    if recording.raised is not None:
        return judge_raise(recording.said)
    if recording.found.fingerprint.oracle == bound.NAME:
        return judge_value(float(recording.number.error[at]))
    return judge_class(recording.value[at].item())


def _launches(capture: Capture, to: str) -> list[Launch]:
    own = [launch for launch in capture.launches if (launch.target == "") == (to == "triton")]
    if not own or len(own) != len(capture.launches):
        raise ExportError(f"it launched {len(own)} kernels of {to}, and {len(capture.launches) - len(own)} others")
    return own


def _kernels(capture: Capture, own: list[Launch], wanted: str | None) -> Kernels:
    if own[0].target == "":
        return triton_kernels(own, wanted)
    shapes = {**{name: tuple(tensor.shape) for name, tensor in capture.given.items()}, **capture.shapes}
    return tilelang_kernels(own, shapes, wanted)


def _host_code(recording: Recording, to: str) -> tuple[Kernels, str]:
    """All that the stage's function leads to, and the result of calling it."""
    function = getattr(recording.implementation, recording.stage)
    name = getattr(function, "__name__", "")
    if getattr(function, "__qualname__", None) != name or name == "<lambda>":
        raise ExportError(f"{recording.stage} is {function!r}, and not a function at the top level of its module")
    key = (function.__module__, name)
    whole = closure([key])
    foreign = sorted({line.split()[1].partition(".")[0] for line in whole.imports} & {"triton", "tilelang"} - {to})
    builders = sorted({module for module, _ in whole.definitions if module.startswith("mhc.")})
    if foreign or (builders and to != "torch"):
        raise ExportError(f"its host code leads to {', '.join([*foreign, *builders])}")
    case, table = recording.found.case, recording.found.case.table
    arguments = [
        name if recording.given[name] is not None else "None" for name in getattr(table, f"{recording.stage}_arguments")
    ]
    keywords = recording.implementation.keywords(case.scalars, case.schedules.get(recording.implementation.name))
    options = [f"{name}={_plain(value)!r}" for name, value in keywords.items()]
    called = f"{whole.name(key)}({', '.join([*arguments, *options])})"
    kernels = Kernels(
        whole.imports, unparse(whole.statements()), [], f"{recording.stage} of {recording.implementation.name}"
    )
    if recording.raised is not None:
        kernels.calls.append([called])
        return kernels, ""
    kernels.calls.append([f"returned = {called}"])
    return kernels, f"returned[{recording.outputs.index(recording.found.fingerprint.subject)}]"


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


def _reference(recording: Recording, definitions: list[str]) -> dict[str, None]:
    """Append the reference to the definitions; gives the names of its parameters."""
    present = {name: tensor is not None for name, tensor in recording.inputs.tensors.items()}
    function, parameters = reference(recording.found.case, recording.found.fingerprint.subject, present)
    definitions += ["", *unparse([function])]
    return dict.fromkeys(parameters)


def _expected(recording: Recording, at: tuple[int, ...], parameters: Iterable[str]) -> str:
    cast = "" if recording.found.fingerprint.oracle == bound.NAME else f".to({dtype_text(recording.value.dtype)})"
    return f"expected = reference({', '.join(f'{name}.double()' for name in parameters)}){cast}{list(at)}.item()"


def _variables(recording: Recording, lines: list[str], parameters: Iterable[str]) -> tuple[dict[str, Text], dict[str, Text]]:
    """What the stage was given, and what else its kernels were: of both what is used."""
    made = {name: text for name, text in recording.capture.made.items() if _named(name, lines)}
    used = [*lines, *(text.expression for text in made.values()), *parameters]
    given = {
        name: _given(tensor, recording.capture, name)
        for name, tensor in recording.given.items()
        if tensor is not None and _named(name, used)
    }
    return given, made


def _given(tensor: Tensor, capture: Capture, name: str) -> Text:
    text = tensor_text(tensor)
    if name in capture.direct and not tensor.is_contiguous():
        return replace(text, after=(*text.after, *strided_text(tensor, tensor.shape)))
    return text


def _lines(name: str, text: Text) -> list[str]:
    return [f"{name} = {text.expression}", *(line.format(name) for line in text.after)]


def _named(name: str, lines: Iterable[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", line) for line in lines)
