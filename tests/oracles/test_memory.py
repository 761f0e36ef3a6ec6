"""The memory gate, and the poisoned memory that it needs."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from mhc import default_case
from mhc.memory import FINITE_FILL, NAN_FILL, poisoned
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import determinism, isolation, memory
from tests.support.helpers import altered, failing, gate_symptoms, judged, symptoms

CASE = default_case(B=2, S=3, n=2, D=5, dtype="float32")


def test_factories_are_poisoned_between_canaries_and_put_back() -> None:
    like = torch.ones(4, 3).T
    before = (torch.empty, torch.Tensor.new_empty, torch.zeros)
    with poisoned(NAN_FILL) as allocations:
        made = [
            torch.empty(3, 4),
            torch.empty_like(like),
            torch.empty_strided((2, 2), (3, 1)),
            like.new_empty((2,), dtype=torch.float64),
            torch.zeros(5),
        ]
        assert [bool(one.isnan().all()) for one in made] == [True, True, True, True, False]
        assert not made[-1].any()
        assert made[1].stride() == torch.empty_like(like).stride() == (1, 3)
        assert all(one.data_ptr() % 64 == 0 for one in made)
        assert torch.empty(0).numel() == 0
        assert not allocations.overrun(allocations.canaries())
        made[0].as_strided((1,), (1,), made[0].storage_offset() + 12).zero_()
        made[4].as_strided((1,), (1,), made[4].storage_offset() - 1).zero_()
        found = [(one.allocation.address, one.elements) for one in allocations.overrun(allocations.canaries())]
        assert found == [(made[0].data_ptr(), [12]), (made[4].data_ptr(), [-1])]
    assert (torch.empty, torch.Tensor.new_empty, torch.zeros) == before
    assert "new_empty" not in vars(torch.Tensor)


def test_the_factory_of_compiled_code_is_poisoned_too() -> None:
    guards: Any = torch._C._dynamo.guards
    before = guards._empty_strided_cuda
    with poisoned(NAN_FILL):
        assert guards._empty_strided_cuda is not before
        if torch.cuda.is_available():
            assert guards._empty_strided_cuda((3, 2), (2, 1), torch.float32).isnan().all()
    assert guards._empty_strided_cuda is before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_what_the_fills_are(dtype: torch.dtype) -> None:
    with poisoned(NAN_FILL):
        assert torch.empty(1, dtype=dtype).isnan()
    with poisoned(FINITE_FILL):
        assert 2 < float(torch.empty(1, dtype=dtype)) < 33


A_DEFAULT_DEVICE = """
import torch
from mhc.memory import NAN_FILL, poisoned

with poisoned(NAN_FILL), torch.device("meta"):
    inside = torch.empty(2), torch.zeros(2), torch.ones(2)
with torch.device("meta"):
    after = torch.empty(2), torch.zeros(2), torch.ones(2)
