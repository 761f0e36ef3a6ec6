"""Make the program of a finding, a file that imports only the DSL, in a separate process in which the kernel runs once."""

import io
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mhc.fuzz.findings.finding import Finding, from_document
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.upstream.program.draft import host_code_of, kernels_of, place
from mhc.upstream.program.script import Script
from mhc.upstream.program.witness import witnesses
from mhc.upstream.trace.recording import Recording, record
from mhc.upstream.verify import ExportError

SECONDS = 300.0
HANGS = 20.0
"""Seconds to record a finding, and to wait for a launch that is known to hang."""

_LOOK = 0.05
CUT, WHOLE, HOST = "cut", "whole", "host"
FORMS = {
    CUT: "the kernels as they were launched, without what the wrong output does not need",
    WHOLE: "the kernels as they were launched",
    HOST: "the implementation with its host code",
}
"""What a program is made of, in the order in which they are tried."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What `repro.py` is.

    Attributes:
        to: "triton", "tilelang" or "torch". form: of `FORMS`.
        at: what is wrong, as `dx[0, 0]`, or the stage that raises. where: what it launches.
        witnesses: other values for what it is given, on which a smaller program must do the same; saved by PyTorch.
        unreduced: its text before its statements were reduced.
    """

    script: Script
    to: str
    form: str
    at: str
    where: str
    witnesses: bytes = b""
    unreduced: str = ""

    @property
    def text(self) -> str:
        return self.script.text()

    @property
    def lines(self) -> int:
        return self.script.lines


def make(found: Finding, to: str, device: str, form: str) -> Program:
    """Run the finding's stage and write down what it did.

    Raises:
        ExportError: it did nothing of `to`, did not fail, or failed in a way that no program is made of.
    """
    if found.against is not None:
        raise ExportError(f"it is a difference from {found.against}: export the implementation that is wrong by itself")
    task = {
        "finding": found.document,
        "variables": dict(found.variables),
        "environment": {**os.environ, **found.variables},
        "to": to,
        "device": device,
        "form": form,
    }
    with tempfile.TemporaryDirectory() as name:
        answer = Path(name) / "answer"
        errors = answer.with_suffix(".log")
        process = FORKSERVER.Process(target=_child, args=(task, answer, errors))
        process.start()
        status = _waited(process, answer, hung=found.hung)
        if not answer.exists():
            if found.hung and status == "hang":
                raise ExportError(f"no kernel is launched in {SECONDS:.0f} s while it is recorded: the host code hangs")
            last = (errors.read_text(encoding="utf-8").strip().splitlines() or ["nothing said"])[-1]
            raise ExportError(f"its process ended while it was recorded, {status}: {last}")
        answered: Program | str = pickle.loads(answer.read_bytes())
    if isinstance(answered, str):
        raise ExportError(answered)
    if found.fingerprint.subject == "process" and status != found.fingerprint.symptom:
        raise ExportError(f"its process ends otherwise while it is recorded: {status}")
    return replace(answered, unreduced=answered.text)


def _waited(process: BaseProcess, answer: Path, *, hung: bool) -> str:
    """Return how the recording process ended; one that is known to hang gets less time after its first launch."""
    deadline = time.monotonic() + SECONDS
    while process.is_alive() and time.monotonic() < deadline:
        if hung and answer.exists():
            deadline = min(deadline, time.monotonic() + HANGS)
        process.join(_LOOK)
    if process.exitcode is None:
        process.kill()
        process.join()
        return "hang"
    status = process.exitcode
    return signal.Signals(-status).name if status < 0 else f"exit {status}"


def _child(task: dict[str, Any], path: Path, errors: Path) -> None:
    """Write the program or the refusal to the file `path`, and standard error to `errors`; runs in the process of `make`."""
    with errors.open("w") as log, Path(os.devnull).open("w") as nowhere:
        os.dup2(log.fileno(), 2)
        os.dup2(nowhere.fileno(), 1)
    os.environ.update(task["environment"])  # before anything of a DSL is imported
    found = replace(from_document(task["finding"]), variables=task["variables"])
    to, form = task["to"], task["form"]

    def answer(answered: Program | str) -> None:
        whole = path.with_suffix(".part")
        whole.write_bytes(pickle.dumps(answered))
        whole.replace(path)

    def tell(recording: Recording) -> None:
        if form != HOST and not recording.capture.launches:  # a stage begins
            path.unlink(missing_ok=True)
        else:
            answer(_program(recording, to, form))

    try:
        if found.fingerprint.subject == "process":
            record(found, task["device"], tell)
        recording = record(found, task["device"])
        answer(_program(recording, to, form, witnesses(recording)))
    except ExportError as error:
        answer(str(error))
    except Exception as error:  # reported: the traceback of this process is not shown
        answer(f"cannot be recorded: {type(error).__name__}: {error}")


def _program(recording: Recording, to: str, form: str, others: Sequence[Mapping[str, Tensor]] = ()) -> Program:
    script, where = host_code_of(recording, to) if form == HOST else kernels_of(recording, to, cut=form == CUT)
    stored = io.BytesIO()
    if others:
        torch.save(others, stored)
    return Program(script=script, to=to, form=form, at=place(recording), where=where, witnesses=stored.getvalue())
