"""Triton's interpreter patches `triton.language` once a launch, computes what it computes without that, and autotunes."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# kernels are in Triton's language

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.language.extra.libdevice import rsqrt

from mhc import Implementation, operator
from mhc.case import default_case
from mhc.fuzz.check.check import check
from mhc.triton_interpreter import prepared


@triton.jit
def _inner(v, scale):
    return tl.where(v > 1, v * scale, v)


@triton.jit
def _outer(v, scale):
    return _inner(v, scale) + _inner(v + 1, scale)


@triton.jit
def kernel(x_ptr, y_ptr, size, scale, BLOCK: tl.constexpr):
    """Apply a device function, which calls another, to blocks."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + at, mask=at < size, other=0.0)
    tl.static_assert(BLOCK > 1)
    tl.store(y_ptr + at, _outer(v, scale), mask=at < size)


def launched(x: Tensor, block: int = 4) -> Tensor:
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), 0.3, BLOCK=block)
    return y


@pytest.fixture
def interpreter() -> Any:
    if not triton.knobs.runtime.interpret:
        pytest.skip("Triton compiles in this process: --device cuda")
    return importlib.import_module("triton.runtime.interpreter")


def patches(interpreter: Any, monkeypatch: pytest.MonkeyPatch, manager: Callable[[], Any]) -> tuple[Tensor, int]:
    """Return the result of a launch of three programs, and how often the interpreter patched a module."""
    calls: list[Any] = []
    patch = interpreter._patch_lang_core

    def counted(*given: Any) -> Any:
        calls.append(None)
        return patch(*given)

    monkeypatch.setattr(interpreter, "_patch_lang_core", counted)
    with manager():
        result = launched(torch.linspace(-2, 3, 11))
    monkeypatch.undo()
    return result, len(calls)


def test_a_launch_patches_once_and_gives_the_same_bits(interpreter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, often = patches(interpreter, monkeypatch, nullcontext)
    quick, once = patches(interpreter, monkeypatch, prepared)
    assert (once, often) == (1, 1 + 3 * 3)
    assert torch.equal(plain.view(torch.int32), quick.view(torch.int32))


def test_what_was_patched_is_restored_behind_each_launch(interpreter: Any) -> None:
    before, patch = tl.zeros, interpreter._patch_lang
    with prepared():
        for _ in range(2):
            launched(torch.ones(3))
            assert tl.zeros is before
        with pytest.raises(interpreter.InterpreterError):
            launched(torch.ones(3), block=1)  # static_assert
        assert tl.zeros is before
        assert torch.equal(launched(torch.zeros(5)), torch.zeros(5) + 1)
    assert interpreter._patch_lang is patch


def test_another_way_of_patching_is_left_alone(interpreter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(interpreter, "_LangPatchScope")
    patch = interpreter._patch_lang
    with prepared():
        assert interpreter._patch_lang is patch


CONFIGS = [triton.Config({"BLOCK": block, "EXTRA": block == 8}) for block in (2, 4, 8)]


@triton.autotune(CONFIGS, key=["size"])
@triton.jit
def tuned(x_ptr, y_ptr, size, BLOCK: tl.constexpr, EXTRA: tl.constexpr):
    """Copy x. In one of the configs the element past the end is written too."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < size), mask=at < size + EXTRA)


@operator(x="[T]", T=(1, 64))
def copied_rows(x: Tensor) -> Tensor:
    return x.clone()


def forward(x: Tensor) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    tuned[lambda meta: (x.numel() // meta["BLOCK"] + 1,)](x.contiguous(), y, x.numel())
    return y


AUTOTUNED = Implementation(name="autotuned", operator=copied_rows, forward=forward, dtypes=("float32",))


def test_an_autotuned_kernel_has_one_config_for_each_key(interpreter: Any) -> None:
    taken: dict[int, Any] = {}
    with prepared():
        for size in (*range(1, 12), *range(11, 0, -1)):
            tuned[(0,)](torch.ones(12), torch.ones(12), size)
            assert taken.setdefault(size, tuned.best_config) is tuned.best_config, "the same each time"
    assert {*taken.values()} == {*CONFIGS}, "and all of them come up"


def test_without_it_an_autotuned_kernel_does_not_run(interpreter: Any) -> None:
    """When this fails, Triton's interpreter can do it: take `_with_one_config` out."""
    with pytest.raises(RuntimeError, match="active drivers"):
        tuned[(0,)](torch.ones(70), torch.ones(70), 70)


def test_a_wrong_config_of_an_autotuned_kernel_is_found(interpreter: Any) -> None:
    found = {
        size: check(AUTOTUNED, default_case(operator=copied_rows.name, dtype="float32", T=size), "cpu").failures
        for size in range(1, 12)
    }
    wrong = {size for size, failures in found.items() if failures}
    assert wrong
    assert wrong != {*found}
    assert {one.oracle for failures in found.values() for one in failures} == {"memory"}


@triton.jit
def scaled(y_ptr, scale):
    tl.store(y_ptr, scale.to(tl.float32) * 3)


@triton.jit
def scaled_wide(y_ptr, scale: tl.float64):
    tl.store(y_ptr, tl.load(y_ptr) * 0 + scale)


@triton.jit
def rooted(x_ptr, y_ptr, at: tl.constexpr):
    x = tl.load(x_ptr)
    tl.store(y_ptr, rsqrt(x) + libdevice.tanh(x) if at == 0 else libdevice.erf(x))


def test_a_float_argument_is_a_scalar_of_float32(interpreter: Any) -> None:
    y = torch.zeros(1, dtype=torch.float64)
    with prepared():
        scaled[(1,)](y, 0.1)
        assert y.item() == torch.tensor(0.1) * 3
        scaled_wide[(1,)](y, 0.1)
        assert y.item() == 0.1, "a parameter that is annotated as float64 has all digits"
    with pytest.raises(interpreter.InterpreterError, match="no attribute 'to'"):
        scaled[(1,)](y, 0.1)


def test_functions_of_libdevice_are_computed(interpreter: Any) -> None:
    x, y = torch.tensor([4.0]), torch.zeros(1)
    with prepared():
        rooted[(1,)](x, y, 0)
        assert y.item() == pytest.approx(0.5 + 0.99932930)
        with pytest.raises(interpreter.InterpreterError, match="erf is not computed"):
            rooted[(1,)](x, y, 1)
        with pytest.raises(interpreter.InterpreterError, match="takes float32 and float64, not fp16"):
            rooted[(1,)](x.half(), y, 0)
    assert rooted.fn.__globals__["rsqrt"] is rsqrt, "the stubs are restored"
    assert rooted.fn.__globals__["libdevice"] is libdevice
