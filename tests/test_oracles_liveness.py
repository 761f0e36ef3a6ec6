"""The liveness gate: symptoms have names. Processes that die or hang are in `tests/test_fuzz.py`."""

import pytest

from mhc import Implementation, default_case
from mhc.observation import Failure
from mhc.pre.reference_impls import MANUAL
from oracles import liveness
from tests.support import altered, judge_all, symptoms


@pytest.mark.parametrize(
    ("type_", "message", "symptom"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB", "out of memory"),
        ("OutOfResources", "out of resource: shared memory, Required: 303104", "out of memory"),
        ("AcceleratorError", "CUDA error: an illegal memory access was encountered", "illegal address"),
        ("RuntimeError", "CUDA error: misaligned address", "illegal address"),
        ("RuntimeError", "CUDA error: unspecified launch failure", "kernel crash"),
        ("CompilationError", "at 3:4: unsupported operand", "compile error"),
        ("RuntimeError", "Compilation error: nvcc fatal", "compile error"),
        ("ValueError", "bad D", "raises ValueError"),
        ("IndexError", "", "raises IndexError"),
    ],
)
def test_symptoms(type_: str, message: str, symptom: str) -> None:
    assert liveness.symptom(Failure(stage="forward", type=type_, message=message, traceback="")) == symptom


def test_an_exception_in_any_stage_fails_once() -> None:
    def picky(out: object, arguments: tuple[object, ...]) -> object:
        raise NotImplementedError("D must be a multiple of 16\nmore")

    for stage in ("forward", "backward"):
        wrong: Implementation = altered(MANUAL, **{stage: picky})
        verdicts = judge_all(wrong, default_case(B=1, S=2, n=2, D=3))
        assert symptoms(verdicts) == {("liveness", stage, "raises NotImplementedError")}
        (failure,) = [one for one in verdicts if one.oracle == "liveness"]
        assert failure.message == f"{stage} raised NotImplementedError: D must be a multiple of 16"
