"""The liveness gate: symptoms have names. Processes that die or hang are in `tests/fuzz/test_command_line.py`."""

import pytest

from mhc import Implementation, default_case
from mhc.observation import Failure
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import liveness
from tests.support.helpers import altered, judge_all, symptoms


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


def test_an_error_of_the_device_that_the_harness_meets_is_one_of_the_kernel() -> None:
    late = liveness.device_error(RuntimeError("CUDA error: device-side assert triggered\nCompile with"))
    assert late is not None
    assert (late.subject, late.symptom) == ("process", "kernel crash")
    assert late.message.endswith("RuntimeError: CUDA error: device-side assert triggered")
    assert liveness.device_error(RuntimeError("CUDA out of memory")) is None, "it goes on after that"
    assert liveness.device_error(RuntimeError("shape mismatch")) is None


@pytest.mark.parametrize("symptom", ["exit 9", "SIGSEGV"])
def test_an_end_after_a_case_has_a_symptom_of_its_own(symptom: str) -> None:
    after = "after the case had been judged, by what it left running, or by `supports` of the implementation"
    for called in (True, False):
        late = liveness.after_judged(liveness.died(symptom, called=called))
        assert (late.symptom, late.message) == (f"{symptom}, late", f"{after}: its process ended: {symptom}")
    assert liveness.after_judged(liveness.hung(2.0)).message == f"{after}: no answer within 2 s"


def test_what_adds_up_over_cases_is_the_same_in_and_after_one() -> None:
    for verdict in (
        liveness.exceeded_memory(2e9, 1e9),
        liveness.flooded_output(1 << 24),
        liveness.left_processes(65, 0),
        liveness.wrote_to_pipe(),
    ):
        assert liveness.after_judged(verdict) == verdict


def test_an_exception_in_any_stage_fails_once() -> None:
    def picky(out: object, arguments: tuple[object, ...]) -> object:
        raise NotImplementedError("D must be a multiple of 16\nmore")

    for stage in ("forward", "backward"):
        wrong: Implementation = altered(MANUAL, **{stage: picky})
        verdicts = judge_all(wrong, default_case(B=1, S=2, n=2, D=3))
        assert symptoms(verdicts) == {("liveness", stage, "raises NotImplementedError")}
        (failure,) = [one for one in verdicts if one.oracle == "liveness"]
        line = picky.__code__.co_firstlineno + 1
        wanted = f"{stage} raised NotImplementedError: D must be a multiple of 16 (test_liveness.py, line {line})"
        assert failure.message == wanted
