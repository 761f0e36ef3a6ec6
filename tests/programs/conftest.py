"""What judges Triton programs, in a process of the interpreter or of the compiler, one for each module of tests."""

from collections.abc import Callable, Iterator

import pytest

from mhc.fuzz.worker.client import WorkerClient
from mhc.oracles.verdict import Verdict
from mhc.programs.targets import TARGETS, ProgramTarget
from mhc.programs.triton.grammar import TritonProgram

Judge = Callable[[TritonProgram], list[Verdict]]


def judging(target: ProgramTarget) -> Iterator[Judge]:
    """Yield what judges a program in a process of a target."""
    worker = WorkerClient(target.name, target, "cpu")

    def judge(one: TritonProgram) -> list[Verdict]:
        worker.start(one)
        return worker.finish()

    yield judge
    worker.stop()


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Judge]:
    yield from judging(TARGETS["triton-interpreter"])


@pytest.fixture(scope="module")
def compiled() -> Iterator[Judge]:
    yield from judging(TARGETS["triton-for-sm_90"])
