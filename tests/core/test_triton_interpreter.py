"""Triton's interpreter patches `triton.language` once a launch, computes what it computes without that, and autotunes."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# kernels are in Triton's language

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from torch import Tensor
from triton.language.extra import libdevice
from triton.language.extra.libdevice import rsqrt

from mhc import Implementation, Refused, load, operator, triton_interpreter
from mhc.autotuned import CONFIG, NUMBERS, pinned, uses_autotuner
from mhc.case import Case, default_case
from mhc.fuzz.check.check import check
from mhc.strategies.cases import cases_of
from mhc.strategies.schedules import tiles
from mhc.triton_interpreter import prepared
from mhc.triton_lockstep import Order


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


@triton.jit
def rows_above(x_ptr, y_ptr, least, BLOCK: tl.constexpr):
    """Copy a row whose first element is above a number, but for its last element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    above = tl.load(x_ptr + tl.program_id(0) * BLOCK) > least
    tl.store(y_ptr + at, tl.load(x_ptr + at), mask=above & (tl.arange(0, BLOCK) < BLOCK - 1))


@pytest.mark.parametrize("order", Order)
def test_a_scalar_comparison_masks_a_block(order: Order) -> None:
    x, y = torch.arange(12.0), torch.full((12,), -1.0)
    with prepared(order=order):
        rows_above[(3,)](x, y, 2.5, BLOCK=4)
    assert y.tolist() == [-1, -1, -1, -1, 4, 5, 6, -1, 8, 9, 10, -1]


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


def test_each_program_that_begins_is_counted_where_it_is_watched(interpreter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def begun() -> int:
        return int.from_bytes(os.pread(watched, 8, 0), "little")

    watched = os.memfd_create("programs")
    monkeypatch.setattr(triton_interpreter, "progress", watched)
    with prepared():
        launched(torch.ones(37))
        first = begun()
        launched(torch.ones(37))
    assert (first > 0, begun() - first) == (True, 10)
    assert "set_grid_idx" not in vars(interpreter.interpreter_builder)
    launched(torch.ones(37))
    assert begun() - first == 10
    os.close(watched)


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


def test_it_is_found_that_a_kernel_is_autotuned() -> None:
    class Function:
        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return forward(x)

    assert AUTOTUNED.autotuned
    assert uses_autotuner(partial(Function.forward), Function)
    assert not uses_autotuner(launched, torch.nn.functional.softmax, None)
    assert AUTOTUNED.space == {CONFIG: NUMBERS}
    assert tiles({"autotuned": AUTOTUNED.space}) == (), "no number of a config is taken for the size of a tile"
    assert (AUTOTUNED.config(None), AUTOTUNED.config({CONFIG: 5})) == (0, 5)


def test_a_case_pins_the_config(interpreter: Any) -> None:
    for number in (0, 1, 2, 3, 64):
        with prepared(number):
            tuned[(0,)](torch.ones(12), torch.ones(12), 7)
        assert tuned.best_config is CONFIGS[number % 3]
        assert tuned.configs == CONFIGS


def test_a_config_that_the_device_cannot_run_is_refused() -> None:
    class OutOfResources(Exception):
        pass

    def run(self: Any, *args: Any) -> None:
        raise OutOfResources

    kernel = SimpleNamespace(configs=CONFIGS, arg_names=[], prune_configs=lambda _: CONFIGS)
    with pytest.raises(Refused, match="config 1 of 3, BLOCK: 4"):
        pinned(run, 4, Refused)(kernel)
    assert kernel.configs is CONFIGS


def test_a_wrong_config_is_found_wherever_a_case_pins_it(interpreter: Any) -> None:
    case = default_case(operator=copied_rows.name, dtype="float32", T=7)
    cases = {number: replace(case, schedules={"autotuned": {CONFIG: number}}) for number in range(4)}
    found = {number: check(AUTOTUNED, one, "cpu").failures for number, one in cases.items()}
    assert [number for number, failures in found.items() if failures] == [2]  # that of BLOCK = 8
    assert {one.oracle for one in found[2]} == {"memory"}
    assert cases[2].words == "T = 7, dtype = float32, autotune_config = 2"
    assert not check(AUTOTUNED, case, "cpu").failures, "without a number it is the first"


def test_a_function_does_not_get_the_config_in_its_schedule() -> None:
    def scheduled(x: Tensor, *, schedule: Any) -> Tensor:
        return forward(x)

    one = Implementation(name="scheduled", operator=copied_rows, forward=scheduled, schedule={"SPLIT": (1, 2)})
    assert one.keywords({}, {CONFIG: 3}) == {"schedule": None}
    assert one.keywords({}, {CONFIG: 3, "SPLIT": 2}) == {"schedule": {"SPLIT": 2}}
    assert one.refusal(default_case(operator=copied_rows.name, schedules={"scheduled": {CONFIG: 3}}), "cpu") is None
    other = replace(one, autotuned=False)
    refused = other.refusal(default_case(operator=copied_rows.name, schedules={"scheduled": {CONFIG: 3}}), "cpu")
    assert refused is not None
    assert refused.reason == "its schedule has no autotune_config = 3"


def test_a_campaign_draws_configs() -> None:
    drawn: set[Any] = set()

    @settings(max_examples=60, database=None, derandomize=True, suppress_health_check=[*HealthCheck])
    @given(cases_of(AUTOTUNED, "cpu", max_elements=64))
    def collect(case: Case) -> None:
        drawn.add(case.schedules.get("autotuned", {}).get(CONFIG))

    collect()
    assert None in drawn
    assert {number % 3 for number in drawn - {None}} == {0, 1, 2}


def test_an_autotuned_kernel_has_one_config_for_each_key(interpreter: Any) -> None:
    taken: dict[int, Any] = {}
    with prepared():
        for size in (*range(1, 12), *range(11, 0, -1)):
            tuned[(0,)](torch.ones(12), torch.ones(12), size)
            assert taken.setdefault(size, tuned.best_config) is tuned.best_config, "the same each time"
    assert {*taken.values()} == {*CONFIGS}, "and all of them come up"


def test_an_autotuned_kernel_runs_whose_module_the_first_call_imports(tmp_path: Path) -> None:
    """And an implementation that does not ask for the interpreter does not import it."""
    (tmp_path / "late_kernel.py").write_text(LATE_KERNEL)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, "-c", FIRST_CALLS], env=environment, capture_output=True, text=True, check=False)
    assert (run.stdout.splitlines(), run.returncode) == (["None False", "None True"], 0), run.stderr


