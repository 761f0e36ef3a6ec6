"""State of the process and the thread that a kernel must not change: generators, default modes, precision switches.

`unchanged` restores and reports what a call changed, so that no case affects the next one.
"""

import contextlib
import ctypes
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One piece of global state.

    Attributes:
        name: its name in reports.
        read: returns the value, comparable by `==`. write: restores a value that `read` returned.
        opaque: the value is not shown in reports, such as the state of a generator.
        stir: brings a generator into a state that no seed gives, for the block; None where that is not needed.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    opaque: bool = False
    stir: Callable[[], object] | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """A setting that a stage left changed. how: the old and the new value in words, empty for a generator."""

    stage: str
    setting: str
    how: str


_DRAWN = 4 * 17
"""Bytes that are drawn from a generator before a call. A kernel that seeds it and then draws another number of bytes, or
none, leaves another state."""
_KEY_AND_POSITION = 4 * 624 + 4  # bytes of numpy's mt19937_state


def _read_numpy() -> tuple[Any, bytes]:
    """Return NumPy's global generator and its state, read from memory, since `get_state` takes 40 microseconds."""
    generator = np.random.mtrand.get_bit_generator()
    known = isinstance(generator, np.random.MT19937)
    return generator, ctypes.string_at(generator.ctypes.state_address, _KEY_AND_POSITION) if known else b""


def _write_numpy(value: tuple[Any, bytes]) -> None:
    generator, state = value
    np.random.mtrand.set_bit_generator(generator)
    ctypes.memmove(generator.ctypes.state_address, state, len(state))


