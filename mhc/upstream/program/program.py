"""Make the program of a finding, a file that imports only the DSL, in a separate process in which the kernel runs once."""

import json
import os
import signal
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from mhc.files import replace_text
from mhc.fuzz.findings.finding import Finding, from_document
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.upstream.program.draft import host_code_of, kernels_of, place
from mhc.upstream.program.script import Script, script
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
    ends = found.fingerprint.subject == "process"
    with tempfile.TemporaryDirectory() as name:
        answer = Path(name) / "answer.json"
        errors = answer.with_suffix(".log")
        process = FORKSERVER.Process(target=_child, args=(task, answer, errors))
        process.start()
        status = _waited(process, answer, hung=found.hung)
        if not answer.exists():
            if found.hung and status == "hang":
                raise ExportError(f"no kernel is launched in {SECONDS:.0f} s while it is recorded: the host code hangs")
            last = (errors.read_text(encoding="utf-8").strip().splitlines() or ["nothing said"])[-1]
            raise ExportError(f"its process ended while it was recorded, {status}: {last}")
        answered = json.loads(answer.read_text(encoding="utf-8"))
        others = answer.with_suffix(".pt")
        witnesses = others.read_bytes() if others.exists() else b""
    if "refused" in answered:
        raise ExportError(answered["refused"])
    if ends and status != found.fingerprint.symptom:
        raise ExportError(f"its process ends otherwise while it is recorded: {status}")
    program = Program(**{**answered, "script": script(answered["script"]), "witnesses": witnesses})
    return replace(program, unreduced=program.text)


def _waited(process: BaseProcess, answer: Path, *, hung: bool) -> str:
    """How the process that records ended; one that is known to hang gets less time once it has begun to launch."""
    deadline = time.monotonic() + SECONDS
    while process.is_alive() and time.monotonic() < deadline:
        if hung and answer.exists():
            deadline = min(deadline, time.monotonic() + HANGS)
        process.join(_LOOK)
    if process.exitcode is not None:
        return _ended(process.exitcode)
    process.kill()
    process.join()
    return "hang"


def _ended(status: int) -> str:
    """How a process ended, as a finding says it."""
    return signal.Signals(-status).name if status < 0 else f"exit {status}"


def _child(task: dict[str, Any], path: Path, errors: Path) -> None:
    """Write the program or the refusal to the file `path`, and standard error to `errors`; runs in the process of `make`."""
    with errors.open("w") as log, Path(os.devnull).open("w") as nowhere:
        os.dup2(log.fileno(), 2)
        os.dup2(nowhere.fileno(), 1)
    os.environ.update(task["environment"])  # before anything of a DSL is imported
    found = replace(from_document(task["finding"]), variables=task["variables"])
    to, form = task["to"], task["form"]

    def tell(recording: Recording) -> None:
        if form != HOST and not recording.capture.launches:  # a stage begins
            path.unlink(missing_ok=True)
        else:
            replace_text(path, json.dumps(_document(recording, to, form)))

    try:
        if found.fingerprint.subject == "process":
            record(found, task["device"], tell)
        recording = record(found, task["device"])
        others = witnesses(recording)
        answered = _document(recording, to, form)
        if others:
            torch.save(others, path.with_suffix(".pt"))
    except ExportError as error:
        answered = {"refused": str(error)}
    except Exception as error:  # reported: the traceback of this process is not shown
        answered = {"refused": f"cannot be recorded: {type(error).__name__}: {error}"}
    path.write_text(json.dumps(answered), encoding="utf-8")


def _document(recording: Recording, to: str, form: str) -> dict[str, Any]:
    """The fields of the program."""
    made, where = host_code_of(recording, to) if form == HOST else kernels_of(recording, to, cut=form == CUT)
    return {"script": asdict(made), "to": to, "form": form, "at": place(recording), "where": where}
