"""Every implementation on a GPU under compute-sanitizer: `pytest -m sanitizer`, minutes on a machine with a GPU.

memcheck finds accesses outside of allocations, initcheck reads of memory that nobody wrote. racecheck is advisory: it takes
what barriers of bulk copies order for races, so that what it reports is told in the terminal's summary and fails nothing.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from mhc import Refused
from mhc.operators.mhc_pre.tir.implementations import TIR
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.registry import built_in
from tests.support.helpers import ROOT
from tests.support.needs import needs_tilelang
from tests.support.sanitized import CASES, run, tight

FOUND = 86
"""The exit status for what compute-sanitizer reports; the program itself ends with others."""

ADVISORY = "racecheck"
TOOLS: dict[str, Sequence[str]] = {
    # failed calls of CUDA's own functions are exceptions already, or questions that PyTorch asks
    "memcheck": ("--report-api-errors", "no"),
    "initcheck": (),
    ADVISORY: (),
}
PRINTED, SHOWN = 20, 3
LIMIT = 600

on_a_gpu = pytest.mark.sanitizer


@dataclass(frozen=True)
class Watched:
    """What a program under compute-sanitizer did: its exit status, and everything that the two of them wrote."""

    status: int
    output: str

    @property
    def ran(self) -> bool:
        """Whether at least one stage ran to its end."""
        return re.search(r"^\S+: (forward|backward) ran$", self.output, re.MULTILINE) is not None


def watch(executable: str, tool: str, spec: str) -> Watched:
    """`sanitized` on one implementation. PyTorch's cache is off: in it, an allocation is a part of a larger one."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
    options = ["--tool", tool, *TOOLS[tool], "--error-exitcode", str(FOUND), "--show-backtrace", "no"]
    options += ["--print-limit", str(PRINTED), "--target-processes", "application-only"]
    done = subprocess.run(
        [executable, *options, sys.executable, "-m", "tests.support.sanitized", spec],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return Watched(done.returncode, done.stdout)


def reports(output: str) -> list[str]:
    """What the tool reports, one text of a few lines each; its own notes and its summary are none."""
    blocks: list[list[str]] = []
    for line in output.splitlines():
        match = re.match(r"========= ?(.*)", line)
        if match is None:
            continue
        text = match[1].rstrip()
        if text.startswith(" ") and blocks:
            blocks[-1].append(f"  {text.strip()}")
        elif text:
            blocks.append([text])
    noise = re.compile(r"COMPUTE-SANITIZER|(ERROR|RACECHECK|LEAK) SUMMARY|No longer printing|Target application|Program hit")
    return ["\n".join(block) for block in blocks if not noise.match(block[0])]


def message(tool: str, spec: str, watched: Watched) -> str:
    """The first reports, or the end of what the program wrote where there are none; and the command that shows all."""
    found = reports(watched.output)
    if found and watched.status == FOUND:
        told = [
            f"{tool} has {len(found)} reports{' or more' * (len(found) >= PRINTED)} on {spec}; the first:",
            *found[:SHOWN],
        ]
    else:
        told = [f"{spec} under {tool} ended with status {watched.status}:", *watched.output.splitlines()[-12:]]
    again = f"PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool {tool} python -m tests.support.sanitized {spec}"
    return "\n".join([*told, again])


@pytest.fixture
def executable() -> str:
    """compute-sanitizer, where it can be used."""
    if not torch.cuda.is_available():
        pytest.skip("compute-sanitizer needs a GPU, and PyTorch sees none")
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=f"{home}/bin")
    if found is None:
        pytest.skip("no compute-sanitizer on the path or in CUDA_HOME")
    return found


def skip_if_unsupported(watched: Watched) -> None:
    unsupported = re.search(r"=========.*Device not supported.*", watched.output)
    if unsupported is not None:
        pytest.skip(f"compute-sanitizer: {unsupported[0].strip('= ')}")


@on_a_gpu
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", [one.name for one in built_in("mhc_pre").values() if "cuda" in one.devices])
def test_nothing_is_reported(name: str, tool: str, executable: str, record_property: Callable[[str, object], None]) -> None:
    watched = watch(executable, tool, name)
    skip_if_unsupported(watched)
    if tool == ADVISORY and watched.status == FOUND:
        record_property("advisory", message(tool, name, watched))
    elif watched.status != 0:
        pytest.fail(message(tool, name, watched), pytrace=False)
    assert watched.ran, f"no stage ran:\n{watched.output}"


