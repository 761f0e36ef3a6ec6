"""The Triton kernels in the interpreter, in a process of their own: `TRITON_INTERPRET` must be set before the import."""

from collections.abc import Iterator
from typing import Any

import pytest

from mhc import load
from mhc.fuzz.worker import Worker
from oracles.verdict import Status
from tests.support import scaled_case, with_layout

SPEC = "mhc.pre.triton_impls:TRITON_INTERPRETED"

SHAPES: tuple[dict[str, Any], ...] = (
    {"B": 0, "S": 2, "n": 2, "D": 3},
    {"B": 1, "S": 3, "n": 2, "D": 5, "dtype": "bfloat16"},
    {"B": 2, "S": 1, "n": 3, "D": 1, "dtype": "float16", "absent": frozenset({"gamma"})},
    {"B": 1, "S": 2, "n": 1, "D": 17, "dtype": "float32"},
    {"B": 1, "S": 2, "n": 2, "D": 3, "dtype": "float64"},
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    started = Worker(SPEC, load(SPEC), "cpu")
    yield started
    started.stop()


def test_every_dtype_passes_every_gate(worker: Worker) -> None:
    for fields in SHAPES:
        case = scaled_case(**fields)
        if case.dtype == "bfloat16":
            case = with_layout(case, "x", order=(1, 0, 2, 3), step=2, offset=1)
        worker.start(case)
        verdicts = worker.finish()
        assert not [verdict for verdict in verdicts if verdict.status is Status.FAIL], case.id
        assert case.N == 0 or sum(verdict.status is Status.PASS for verdict in verdicts) >= 11, case.id


def test_on_the_cpu_the_compiled_one_refuses() -> None:
    refusal = load("mhc.pre.triton_impls:TRITON").refusal(scaled_case(), "cpu")
    assert refusal is not None
    assert refusal.reason == "runs on cuda, not on cpu"
