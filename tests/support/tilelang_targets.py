"""TileLang's programs of a call, lowered and compiled for GPUs that need not be here. Nothing runs."""

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from mhc.case import Case
from mhc.operator import STORAGE_DTYPES
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.tilelang.compile.cache import Program, kernel_source
from mhc.operators.mhc_pre.tilelang.compile.dependencies import compiler_path
from mhc.operators.mhc_pre.tilelang.compile.host import device_source


@dataclass(frozen=True)
class Target:
    """A GPU: its name for TileLang and for nvcc, and what the schedules ask of it."""

    name: str
    arch: str
    chip: Chip

    @property
    def tilelang(self) -> str:
        return f"cuda -arch={self.arch}"

    def cubin(self, source: str) -> bytes:
        """Machine code of what is compiled of a source where it runs, from nvcc."""
        from tilelang.contrib import nvcc  # noqa: PLC0415

        compiled: bytes = nvcc.compile_cuda(device_source(source), "cubin", self.arch, _options())
        return compiled

    def registers(self, source: str, folder: Path) -> list[tuple[int, int]]:
        """Of each kernel in device code: registers of a thread, and bytes that it spills."""
        (folder / "kernels.cu").write_text(device_source(source), encoding="utf-8")
        options = [*_options(), "-cubin", f"-arch={self.arch}", "-Xptxas", "-v"]
        command = [str(compiler_path("cuda")), *options, "kernels.cu", "-o", "kernels.cubin"]
        said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stderr
        spilled = re.findall(r"(\d+) bytes spill stores", said)
        return [
            (int(count), int(size)) for count, size in zip(re.findall(r"Used (\d+) registers", said), spilled, strict=True)
        ]


def _options() -> list[str]:
    """Of nvcc, for any target: with TileLang's headers."""
    from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH  # noqa: PLC0415

    return ["-std=c++17", "-w", f"-I{TILELANG_TEMPLATE_PATH}", f"-I{CUTLASS_INCLUDE_DIR}"]


SM_80 = Target("sm_80", "sm_80", Chip(cores=108, shared=163 << 10, capability=80))
SM_90 = Target("sm_90", "sm_90a", Chip(cores=132, shared=227 << 10, capability=90))
SM_100 = Target("sm_100", "sm_100a", Chip(cores=148, shared=227 << 10, capability=100))


@dataclass(frozen=True)
class Job:
    """A program that a call would compile."""

    factory: str
    constants: Mapping[str, Any]
    pass_configs: Mapping[str, Any]

    def source(self, target: str) -> str:
        """The device code for a target, as text; no device and no compiler of the target is asked."""
        return kernel_source(self.factory, target, self.constants, self.pass_configs)


def programs(case: Case, target: Target) -> list[Job]:
    """What forward and backward of `case` would compile on the target."""
    from mhc.operators.mhc_pre.tilelang import backward, forward  # noqa: PLC0415

    jobs: list[Job] = []

    def record(factory: str, on: str, constants: Mapping[str, Any], **keywords: Any) -> Program:
        assert on == target.tilelang
        jobs.append(Job(factory, constants, keywords.get("pass_configs") or {}))
        stub: Any = None
        return Program(factory, (("stream", "handle"),), stub)

    dtype, gamma = STORAGE_DTYPES[case.dtype], "gamma" in case.tensors
    schedule = tuple(case.schedules.get("tilelang", {}).items())
    with _on(target.chip, record):
        sizes = (case.sizes["N"], case.sizes["n"], case.sizes["D"])
        forward.launches.__wrapped__(*sizes, dtype, gamma, 1e-6, 1e-6, 0, schedule)
        backward.prepared.__wrapped__(
            (case.sizes["B"], case.sizes["S"], case.sizes["n"], case.sizes["D"]), dtype, 0, schedule
        )
    return jobs


@contextmanager
def _on(chip: Chip, record: Callable[..., Program]) -> Iterator[None]:
    """As if the device were `chip`, and nothing is compiled but recorded."""
    from mhc.operators.mhc_pre.tilelang import backward, forward  # noqa: PLC0415

    with (
        mock.patch.multiple(forward, chip=lambda device: chip, program=record),
        mock.patch.multiple(backward, chip=lambda device: chip, program=record),
    ):
        yield


def undeclared(source: str) -> list[str]:
    """What a kernel uses of TileLang's templates that the headers it is compiled with do not declare."""
    from tilelang.env import TILELANG_TEMPLATE_PATH  # noqa: PLC0415

    root = Path(TILELANG_TEMPLATE_PATH)

    def headers(text: str, folder: Path) -> Iterator[Path]:
        for name in re.findall(r'^ *#include [<"]([^>"]+)[>"]', text, flags=re.MULTILINE):
            for path in (root / name, folder / name):
                if path.is_file():
                    yield path.resolve()

    missing: set[str] = set()
    head, *kernels = re.split(r'(?=extern "C" __global__)', source)
    for kernel in kernels:
        text = device_source(head + kernel)
        found, waiting = set[Path](), list(headers(text, root))
        while waiting:
            path = waiting.pop()
            if path not in found:
                found.add(path)
                waiting += headers(path.read_text(encoding="utf-8"), path.parent)
        declared = set(re.findall(r"\w+", "".join(path.read_text(encoding="utf-8") for path in found)))
        missing |= set(re.findall(r"\btl::(\w+)", kernel)) - declared
    return sorted(missing)


def has_hip() -> bool:
    from tilelang import tvm  # noqa: PLC0415

    return tvm.ffi.get_global_func("target.build.tilelang_hip", allow_missing=True) is not None


def has_nvcc() -> bool:
    return compiler_path("cuda") is not None