@on_a_gpu
@pytest.mark.parametrize(
    ("tool", "fault", "report"),
    [
        ("memcheck", "NO_FAULT", None),
        ("memcheck", "PAST_THE_END", r"Invalid __global__ read of size \d+ bytes\n  at _copy"),
        ("initcheck", "NO_FAULT", None),
        ("initcheck", "NEVER_WRITTEN", r"Uninitialized __global__ memory read of size \d+ bytes\n  at _copy"),
    ],
    ids=lambda value: "" if value is None or " " in value else value,
)
def test_a_wrong_kernel_is_reported_and_a_right_one_not(tool: str, fault: str, report: str | None, executable: str) -> None:
    spec = f"tests.support.sanitizer_faults:{fault}"
    watched = watch(executable, tool, spec)
    skip_if_unsupported(watched)
    if report is None:
        assert watched.status == 0, message(tool, spec, watched)
        assert watched.ran
    else:
        assert watched.status == FOUND, message(tool, spec, watched)
        assert re.search(report, message(tool, spec, watched)), message(tool, spec, watched)


READS_PAST = """\
========= COMPUTE-SANITIZER
pre-B2S9n4D40-bf16-0: forward ran
========= Invalid __global__ read of size 2 bytes
=========     at _copy+0x1f0 in sanitizer_faults.py:18
=========     by thread (31,0,0) in block (0,0,0)
=========     Access at 0x7f2c0a000b40 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2c0a000000 of size 2880 bytes
=========
========= Invalid __global__ read of size 2 bytes
=========     at _copy+0x200 in sanitizer_faults.py:18
=========
========= ERROR SUMMARY: 2 errors
"""


def fake(folder: Path, output: str, status: int) -> str:
    """An executable that says and does the same each time, and keeps what it was called with."""
    path = folder / "compute-sanitizer"
    (folder / "output").write_text(output, encoding="utf-8")
    path.write_text(
        f'#!/bin/sh\necho "$*" > {folder}/called\nenv > {folder}/env\ncat {folder}/output\nexit {status}\n', "utf-8"
    )
    path.chmod(0o755)
    return str(path)


def test_a_failure_shows_the_first_reports_and_the_command(tmp_path: Path) -> None:
    watched = watch(fake(tmp_path, READS_PAST, FOUND), "memcheck", "triton")
    assert (watched.status, watched.ran) == (FOUND, True)
    lines = message("memcheck", "triton", watched).splitlines()
    assert lines[:3] == [
        "memcheck has 2 reports on triton; the first:",
        "Invalid __global__ read of size 2 bytes",
        "  at _copy+0x1f0 in sanitizer_faults.py:18",
    ]
    assert lines[-1].endswith("compute-sanitizer --tool memcheck python -m tests.support.sanitized triton")
    assert max(map(len, lines)) <= 120
    called = (tmp_path / "called").read_text(encoding="utf-8")
    assert f"--tool memcheck --report-api-errors no --error-exitcode {FOUND} " in called
    assert called.endswith("-m tests.support.sanitized triton\n")
    environment = (tmp_path / "env").read_text(encoding="utf-8").splitlines()
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING=1" in environment
    assert not any(line.startswith("TRITON_INTERPRET=") for line in environment)


def test_a_program_that_fails_by_itself_is_no_report(tmp_path: Path) -> None:
    output = "========= COMPUTE-SANITIZER\nTraceback (most recent call last):\nZeroDivisionError: division by zero\n"
    watched = watch(fake(tmp_path, output, 1), "initcheck", "triton")
    assert not watched.ran
    text = message("initcheck", "triton", watched)
    assert text.startswith("triton under initcheck ended with status 1:\n")
    assert "ZeroDivisionError: division by zero" in text


def test_a_device_that_the_tool_does_not_take_is_a_skip_with_its_words() -> None:
    with pytest.raises(pytest.skip.Exception, match="Device not supported"):
        skip_if_unsupported(Watched(1, "========= Error: Device not supported. Please refer to the documentation\n"))


def test_allocations_end_with_the_last_element() -> None:
    strided = torch.arange(24.0).view(2, 3, 4).transpose(0, 2)[:, 1:]
    copy = tight(strided)
    assert copy is not None
    assert copy.stride() == strided.stride()
    assert torch.equal(copy, strided)
    assert copy.untyped_storage().size() == 4 * (1 + 3 * 1 + 1 * 4 + 1 * 12)


@needs_tilelang
def test_what_is_watched_runs_every_stage_or_says_why_not() -> None:
    stages = [list(run(one, case, "cpu").items()) for one in (MANUAL, TIR) for case in CASES]
    assert stages == 2 * [[("forward", "ran"), ("backward", "ran")]] + 2 * [[("forward", "ran")]]
    picky = replace(MANUAL, supports=lambda case: Refused("odd D"))
    assert run(picky, CASES[0], "cpu") == {"case": "refused: odd D"}