def _stir_numpy() -> None:
    generator = np.random.mtrand.get_bit_generator()
    if isinstance(generator, np.random.MT19937):  # the state of another kind is not put back
        generator.random_raw(_DRAWN // 4, output=False)


_GENERATOR: Any = random.getstate.__self__  # type: ignore[attr-defined]  # a method of the module's generator
_PYTHON = (ctypes.c_char * (4 * 625)).from_address(id(_GENERATOR) + object.__basicsize__)
"""The index and the words of Python's generator in memory: `getstate` makes 625 integers of them."""


def _read_python() -> tuple[bytes, float | None]:
    return _PYTHON.raw, _GENERATOR.gauss_next


def _write_python(value: tuple[bytes, float | None]) -> None:
    _PYTHON.raw, _GENERATOR.gauss_next = value


def _in_memory() -> bool:
    """Return whether Python's generator lies in memory as CPython has it."""
    _, (*words, index), _ = random.getstate()
    return bool(_PYTHON.raw == np.array([index, *words], dtype=np.uint32).tobytes())


def _read_grad_mode() -> str:
    if torch.is_inference_mode_enabled():
        return "inference mode"
    return "enabled" if torch.is_grad_enabled() else "disabled"


_HOST = torch.device("cpu")


def _read_default_device() -> torch.device:
    return torch.get_default_device() if torch._C._len_torch_function_stack() else _HOST  # a default device is a mode


def _write_default_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


_BACKENDS = tuple(
    (f"{backend} {name}", backend, name) for backend in ("cuda", "mkldnn") for name in ("matmul", "conv", "rnn")
)


_CONTRADICTORY = "contradictory"

Named = tuple[tuple[str, Any], ...]
"""Several switches as one setting, each with its name."""


def _read_precision() -> Named:
    """Return the general switch and those of the backends; PyTorch raises for the general one if these contradict."""
    try:
        general = torch.get_float32_matmul_precision()
    except RuntimeError:
        general = _CONTRADICTORY
    getter = torch._C._get_fp32_precision_getter
    return (("in general", general), *[(words, getter(backend, name)) for words, backend, name in _BACKENDS])


def _write_precision(value: Named) -> None:
    (_, general), *backends = value
    if general != _CONTRADICTORY:
        torch.set_float32_matmul_precision(general)
    for (_, backend, name), (_, precision) in zip(_BACKENDS, backends, strict=True):
        torch._C._set_fp32_precision_setter(backend, name, precision)


def _read_deterministic() -> Named:
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    return ("enabled", torch.are_deterministic_algorithms_enabled()), ("warn only", warn_only)


def _write_deterministic(value: Named) -> None:
    (_, enabled), (_, warn_only) = value
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


_AUTOCAST = ("cpu", "cuda")


def _read_autocast() -> Named:
    return (
        ("on cpu", torch.is_autocast_enabled("cpu")),
        ("on cuda", torch.is_autocast_enabled("cuda")),
        ("dtype on cpu", torch.get_autocast_dtype("cpu")),
        ("dtype on cuda", torch.get_autocast_dtype("cuda")),
    )


def _write_autocast(value: Named) -> None:
    values = [one for _, one in value]
    for device, enabled, dtype in zip(_AUTOCAST, values[:2], values[2:], strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


_QUARTER, _SUBNORMAL = 2.0**-54, 5e-324
"""A quarter of the gap above 1.0, and the least number above 0."""
_MODES = {
    (False, True, False): "to nearest",
    (True, True, False): "upward",
    (False, False, True): "downward",
    (False, False, False): "toward zero",
}


def _read_rounding() -> str:
    """Return how sums are rounded. `fegetround` reads the mode of `long double`, and a kernel may set only the other one."""
    return _MODES[1.0 + _QUARTER > 1.0, 1.0 + 3 * _QUARTER > 1.0, -1.0 - _QUARTER < -1.0]


def _write_rounding(mode: str) -> None:
    """Try the modes of x86 and of ARM, which are bits 10 and 11, or 22 and 23, until sums are rounded as before."""
    library = ctypes.CDLL(None)
    modes = (number << lowest for lowest in (10, 22) for number in range(4))
    any(library.fesetround(one) == 0 and _read_rounding() == mode for one in modes)


def _read_saved_tensor_hooks() -> bool:
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def _write_saved_tensor_hooks(entered: bool) -> None:
    while _read_saved_tensor_hooks() > entered:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _write_recursion_limit(limit: int) -> None:
    with contextlib.suppress(RecursionError):  # the stack is deeper than the limit
        sys.setrecursionlimit(limit)


def _read_working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  (a third of the time of Path.cwd)
    except OSError:
        return "a folder that is gone"


def _write_working_directory(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.chdir(folder)


def _read_function_modes() -> int:
    """Return the number of function modes without the default device, which is a setting of its own."""
    if not torch._C._len_torch_function_stack():
        return 0
    modes = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return sum(not isinstance(mode, DeviceContext) for mode in modes)


def _pop_function_modes(count: int) -> None:
    while _read_function_modes() > count:
        torch._C._pop_torch_function_stack()


def _pop_dispatch_modes(count: int) -> None:
    while torch._C._len_torch_dispatch_stack() > count:
        torch._C._pop_torch_dispatch_stack(None)


def _attribute(name: str, owner: Any, attribute: str) -> Setting:
    return Setting(name=name, read=partial(getattr, owner, attribute), write=lambda value: setattr(owner, attribute, value))


def _generator(name: str, read: Callable[[], torch.Tensor], write: Callable[[torch.Tensor], object]) -> Setting:
    """Return the state of a generator of PyTorch as a setting whose values are bytes."""
    return Setting(
        name=name,
        read=lambda: read().numpy().tobytes(),
        write=lambda state: write(torch.frombuffer(bytearray(state), dtype=torch.uint8)),
        opaque=True,
    )


_MATMUL, _CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn

SETTINGS: tuple[Setting, ...] = (
    # modes first: they may intercept the calls that read the other settings
    Setting(name="dispatch modes", read=torch._C._len_torch_dispatch_stack, write=_pop_dispatch_modes),
    Setting(name="function modes", read=_read_function_modes, write=_pop_function_modes),
    Setting(name="default device", read=_read_default_device, write=_write_default_device),
    _generator("PyTorch's generator on the CPU", torch.get_rng_state, torch.set_rng_state),
    # Hypothesis seeds these two with 0 for each case: a kernel that does the same would change nothing
    Setting(
        name="Python's random generator",
        read=_read_python if _in_memory() else random.getstate,
        write=_write_python if _in_memory() else random.setstate,
        opaque=True,
        stir=lambda: random.getrandbits(8 * _DRAWN),
    ),
    Setting(
        name="NumPy's global generator",
        read=_read_numpy,
        write=_write_numpy,
        opaque=True,
        stir=_stir_numpy,
    ),
    Setting(name="grad mode", read=_read_grad_mode, write=lambda mode: None),  # restored by `unchanged`
    Setting(name="anomaly mode", read=torch.is_anomaly_enabled, write=torch.autograd.set_detect_anomaly),
    Setting(name="autocast", read=_read_autocast, write=_write_autocast),
    Setting(name="default dtype", read=torch.get_default_dtype, write=torch.set_default_dtype),
    Setting(name="number of threads", read=torch.get_num_threads, write=torch.set_num_threads),
    Setting(name="deterministic algorithms", read=_read_deterministic, write=_write_deterministic),
    Setting(name="float32 precision", read=_read_precision, write=_write_precision),
    Setting(name="rounding of floating-point numbers", read=_read_rounding, write=_write_rounding),
    Setting(
        name="flushing of subnormal numbers to zero",
        read=lambda: _SUBNORMAL * 1.0 == 0,
        write=torch.set_flush_denormal,
    ),
    Setting(name="hooks for saved tensors", read=_read_saved_tensor_hooks, write=_write_saved_tensor_hooks),
    Setting(name="trace function", read=sys.gettrace, write=sys.settrace),
    Setting(name="profile function", read=sys.getprofile, write=sys.setprofile),
    Setting(name="recursion limit", read=sys.getrecursionlimit, write=_write_recursion_limit),
    Setting(name="working directory", read=_read_working_directory, write=_write_working_directory),
    Setting(
        name="NumPy's floating-point errors",
        read=lambda: tuple(np.geterr().items()),
        write=lambda value: np.seterr(**dict(value)),
    ),
    _attribute("standard output", sys, "stdout"),
    _attribute("standard error", sys, "stderr"),
    _attribute("float16 reduced-precision sums", _MATMUL, "allow_fp16_reduced_precision_reduction"),
    _attribute("bfloat16 reduced-precision sums", _MATMUL, "allow_bf16_reduced_precision_reduction"),
    _attribute("float16 accumulation", _MATMUL, "allow_fp16_accumulation"),
    _attribute("cudnn.enabled", _CUDNN, "enabled"),
    _attribute("cudnn.benchmark", _CUDNN, "benchmark"),
    _attribute("cudnn.deterministic", _CUDNN, "deterministic"),
)
"""The settings of every machine."""

CUDA_SETTINGS: tuple[Setting, ...] = (
    Setting(name="CUDA device", read=torch.cuda.current_device, write=torch.cuda.set_device),
    Setting(name="CUDA stream", read=torch.cuda.current_stream, write=torch.cuda.set_stream),
    _generator("PyTorch's generator on CUDA", torch.cuda.get_rng_state, torch.cuda.set_rng_state),
)
"""Further settings on a GPU; the device first, since the others are read from the current device."""


@contextlib.contextmanager
def unchanged(stage: str, device_type: str) -> Iterator[list[Change]]:
    """Restore the global state after the block; the yielded list holds the changes once the block has ended."""
    settings = (*CUDA_SETTINGS, *SETTINGS) if device_type == "cuda" else SETTINGS
    changes: list[Change] = []
    grad = torch.is_grad_enabled()
    # PyTorch has no switch for inference mode; leaving such a block restores inference mode and grad mode.
    with torch.inference_mode(torch.is_inference_mode_enabled()):
        torch.set_grad_enabled(grad)
        originals = [setting.read() for setting in settings]
        before = list(originals)
        for at, setting in enumerate(settings):
            if setting.stir is not None:
                setting.stir()
                before[at] = setting.read()
        loaded = len(sys.modules)
        try:
            yield changes
        finally:
            imports = len(sys.modules) > loaded  # an import may draw random numbers; the next call imports nothing
            for setting, original, was in zip(settings, originals, before, strict=True):
                now = setting.read()
                if now == was and was is original:
                    continue
                if now != was and not (imports and setting.stir is not None):
                    changes.append(Change(stage=stage, setting=setting.name, how=_how(setting, was, now)))
                if now != original:
                    setting.write(original)


def _how(setting: Setting, was: Any, now: Any) -> str:
    if setting.opaque:
        return ""
    if not isinstance(was, tuple):
        return f"was {was}, is {now}"
    changed = [(name, one, other) for (name, one), (_, other) in zip(was, now, strict=True) if one != other]
    return "; ".join(f"{name} was {one}, is {other}" for name, one, other in changed)
