"""Compiles launches for one target; a process of its own, because the suite's own may hold the interpreter's kernels.

Reads {"target": ..., "jobs": [...]} from stdin (`aot` writes it) and prints a line, "job " and JSON, for each job
in order. The launches go through Triton's own dispatch, under a driver that only names the target, so that arguments are
typed and specialised as in a call; a call with the same shape would launch what is compiled here.
"""

import importlib
import inspect
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from mhc.operators.mhc_pre import device
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.triton import launcher
from mhc.operators.mhc_pre.triton.launcher import Launch, Program

LIKE_X = frozenset({"x", "h_in", "dh_in", "dx", "f", "y", "dy", "df"})
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


class Driver:
    """As much of a Triton driver as compiling asks for."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Pointer:
    """A tensor as Triton's dispatch sees it: its dtype, its address modulo 16, and the bytes of its storage."""

    def __init__(self, dtype: torch.dtype, size: int) -> None:
        self.dtype = dtype
        self._size = size

    def data_ptr(self) -> int:
        return 0

    def element_size(self) -> int:
        return self.dtype.itemsize

    def ptr_range(self) -> int:
        return self._size


def build(job: dict[str, Any]) -> Program:
    """The program of a job: its builder, "module:function", gets what a job has for its parameters, contiguous tensors."""
    _, S, n, D = job["shape"]
    known = {
        "shape": torch.Size(job["shape"]),
        "strides": (S * n * D, n * D, D, 1),
        "x_stride": (S * n * D, n * D, D, 1),
        "g_stride": (S * D, D, 1),
        "dtype": getattr(torch, job["dtype"]),
        "has_gamma": job["gamma"],
        "norm_eps": 1e-6,
        "hc_eps": 1e-6,
        "device": 0,
        "schedule": tuple(sorted(job["schedule"].items())),
    }
    module, name = job["builder"].split(":")
    builder = getattr(importlib.import_module(module), name)
    program = builder(**{name: known[name] for name in inspect.signature(builder).parameters if name in known})
    assert isinstance(program, Program)
    return program


def arguments(launch: Launch, program: Program, job: dict[str, Any]) -> list[Any]:
    """What a call would pass to the kernel, with a Pointer for every tensor."""
    B, S, n, D = job["shape"]
    dtype = getattr(torch, job["dtype"])
    rest = torch.float64 if dtype == torch.float64 else torch.float32
    pointers = []
    for name in launch.tensors:
        if name in program.scratch:
            pointers.append(Pointer(program.scratch[name][1], program.scratch_bytes))
        else:
            kind = dtype if name in LIKE_X else rest
            pointers.append(Pointer(kind, B * S * n * D * kind.itemsize))
    tiles = launch.tiles
    given = [tiles[i].of(pointer) if i in tiles else pointer for i, pointer in enumerate(pointers)]
    return [*given, *launch.constants]


def usage(kernel: Any) -> dict[str, int]:
    """Registers and spilled 32-bit words of a thread, and bytes of shared memory of a program."""
    found = {"shared": int(kernel.metadata.shared), "tensor_memory": int(getattr(kernel.metadata, "tmem_size", None) or 0)}
    if "amdgcn" in kernel.asm:
        text = kernel.asm["amdgcn"]
        count = {key: int(value) for key, value in re.findall(r"\.(vgpr_count|vgpr_spill_count): +(\d+)", text)}
        return found | {"registers": count["vgpr_count"], "spills": count["vgpr_spill_count"]}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = subprocess.run([CUOBJDUMP, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack, local = (max(map(int, re.findall(rf"\b{key}:(\d+)", text))) for key in ("REG", "STACK", "LOCAL"))
    # the kernels have no arrays: what they keep on the stack was spilled
    return found | {"registers": registers, "spills": (stack + local) // 4}


def reason(error: BaseException) -> str:
    """The class of an error and the last line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"


def run(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Every launch of a job, compiled; what is wrong with it is in "error"."""
    try:
        program = build(job)
    except Exception as error:
        return [{"kernel": job["builder"], "error": reason(error), "seconds": 0.0}]
    results = []
    for launch in program.launches:
        start = time.perf_counter()
        result: dict[str, Any] = {"kernel": launch.kernel.__name__, "error": None}
        try:
            compiled = launch.kernel.warmup(*arguments(launch, program, job), grid=launch.grid, **launch.options)
            result |= usage(compiled)
        except Exception as error:
            result["error"] = reason(error)
        results.append(result | {"seconds": time.perf_counter() - start})
    return results


def main() -> None:
    """Puts the target in place of the device, then runs the jobs."""
    order = json.load(sys.stdin)
    target = order["target"]
    triton.runtime.driver.set_active(Driver(GPUTarget(target["backend"], target["arch"], target["warp"])))
    capability = target["arch"] if target["backend"] == "cuda" else 0
    chip = Chip(cores=target["cores"], shared=target["shared"], capability=capability)
    for module in [job["builder"].split(":")[0] for job in order["jobs"]]:
        importlib.import_module(module)
    real = {"chip": device.chip, "can_overlap": launcher.can_overlap}
    fake = {"chip": lambda device: chip, "can_overlap": lambda device: capability >= 90}
    for module in list(sys.modules.values()):
        for name, function in real.items():
            if getattr(module, name, None) is function:
                setattr(module, name, fake[name])
    for job in order["jobs"]:
        sys.stdout.write(f"job {json.dumps(run(job))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
