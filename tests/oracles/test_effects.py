"""The effects gate: every setting is seen to change, named, and put back."""

import ctypes
import importlib
import os
import platform
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mhc import default_case
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.global_state import _PYTHON, SETTINGS, Change, _in_memory, _read_python, _write_python, unchanged
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles.verdict import Status
from tests.support.helpers import altered, judge_all, judged, symptoms

CASE = default_case(B=1, S=2, n=2, D=3, dtype="float32")
_MATMUL = torch.backends.cuda.matmul
_KEPT: list[Any] = []


def enter_inference_mode() -> None:
    _KEPT.append(torch.inference_mode())  # it ends where its guard is deleted
    _KEPT[-1].__enter__()


C_LIBRARY = ctypes.CDLL(None)
SHIFT = 22 if platform.machine() in ("aarch64", "arm64") else 10  # of the modes of `fesetround`


def enter_hooks(many: int) -> None:
    for _ in range(many):
        torch.autograd.graph.save_on_cpu().__enter__()


def ignore(*_: object) -> None:
    """Trace or profile nothing."""


CHANGES: dict[str, tuple[str, Callable[[], object]]] = {
    "PyTorch's generator seeded": ("PyTorch's generator on the CPU", lambda: torch.manual_seed(5)),
    "PyTorch's generator drawn from": ("PyTorch's generator on the CPU", lambda: torch.rand(1)),
    "random": ("Python's random generator", random.random),
    "NumPy seeded": ("NumPy's global generator", lambda: np.random.seed(5)),
    "NumPy drawn from": ("NumPy's global generator", np.random.rand),
    "NumPy's generator replaced": (
        "NumPy's global generator",
        lambda: np.random.mtrand.set_bit_generator(np.random.PCG64(1)),
    ),
    "no grad": ("grad mode", lambda: torch.set_grad_enabled(False)),
    "inference mode": ("grad mode", enter_inference_mode),
    "anomaly mode": ("anomaly mode", lambda: torch.autograd.set_detect_anomaly(True)),
    "autocast": ("autocast", lambda: torch.set_autocast_enabled("cpu", True)),
    "default dtype": ("default dtype", lambda: torch.set_default_dtype(torch.float64)),
    "default device": ("default device", lambda: torch.set_default_device("meta")),
    "threads": ("number of threads", lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    "deterministic": ("deterministic algorithms", lambda: torch.use_deterministic_algorithms(True, warn_only=True)),
    "precision": ("float32 precision", lambda: torch.set_float32_matmul_precision("high")),
    "TF32 by the old switch": ("float32 precision", lambda: setattr(_MATMUL, "allow_tf32", True)),
    "TF32 by the new switch": ("float32 precision", lambda: setattr(_MATMUL, "fp32_precision", "tf32")),
    "cudnn's TF32": ("float32 precision", lambda: setattr(torch.backends.cudnn, "allow_tf32", False)),
    "dispatch modes": ("dispatch modes", TorchDispatchMode().__enter__),  # type: ignore[no-untyped-call]
    "function modes": ("function modes", TorchFunctionMode().__enter__),
    "NumPy's errors": ("NumPy's floating-point errors", lambda: np.seterr(over="raise")),
    "rounding": ("rounding of floating-point numbers", lambda: C_LIBRARY.fesetround(1 << SHIFT)),
    "subnormals": ("flushing of subnormal numbers to zero", lambda: torch.set_flush_denormal(True)),
    "saved tensors": ("hooks for saved tensors", lambda: enter_hooks(2)),
    "trace": ("trace function", lambda: sys.settrace(ignore)),
    "profile": ("profile function", lambda: sys.setprofile(ignore)),
    "recursion limit": ("recursion limit", lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 7)),
    "working directory": ("working directory", lambda: os.chdir("/")),
    "standard output": ("standard output", lambda: setattr(sys, "stdout", None)),
    "standard error": ("standard error", lambda: setattr(sys, "stderr", None)),
    "float16 sums": (
        "float16 reduced-precision sums",
        lambda: setattr(_MATMUL, "allow_fp16_reduced_precision_reduction", False),
    ),
    "bfloat16 sums": (
        "bfloat16 reduced-precision sums",
        lambda: setattr(_MATMUL, "allow_bf16_reduced_precision_reduction", False),
    ),
    "float16 accumulation": ("float16 accumulation", lambda: setattr(_MATMUL, "allow_fp16_accumulation", True)),
    "cudnn enabled": ("cudnn.enabled", lambda: setattr(torch.backends.cudnn, "enabled", False)),
    "cudnn benchmark": ("cudnn.benchmark", lambda: setattr(torch.backends.cudnn, "benchmark", True)),
    "cudnn deterministic": ("cudnn.deterministic", lambda: setattr(torch.backends.cudnn, "deterministic", True)),
}