assert all(one.is_meta for one in (*inside, *after)), (inside, after)
"""


def test_a_kernel_may_set_a_default_device() -> None:
    subprocess.run([sys.executable, "-c", A_DEFAULT_DEVICE], check=True)  # PyTorch notes its factories once per process


def test_factories_are_put_back_after_an_exception() -> None:
    before = torch.empty
    with pytest.raises(ZeroDivisionError), poisoned(NAN_FILL):
        raise ZeroDivisionError
    assert torch.empty is before


def test_an_input_that_is_written_fails() -> None:
    def backward(out: tuple[torch.Tensor, ...], arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        arguments[0].view(-1)[0] = 0
        return out

    assert ("memory", "inputs", "written") in symptoms(judged(altered(MANUAL, backward=backward), CASE)[2])


def test_a_write_past_the_end_of_an_input_fails() -> None:
    def backward(out: tuple[torch.Tensor, ...], arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        arguments[0].as_strided((1,), (1,), arguments[0].numel()).zero_()
        return out

    assert symptoms(judged(altered(MANUAL, backward=backward), CASE)[2]) == {("memory", "inputs", "written")}


def test_a_row_past_the_end_of_an_output_fails() -> None:
    def backward(out: tuple[torch.Tensor, ...], _: object) -> tuple[torch.Tensor, ...]:
        dx = torch.empty_like(out[0]).copy_(out[0])
        dx.as_strided((5,), (1,), dx.storage_offset() + dx.numel()).zero_()
        return (dx, *out[1:])

    assert symptoms(judged(altered(MANUAL, backward=backward), CASE)[2]) == {("memory", "dx", "overrun")}


def test_an_element_that_is_not_written_fails() -> None:
    """It is NaN in poisoned memory, where fresh memory would often be 0 and reused memory right."""

    def forward(out: tuple[torch.Tensor, ...], _: object) -> tuple[torch.Tensor, ...]:
        h_res = torch.empty_like(out[2])
        h_res[0] = out[2][0]
        return (*out[:2], h_res, *out[3:])

    assert symptoms(judged(altered(MANUAL, forward=forward), CASE)[2]) == {("nonfinite", "h_res", "class")}


def test_a_result_that_depends_on_what_was_in_a_buffer_fails() -> None:
    """By a max with it, which drops NaN and stays inside the bound."""

    def forward(out: tuple[torch.Tensor, ...], _: object) -> tuple[torch.Tensor, ...]:
        stale = torch.empty_like(out[1])
        return (out[0], torch.where(stale > 0, out[1] * (1 + 2**-22), out[1]), *out[2:])

    wrong = altered(MANUAL, forward=forward)
    assert not failing(judged(wrong, CASE)[2])
    assert gate_symptoms(memory.GATE, wrong, CASE) == {("memory", "h_post", "uninitialised")}
    assert not gate_symptoms(memory.GATE, MANUAL, CASE)


def test_a_result_that_depends_on_what_lies_behind_an_input_fails() -> None:
    """NaN lies there in the first run. A max drops it; times 0 it is NaN with either pattern unless that changes."""

    def past(out: tuple[torch.Tensor, ...], arguments: tuple[torch.Tensor, ...], how: object) -> tuple[torch.Tensor, ...]:
        x = arguments[0]
        behind = x.as_strided((1,), (1,), x.storage_offset() + x.numel() + 5)
        return (out[0], how(out[1], behind), *out[2:])  # type: ignore[operator]

    dropped = altered(MANUAL, forward=lambda out, given: past(out, given, torch.fmax))
    assert not failing(judged(dropped, CASE)[2])
    assert gate_symptoms(memory.GATE, dropped, CASE) == {("memory", "h_post", "uninitialised")}
    kept = altered(MANUAL, forward=lambda out, given: past(out, given, lambda one, behind: one + 0 * behind))
    assert symptoms(judged(kept, CASE)[2]) == {("nonfinite", "h_post", "class")}
    assert gate_symptoms(memory.GATE, kept, CASE) == {("memory", "h_post", "uninitialised")}


def test_a_result_that_the_next_call_overwrites_fails() -> None:
    """Each run by itself is right, and a second one on the same input hides it."""
    kept: dict[torch.Size, torch.Tensor] = {}

    def forward(out: tuple[torch.Tensor, ...], _: object) -> tuple[torch.Tensor, ...]:
        buffer = kept.setdefault(out[0].shape, torch.empty_like(out[0]))
        return (buffer.copy_(out[0]), *out[1:])

    wrong = altered(MANUAL, forward=forward)
    assert not gate_symptoms(determinism.GATE, wrong, CASE)
    assert gate_symptoms(isolation.GATE, wrong, CASE) == {("memory", "h_in", "overwritten")}
    assert not gate_symptoms(isolation.GATE, MANUAL, CASE)


@pytest.mark.parametrize("wrong", [False, True])
def test_an_output_that_stands_for_minus_its_memory_is_judged_by_its_values(wrong: bool) -> None:
    """As `z.conj().imag` is: PyTorch negates the memory where it is read, and does not view it as integers."""
    kept: dict[torch.Size, torch.Tensor] = {}

    def forward(out: tuple[torch.Tensor, ...], _: object) -> tuple[torch.Tensor, ...]:
        minus = torch.complex(torch.zeros_like(out[0]), -out[0])
        minus = kept.setdefault(out[0].shape, minus).copy_(minus) if wrong else minus
        assert minus.conj().imag.is_neg()
        return (minus.conj().imag, *out[1:])

    implementation = altered(MANUAL, forward=forward)
    assert not gate_symptoms(determinism.GATE, implementation, CASE)
    assert gate_symptoms(isolation.GATE, implementation, CASE) == ({("memory", "h_in", "overwritten")} if wrong else set())
