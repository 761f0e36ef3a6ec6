"""The program of a finding: one file that needs the DSL alone. Made in a process of its own, where the kernel runs once."""

import json
import multiprocessing
import os
import re
import sys
import textwrap
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from torch import Tensor

from mhc.fuzz.finding import Finding, from_document
from mhc.inputs import Inputs, materialise
from mhc.memory import poisoned
from mhc.precision import float32_matmuls
from mhc.reference import Reference
from mhc.reference import reference as float64
from mhc.registry import load
from mhc.upstream.capture import Capture, capturing
from mhc.upstream.errors import ExportError
from mhc.upstream.kernels import Kernels, tilelang_kernels, triton_kernels
from mhc.upstream.reference import reference
from mhc.upstream.tensors import Text, strided_text, tensor_text
from mhc.upstream.text import unparse, wrap
from oracles import bound, liveness, nonfinite
from oracles.bound import Tolerances, tolerances
from oracles.verdict import Status, Verdict

SECONDS = 300.0
ELEMENTS = (bound.NAME, nonfinite.NAME)
"""Gates that say of one element that it is wrong."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """The text of `repro.py`, and what it must say.

    Attributes:
        to: "triton" or "tilelang". at: the element that is wrong, as `dx[0, 0]`; empty where nothing was returned.
        where: the kernels that it launches. reduced: what was left out of them, as a clause; empty where nothing.
    """

    text: str
    to: str
    at: str
    message: str
    where: str
    reduced: str = ""

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def make(found: Finding, to: str, device: str, *, cut: bool = True) -> Program:
    """Run the finding's stage once and write down what it launched.

    Args:
        cut: leave out of the kernels what the output that is wrong does not need.

    Raises:
        ExportError: it launches nothing of `to`, does not fail, or fails in a way that no program is made of.
    """
    if found.against is not None:
        raise ExportError(f"it is a difference from {found.against}: export the implementation that is wrong by itself")
    raises = found.fingerprint.oracle == liveness.NAME and found.fingerprint.subject != "process"
    if found.fingerprint.oracle not in ELEMENTS and not raises:
        gate = f"{found.fingerprint.oracle}: {found.fingerprint.symptom}"
        raise ExportError(f"no program is made for the gate {gate}; made are wrong elements, and exceptions")
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_child, args=(sender, found.to_json(), dict(found.variables), to, device, cut), daemon=True
    )
    process.start()
    sender.close()
    try:
        made = receiver.recv() if receiver.poll(SECONDS) else ExportError(f"no answer within {SECONDS:g} s")
    except EOFError:
        process.join()
        made = ExportError(f"its process ended while it was recorded, with status {process.exitcode}")
    finally:
        process.kill()
        process.join()
    if isinstance(made, ExportError):
        raise made
    assert isinstance(made, Program)
    return made


def _child(sender: Connection, document: str, variables: dict[str, str], to: str, device: str, cut: bool) -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  TileLang says there what it compiles
    os.environ.update(variables)
    found = replace(from_document(json.loads(document)), variables=variables)
    try:
        sender.send(_recorded(found, to, device, cut))
    except ExportError as error:
        sender.send(error)
    except Exception as error:  # told, and not a traceback of a process that nobody sees
        sender.send(ExportError(f"cannot be recorded: {type(error).__name__}: {error}"))


def _recorded(found: Finding, to: str, device: str, cut: bool) -> Program:
    implementation = load(found.spec)
    inputs = materialise(found.case, device)
    wanted = float64(inputs)
    table, case = found.case.table, found.case
    subject = found.fingerprint.subject
    outputs = [spec.name for spec in table.outputs]
    stage = subject if subject in {"forward", "backward"} else "forward" if subject in outputs else "backward"
    given = {**inputs.tensors, **wanted.saved}
    function = getattr(implementation, stage)
    arguments = [given[name] for name in getattr(table, f"{stage}_arguments")]
    keywords = implementation.keywords(case.scalars, case.schedules.get(implementation.name))
    returned: Any = None
    raised: Exception | None = None
    with float32_matmuls(device), poisoned(0xFF), capturing(given) as capture:
        try:
            returned = function(*arguments, **keywords)
        except Exception as error:  # what a finding may be
            raised = error
    if raised is not None:
        raise ExportError(f"raises {type(raised).__name__} while it is recorded: {raised}")
    names = outputs if stage == "forward" else [spec.name for spec in table.gradients]
    value = returned[names.index(subject)]
    allowed = tolerances(inputs, wanted, recomputes_forward=implementation.recomputes_forward)
    verdict = _judged(found, value, allowed)
    result = capture.result(value)
    kernels = _kernels(capture, to, result.partition(".")[0] if cut else None)
    return _assembled(found, to, inputs, wanted, capture, kernels, result, verdict, allowed)


def _kernels(capture: Capture, to: str, wanted: str | None) -> Kernels:
    own = [launch for launch in capture.launches if (launch.target == "") == (to == "triton")]
    if not own or len(own) != len(capture.launches):
        raise ExportError(f"it launched {len(own)} kernels of {to}, and {len(capture.launches) - len(own)} others")
    if to == "triton":
        return triton_kernels(own, wanted)
    shapes = {**{name: tuple(tensor.shape) for name, tensor in capture.given.items()}, **capture.shapes}
    return tilelang_kernels(own, shapes, wanted)


def _judged(found: Finding, value: Tensor | None, allowed: Tolerances) -> Verdict:
    subject = found.fingerprint.subject
    number = {**allowed.outputs, **allowed.gradients}.get(subject)
    if value is None or number is None:
        raise ExportError(f"{subject} was not returned while it was recorded")
    judge = bound.judge_tensor if found.fingerprint.oracle == bound.NAME else nonfinite.judge_tensor
    verdict = judge(subject, value, number)
    if verdict.status is not Status.FAIL:
        raise ExportError(f"{subject} does not fail while it is recorded: {verdict.status.value} {verdict.message}")
    return verdict


def _assembled(
    found: Finding,
    to: str,
    inputs: Inputs,
    wanted: Reference,
    capture: Capture,
    kernels: Kernels,
    result: str,
    verdict: Verdict,
    allowed: Tolerances,
) -> Program:
    subject = found.fingerprint.subject
    matched = re.match(r"\w+\[([\d, ]*)\] = ", verdict.message)
    assert matched is not None, verdict.message
    at = tuple(int(one) for one in matched[1].split(",") if one.strip())
    number = {**allowed.outputs, **allowed.gradients}[subject]
    present = {name: tensor is not None for name, tensor in inputs.tensors.items()}
    function, parameters = reference(found.case, subject, present)
    run = [line for call in kernels.calls for line in call]
    made = [f"{name} = {text.expression}" for name, text in capture.made.items()]
    made = [line for line in made if _names(line.partition("=")[0], [*run, result])]
    given = {**inputs.tensors, **wanted.saved}
    needed = [name for name in given if name in parameters or _names(name, [*run, *made, result])]
    texts = {name: _given(given[name], capture, name) for name in needed}
    texts |= {name: text for name, text in capture.made.items() if any(line.startswith(f"{name} = ") for line in made)}
    imports = {"import math", "import os", "import sys", "import traceback", "import torch"} | kernels.imports
    for text in texts.values():
        imports |= text.imports
    environment = {
        name: value for name, value in found.variables.items() if name.startswith(("TRITON_", "TILELANG_", "TL_"))
    }
    body = [
        *(line for name in needed for line in _lines(name, texts[name])),
        "expected = reference(" + ", ".join(f"{name}.double()" for name in parameters) + f"){list(at)}.item()",
        *(line for name, text in capture.made.items() if name in texts for line in _lines(name, text)),
        *run,
        f"actual = {result}{list(at)}.item()",
    ]
    if inputs.device.type == "cuda":
        body = ['torch.set_default_device("cuda")', *body]
    limit = float(number.error[at])
    judged = _JUDGE if found.fingerprint.oracle == bound.NAME else _JUDGE_CLASS
    title = f"{found.fingerprint.subject}: {found.fingerprint.symptom}"
    head = [f'"""{title}. Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong."""', ""]
    first = [f'os.environ["{name}"] = "{value}"' for name, value in sorted(environment.items())]
    ordered = sorted(imports)
    if first:
        ordered.remove("import os")
        head += ["import os", "", *first, ""]
    lines = [
        *head,
        *ordered,
        "",
        *_OTHER.splitlines(),
        "",
        *kernels.definitions,
        "",
        "",
        *unparse([function]),
        "",
        "",
        *(part for line in body for part in wrap(line)),
        f"BOUND = {limit!r}",
        f'WHERE = "{subject}{list(at)}"',
        *judged.splitlines(),
    ]
    return Program(
        text="\n".join(lines) + "\n", to=to, at=f"{subject}{list(at)}", message=verdict.message, where=kernels.where
    )


def _given(tensor: Tensor | None, capture: Capture, name: str) -> Text:
    assert tensor is not None
    text = tensor_text(tensor)
    if name in capture.direct and not tensor.is_contiguous():
        return replace(text, after=(*text.after, *strided_text(tensor, tensor.shape)))
    return text


def _lines(name: str, text: Text) -> list[str]:
    return [f"{name} = {text.expression}", *(line.format(name) for line in text.after)]


def _names(name: str, lines: list[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name.strip())}\b", line) for line in lines)


_OTHER = textwrap.dedent(
    """\

    def other(kind, error, trace):
        traceback.print_exception(kind, error, trace)
        print(f"OTHER: {kind.__name__}: {error}", flush=True)
        os._exit(2)


    sys.excepthook = other
    """
)
_JUDGE = textwrap.dedent(
    """\
    print(f"{WHERE}: expected {expected!r}, actual {actual!r}, bound {BOUND!r}")
    if not math.isfinite(actual):
        print("OTHER: not finite")
        sys.exit(2)
    wrong = abs(actual - expected) > BOUND
    print("REPRODUCED" if wrong else "NOT REPRODUCED")
    sys.exit(1 if wrong else 0)
    """
)
_JUDGE_CLASS = textwrap.dedent(
    """\
    print(f"{WHERE}: expected {expected!r}, actual {actual!r}")
    classes = [(math.isnan(one), math.isinf(one) and one > 0, math.isinf(one) and one < 0) for one in (expected, actual)]
    print("REPRODUCED" if classes[0] != classes[1] else "NOT REPRODUCED")
    sys.exit(1 if classes[0] != classes[1] else 0)
    """
)
