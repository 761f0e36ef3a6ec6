"""Versions, hardware and settings: captured once per process, stored with every observation and report."""

import functools
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType

import torch

PACKAGES = ("mhc-fuzz", "torch", "triton", "tilelang", "apache-tvm-ffi", "numpy", "hypothesis")
ABSENT = "absent"
TILELANG: Mapping[str, str] = MappingProxyType({"tilelang": "0.1.8", "apache-tvm-ffi": "0.1.9"})
"""What the extra `tilelang` installs: another TileLang has another language, and another TVM FFI does not import with it."""
VARIABLES = ("TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Versions, hardware and settings that a result depends on.

    Attributes:
        packages: installed version by distribution name, `ABSENT` if not installed; read without importing the package.
        devices: one line for each CUDA device.
        variables: those environment variables that change how kernels run and are set.
    """

    python: str
    platform: str
    processor: str
    packages: Mapping[str, str]
    cuda: str
    devices: tuple[str, ...]
    variables: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """Return JSON values by the fields' names."""
        collections = {"packages": dict(self.packages), "devices": list(self.devices), "variables": dict(self.variables)}
        return {**vars(self), **collections}


@functools.cache
def environment() -> Environment:
    """Return the environment of this process."""
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        processor=_processor(),
        packages=MappingProxyType({name: _version(name) for name in PACKAGES}),
        cuda=torch.version.cuda or "none",
        devices=tuple(_device(index) for index in range(torch.cuda.device_count())),
        variables=MappingProxyType({name: os.environ[name] for name in VARIABLES if name in os.environ}),
    )


def gpu_name(number: int) -> str:
    """Return what CUDA_VISIBLE_DEVICES must be for a process that has only that one of this process's GPUs."""
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return named[number] if number < len(named) else str(number)


def gpu_memory() -> float:
    """Return the bytes of memory of the smallest CUDA device; infinite without one."""
    gpus = range(torch.cuda.device_count())
    return min((float(torch.cuda.get_device_properties(gpu).total_memory) for gpu in gpus), default=float("inf"))


def unmet(pins: Mapping[str, str], extra: str) -> str | None:
    """Return which pinned package is absent or of another version, and what to install; None where all are as pinned.

    Reads installed metadata, and imports none of the packages.

    Args:
        pins: version by distribution name. extra: this package's extra that installs them.
    """
    install = f"pip install 'mhc-fuzz[{extra}]'"
    for name, wanted in pins.items():
        found = _version(name)
        if found == ABSENT:
            return f"{name} is not installed: {install}"
        if found != wanted:
            return f"{name} {found} is installed, {wanted} is needed: {install}, in another environment to keep {found}"
    return None


def tilelang_unmet(*, pinned: bool = True) -> str | None:
    """Return why TileLang cannot be imported here, or is not the pinned one; None where it is. Imports nothing.

    Args:
        pinned: False where any release will do: then only the pinned one must have the TVM FFI that fits it.
    """
    other = _version("tilelang") not in {ABSENT, TILELANG["tilelang"]}
    return None if other and not pinned else unmet(TILELANG, "tilelang")


def triton_unmet() -> str | None:
    """Return what to install where Triton is absent; None where any release is there. Imports nothing."""
    return "triton is not installed: pip install triton" if _version("triton") == ABSENT else None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ABSENT


def _processor() -> str:
    return f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores"


def _device(index: int) -> str:
    properties = torch.cuda.get_device_properties(index)
    memory = properties.total_memory / 2**30
    return f"{properties.name}, sm_{properties.major}{properties.minor}, {memory:.0f} GiB"