def test_each_setting_is_changed_by_one_of_the_tests() -> None:
    assert {setting for setting, _ in CHANGES.values()} == {setting.name for setting in SETTINGS}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_and_put_back(name: str) -> None:
    setting, change = CHANGES[name]
    before = [one.read() for one in SETTINGS]
    with unchanged("forward", "cpu") as changes:
        change()
    assert [one.setting for one in changes] == [setting]
    assert [one.read() for one in SETTINGS] == before


def other_autocast() -> None:
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_dtype("cuda", torch.bfloat16)


@pytest.mark.parametrize("mode", ["to nearest", "upward", "downward", "toward zero"])
@pytest.mark.parametrize("number", range(4))
def test_each_way_of_rounding_is_told_and_put_back(mode: str, number: int) -> None:
    (rounding,) = [one for one in SETTINGS if one.name == "rounding of floating-point numbers"]
    try:
        rounding.write(mode)
        there = C_LIBRARY.fegetround()
        with unchanged("forward", "cpu") as changes:
            C_LIBRARY.fesetround(number << SHIFT)
            now = rounding.read()
        back = C_LIBRARY.fegetround()
    finally:
        C_LIBRARY.fesetround(0)
    assert back == there
    assert [one.how for one in changes] == ([] if now == mode else [f"was {mode}, is {now}"])
    assert (now == mode) == (number << SHIFT == there)


BACK: dict[str, Callable[[], object]] = {
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(False),
    "autocast": other_autocast,
    "default dtype": lambda: torch.set_default_dtype(torch.float16),
    "default device": lambda: torch.set_default_device(None),
    "deterministic": lambda: torch.use_deterministic_algorithms(False),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "TF32 by the new switch": lambda: setattr(_MATMUL, "fp32_precision", "ieee"),
    "NumPy's errors": lambda: np.seterr(all="ignore"),
    "subnormals": lambda: torch.set_flush_denormal(False),
    "trace": lambda: sys.settrace(None),
}


@pytest.mark.parametrize("name", BACK)
def test_what_is_not_the_default_is_put_back_too(name: str) -> None:
    setting, change = CHANGES[name]
    with unchanged("forward", "cpu"):
        change()
        before = [one.read() for one in SETTINGS]
        with unchanged("backward", "cpu") as changes:
            BACK[name]()
        assert [(one.stage, one.setting) for one in changes] == [("backward", setting)]
        assert [one.read() for one in SETTINGS] == before


def test_it_is_put_back_after_an_exception() -> None:
    changes: list[Change] = []

    def boom() -> None:
        nonlocal changes
        with unchanged("forward", "cpu") as changes:
            torch.set_default_dtype(torch.float64)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        boom()
    assert torch.get_default_dtype() == torch.float32
    assert [one.how for one in changes] == ["was torch.float32, is torch.float64"]


@pytest.mark.parametrize("name", ["no grad", "precision", "random"])
def test_a_stage_that_changes_a_setting_fails(name: str) -> None:
    setting, change = CHANGES[name]

    def backward(out: tuple[torch.Tensor, ...], _: object) -> tuple[torch.Tensor, ...]:
        change()
        return out

    verdicts = judged(altered(MANUAL, backward=backward), CASE)[2]
    assert symptoms(verdicts) == {("effects", setting, "changed")}
    (message,) = [one.message for one in verdicts if one.status is Status.FAIL]
    assert (
        message
        == {
            "no grad": "backward left changed: grad mode: was enabled, is disabled",
            "precision": "backward left changed: float32 precision: in general was highest, is high; "
            "cuda matmul was ieee, is tf32; mkldnn matmul was ieee, is tf32",
            "random": "backward drew from, or seeded, Python's random generator",
        }[name]
    )
    assert not symptoms(judged(MANUAL, CASE)[2])


def test_what_is_changed_before_an_exception_is_told_too() -> None:
    def boom(*_: Any, **__: Any) -> Any:
        torch.set_default_dtype(torch.float64)
        raise RuntimeError

    found = symptoms(judge_all(replace(MANUAL, forward=boom), CASE))
    assert found == {("liveness", "forward", "raises RuntimeError"), ("effects", "default dtype", "changed")}