LATE_KERNEL = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
"""
FIRST_CALLS = """
import sys

import torch

from mhc import Implementation, operator
from mhc.case import default_case
from mhc.inputs import materialise
from mhc.observation import observe


@operator(x="[T]", T=(1, 64))
def copied(x):
    return x.clone()


def forward(x):
    from late_kernel import copy

    y = torch.empty_like(x)
    copy[(1,)](x, y, x.numel())
    return y


plain = Implementation(name="plain", operator=copied, forward=torch.clone)
late = Implementation(name="late", operator=copied, forward=forward, env={"TRITON_INTERPRET": "1"})
inputs = materialise(default_case(operator=copied.name, dtype="float32", T=7), "cpu")
for one in (plain, late):
    print(observe(one, inputs, {}).failure, "triton" in sys.modules)
"""


def test_without_it_an_autotuned_kernel_does_not_run(interpreter: Any) -> None:
    """When this fails, Triton's interpreter can do it: take `_with_one_config` out."""
    with pytest.raises(RuntimeError, match="active drivers"):
        tuned[(0,)](torch.ones(70), torch.ones(70), 70)


def test_a_wrong_config_of_a_kernel_that_is_not_known_to_be_autotuned_is_found(interpreter: Any) -> None:
    unknown = replace(AUTOTUNED, autotuned=False)
    found = {
        size: check(unknown, default_case(operator=copied_rows.name, dtype="float32", T=size), "cpu").failures
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


taken_cast, taken_range, taken_exp = tl.cast, tl.static_range, tl.math.exp


@triton.jit
def _taken(v):
    return taken_exp(rsqrt(taken_cast(v, tl.float32)))


@triton.jit
def by_names(x_ptr, y_ptr):
    y = 0.0
    for _ in taken_range(2):
        y += _taken(taken_cast(tl.load(x_ptr), tl.float32))
    tl.store(y_ptr, y)


def test_functions_that_a_module_has_taken_by_name_are_computed_in_each_launch(interpreter: Any) -> None:
    x, y = torch.tensor([4], dtype=torch.int32), torch.zeros(1)
    cast = tl.cast
    with prepared():
        for _ in range(2):
            by_names[(1,)](x, y.zero_())
            assert y.item() == pytest.approx(2 * 1.6487213)
    assert (taken_cast, taken_range, tl.cast) == (cast, tl.static_range, cast), "what was taken is restored"
    with pytest.raises(interpreter.InterpreterError, match="constexpr"):
        by_names[(1,)](x, y)


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


RAISES = """import torch, triton, triton.language as tl
from mhc import Implementation, operator

@operator(x="[T] float32", T=(1, 8))
def twice_that_raises(x):
    return x * 2

@triton.jit
def kernel(x, y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < N) + tl.zeros((3,), tl.float32)
    tl.store(y + at, v, mask=at < N)

def forward(x):
    y = torch.empty_like(x)
    kernel[(1,)](x, y, x.numel(), BLOCK=8)
    return y

IMPL = Implementation(name="raises", operator=twice_that_raises, forward=forward, dtypes=("float32",))
"""


def test_an_error_in_a_kernel_names_the_line_of_the_kernel_and_not_that_of_its_launch(tmp_path: Path) -> None:
    (tmp_path / "kernel_that_raises.py").write_text(RAISES, encoding="utf-8")
    implementation = load(f"{tmp_path / 'kernel_that_raises.py'}:IMPL")
    case = default_case(operator=str(implementation.operator), T=4, dtype="float32")
    (wrong,) = check(replace(implementation, env={"TRITON_INTERPRET": "1"}), case, "cpu").failures
    assert wrong.symptom == "raises InterpreterError"
    assert wrong.message.endswith("(kernel_that_raises.py, line 11)")
