"""Helpers that several test modules share."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from mhc import Case, Implementation, Inputs, Observation, default_case, materialise, observe, reference
from mhc.case import with_tensor
from mhc.fuzz.check.check import check, further
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.report import describe
from mhc.operators.mhc_pre import formula
from mhc.oracles.bound import Tolerances, tolerances
from mhc.oracles.judge import judge
from mhc.oracles.trial import Gate, Trial
from mhc.oracles.verdict import Status, Verdict
from mhc.registry import built_in
from tests.support.device import ASKED, place


def _placed_on(device: str) -> tuple[Implementation, ...]:
    gpu = torch.cuda.is_available()
    return tuple(
        one
        for one in built_in("mhc_pre").values()
        if place(one, ASKED.device, gpu=gpu, variables=os.environ).device == device
    )


ON_CPU = _placed_on("cpu")
"""The built-in implementations that are tested on the CPU, in this process; none with `--device cuda`."""

ON_CUDA = _placed_on("cuda")
"""Those that are tested on a GPU: the ones that run on no CPU, and all that can with `--device cuda`."""

ROOT = Path(__file__).resolve().parents[2]


def report_folder(otherwise: Path) -> Path:
    """Return the folder for what a replay needs: that of campaigns' reports, if the tests run in the project's folder."""
    folder = Path("fuzz_reports")
    return folder if folder.is_dir() else otherwise


def failure_text(found: Finding, path: Path, device: str) -> str:
    """Return a finding as a failing test prints it: a few lines that fit a terminal, the last one to be copied."""
    *lines, command = describe(found, path, device).splitlines()
    fitting = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        more = f"{indent}    "
        fitting += wrap(line.strip(), 120, initial_indent=indent, subsequent_indent=more, max_lines=3, placeholder=" ...")
    return "\n".join([*fitting, command])


def scaled_case(x_scale: float = 0.1, **fields: Any) -> Case:
    """Return a case like a layer's: x at `x_scale`, phi so that its product with a normalised x is about 1."""
    case = default_case(**fields)
    case = with_tensor(case, "x", scale=x_scale)
    return with_tensor(case, "phi", scale=case.sizes["K"] ** -0.5)


def with_layout(case: Case, name: str, **fields: Any) -> Case:
    """Return `case` with some fields of one tensor's layout replaced."""
    return with_tensor(case, name, layout=replace(case.tensors[name].layout, **fields))


def forward_arguments(inputs: Inputs) -> list[Tensor | None]:
    return [inputs.tensors[name] for name in inputs.case.table.forward_arguments]


def device_of(implementation: Implementation) -> str:
    """Return the CPU for everything that runs there; with `--device cuda` the other way round."""
    first, second = ("cuda", "cpu") if ASKED.device == "cuda" else ("cpu", "cuda")
    return first if first in implementation.devices else second


def observed(implementation: Implementation, case: Case) -> Observation:
    """Run `implementation` on `case`, on the device it is tested on, and return the observation."""
    inputs = materialise(case, device_of(implementation))
    return observe(implementation, inputs, reference(inputs).saved)


def judged(implementation: Implementation, case: Case) -> tuple[Observation, Tolerances, list[Verdict]]:
    """Return an observation without an exception, its tolerances, and every gate's verdicts on it."""
    inputs = materialise(case, device_of(implementation))
    wanted = reference(inputs)
    observation = observe(implementation, inputs, wanted.saved)
    assert observation.failure is None, observation.failure.traceback
    allowed = tolerances(inputs, wanted, declared=implementation.declared)
    return observation, allowed, judge(observation, allowed)


def judge_all(implementation: Implementation, case: Case) -> list[Verdict]:
    """Return every gate's verdicts, also where an exception is raised."""
    return check(implementation, case, device_of(implementation), Level.FULL).verdicts


def failing(verdicts: list[Verdict]) -> set[str]:
    """Return the subjects that fail."""
    return {verdict.subject for verdict in verdicts if verdict.status is Status.FAIL}


def leaves(case: Case) -> list[Tensor]:
    """Return the forward's inputs that are present, as float64 leaves for gradcheck."""
    tensors = forward_arguments(materialise(case))
    return [tensor.clone().requires_grad_() for tensor in tensors if tensor is not None]


def edited_formula(edits: Mapping[str, str]) -> ModuleType:
    """Return a copy of the formula with edits of its source; an edit that does not apply exactly once is an error."""
    path = Path(formula.__file__)
    source = path.read_text(encoding="utf-8")
    for old, new in edits.items():
        assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times"
        source = source.replace(old, new)
    spec = importlib.util.spec_from_loader("edited_formula", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["edited_formula"] = module
    exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102  the copy is the point
    return module


def bits(tensor: Tensor | None) -> bytes:
    """Return the elements' bytes in index order, to compare results bit by bit, NaN included."""
    assert tensor is not None
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def altered(implementation: Implementation, **edits: Callable[[Any, tuple[Any, ...]], Any]) -> Implementation:
    """Return `implementation` with the results of a stage passed through `edits[stage](returned, arguments)`."""

    def edited(stage: str, edit: Callable[[Any, tuple[Any, ...]], Any]) -> Callable[..., Any]:
        function = getattr(implementation, stage)
        return lambda *arguments, **keywords: edit(tuple(function(*arguments, **keywords)), arguments)

    stages: dict[str, Any] = {stage: edited(stage, edit) for stage, edit in edits.items()}
    return replace(implementation, name="altered", **stages)


def nudged(tensor: Tensor) -> Tensor:
    """Return the tensor with every element one unit in the last place further from 0."""
    return torch.nextafter(tensor, tensor.sign() * torch.inf)


def symptoms(verdicts: Iterable[Verdict]) -> set[tuple[str, str, str]]:
    """Return (oracle, subject, symptom) of each failure: a fingerprint without the implementation."""
    return {(one.oracle, one.subject, one.symptom) for one in verdicts if one.status is Status.FAIL}


def gate_verdicts(gate: Gate, implementation: Implementation, case: Case) -> list[Verdict]:
    """Return the verdicts of one gate with further runs."""
    inputs = materialise(case, device_of(implementation))
    wanted = reference(inputs)
    trial = Trial(
        inputs=inputs,
        reference=wanted,
        allowed=tolerances(inputs, wanted, declared=implementation.declared),
        observation=observe(implementation, inputs, wanted.saved),
        declared=implementation.declared,
        dtypes=implementation.dtypes,
        by_autograd=implementation.by_autograd,
    )
    assert trial.observation.failure is None, trial.observation.failure.traceback
    return further(implementation, trial, [gate])


def gate_symptoms(gate: Gate, implementation: Implementation, case: Case) -> set[tuple[str, str, str]]:
    return symptoms(gate_verdicts(gate, implementation, case))


@contextmanager
def started(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a process, with its output on a pipe; at the end of the block it is killed, and its pipes are closed.

    Signals have their default actions in it, also where the suite itself ignores one, as under nohup.
    """

    def restore() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)

    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=restore, **options) as process:  # noqa: PLW1509
        try:
            yield process
        finally:
            process.kill()


def sleeping(mark: str) -> list[str]:
    """Return the processes that sleep for so many seconds: a number that no other test has."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = file.read_bytes().split(b"\0")
            found += [file.parent.name] if words[:2] == [b"sleep", mark.encode()] else []
    return found