def test_it_hides_no_other_bug_and_is_told_once() -> None:
    """The further runs change the setting too. One token's NaN that leaks into another's row is found all the same."""

    def forward(out: tuple[torch.Tensor, ...], _: object) -> tuple[torch.Tensor, ...]:
        torch.rand(1)
        return (out[0] + 0 * out[0].sum(), *out[1:])

    verdicts = judge_all(altered(MANUAL, forward=forward), CASE)
    assert {("isolation", "h_in", "leak"), ("effects", "PyTorch's generator on the CPU", "changed")} <= symptoms(verdicts)
    assert sum(one.oracle == "effects" and one.status is Status.FAIL for one in verdicts) == 1
    drawn = check(altered(MANUAL, forward=forward), CASE, "cpu", Level.CLEAN).verdicts
    assert ("isolation", "h_in", "leak") in symptoms(drawn)


def best_of(many: int, *calls: Callable[[], object]) -> list[float]:
    """Seconds of the quickest call of each, taken in turn: other processes share the machine, and its clock changes."""
    best = [float("inf")] * len(calls)
    for _ in range(many):
        for place, call in enumerate(calls):
            started = time.perf_counter()
            call()
            best[place] = min(best[place], time.perf_counter() - started)
    return best


def test_seeding_as_hypothesis_does_for_each_case_is_told() -> None:
    random.seed(0)
    np.random.seed(0)
    python, numpy = random.getstate(), repr(np.random.get_state())
    with unchanged("forward", "cpu") as changes:
        random.seed(0)
        np.random.seed(0)
    assert [one.setting for one in changes] == ["Python's random generator", "NumPy's global generator"]
    assert random.getstate() == python
    assert repr(np.random.get_state()) == numpy


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="elsewhere the generator is read by getstate")
def test_pythons_generator_is_read_from_memory_as_it_is() -> None:
    before = random.getstate()
    try:
        random.seed(5)
        random.gauss(0, 1)  # keeps a second number for the next call
        state, value = random.getstate(), _read_python()
        assert _in_memory()
        assert _PYTHON.raw == np.array([state[1][-1], *state[1][:-1]], dtype=np.uint32).tobytes()
        random.seed(6)
        _write_python(value)
        assert random.getstate() == state
        assert state[2] is not None
    finally:
        random.setstate(before)


def test_it_costs_little() -> None:
    """Less than 25 times what it takes to read Python's generator: some 19 times were measured, 35 and more where NumPy's
    generator is read by `get_state`."""

    def around_nothing() -> None:
        with unchanged("forward", "cpu"):
            pass

    one, whole = best_of(600, random.getstate, around_nothing)
    assert whole < 25 * one


def test_a_default_device_that_is_put_back_leaves_no_mode_behind() -> None:
    """With a default device set, even the CPU, every later factory goes through a mode of PyTorch's."""
    with unchanged("forward", "cpu"):
        torch.set_default_device("meta")
    assert torch.utils._device.CURRENT_DEVICE is None


def test_the_state_of_a_generator_of_another_kind_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shorter: reading as much of it would read what lies behind it."""
    before = np.random.mtrand.get_bit_generator()
    np.random.mtrand.set_bit_generator(np.random.PCG64(1))
    try:
        monkeypatch.setattr("mhc.global_state.ctypes.string_at", lambda *_: 1 / 0)
        with unchanged("forward", "cpu") as changes:
            pass
        assert changes == []
    finally:
        np.random.mtrand.set_bit_generator(before)


def test_where_no_stage_ran_to_its_end_nothing_is_judged() -> None:
    def fails(out: Any, arguments: Any) -> Any:
        raise ZeroDivisionError

    verdicts = judge_all(altered(MANUAL, forward=fails, backward=fails), CASE)
    assert [one.status for one in verdicts if one.oracle == "effects"] == [Status.NOT_APPLICABLE]


def test_a_module_that_is_imported_in_a_call_may_draw_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draws_when_it_is_imported.py").write_text("import random\nrandom.random()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    state = random.getstate()

    def called() -> list[str]:
        with unchanged("forward", "cpu") as changes:
            if importlib.import_module("draws_when_it_is_imported").__name__ in drawing:
                random.random()
        assert random.getstate() == state
        return [one.setting for one in changes]

    drawing: set[str] = set()
    assert called() == [], "the first call imports it"
    assert called() == []
    drawing.add("draws_when_it_is_imported")
    assert called() == ["Python's random generator"]
