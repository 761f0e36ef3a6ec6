"""Triton's interpreter patches `triton.language` once a launch, and computes what it computes without that."""

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from mhc.triton_interpreter import patched_once


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
    monkeypatch.setattr(interpreter, "_patch_lang_core", lambda *given: calls.append(None) or patch(*given))
    with manager():
        result = launched(torch.linspace(-2, 3, 11))
    monkeypatch.undo()
    return result, len(calls)


def test_a_launch_patches_once_and_gives_the_same_bits(interpreter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, often = patches(interpreter, monkeypatch, nullcontext)
    quick, once = patches(interpreter, monkeypatch, patched_once)
    assert (once, often) == (1, 1 + 3 * 3)
    assert torch.equal(plain.view(torch.int32), quick.view(torch.int32))


def test_what_was_patched_is_restored_behind_each_launch(interpreter: Any) -> None:
    before, patch = tl.zeros, interpreter._patch_lang
    with patched_once():
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
    with patched_once():
        assert interpreter._patch_lang is patch
