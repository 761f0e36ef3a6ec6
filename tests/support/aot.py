"""Kernels compiled ahead of time for GPUs that need not be here.

A job is a call: its shape, its dtype and what its schedule pins. It compiles every launch of the program that the call
would run on a target, in a process of the target's own (`aot_worker`). What comes back is registers, spills and
shared memory, and what stands against running it. `python -m tests.support.aot --write docs/results/targets.md` writes
a table.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

import torch
import triton

from mhc.case import ScheduleValue
from tests.support import forked

FORWARD = "mhc.operators.mhc_pre.triton.forward:program"
BACKWARD = "mhc.operators.mhc_pre.triton.backward:program"
_FAMILY = tuple(
    f"mhc.operators.{operator}.triton.launches:{stage}_program"
    for operator in ("mhc_sinkhorn", "mhc_post")
    for stage in ("forward", "backward")
)
TENSOR_MEMORY = 512  # columns that a program can have on sm_100


@dataclass(frozen=True)
class Target:
    """A GPU to compile for: what names it to Triton, and what the schedules ask of it.

    cores: multiprocessors of a whole GPU; shared: bytes of shared memory that a program may take.
    """

    name: str
    backend: str
    arch: int | str
    warp: int
    cores: int
    shared: int


TARGETS = (
    Target("sm_80", "cuda", 80, 32, cores=108, shared=163 << 10),
    Target("sm_90", "cuda", 90, 32, cores=132, shared=227 << 10),
    Target("sm_100", "cuda", 100, 32, cores=148, shared=227 << 10),
    Target("gfx942", "hip", "gfx942", 64, cores=304, shared=64 << 10),
    Target("gfx950", "hip", "gfx950", 64, cores=256, shared=160 << 10),
)


@dataclass(frozen=True)
class Job:
    """A call. builder: the function, "module:name", that makes its program; shape: B, S, n, D; schedule: what is pinned."""

    builder: str
    shape: tuple[int, int, int, int]
    dtype: str = "bfloat16"
    gamma: bool = True
    schedule: Mapping[str, ScheduleValue] = field(default_factory=dict)

    @property
    def name(self) -> str:
        pinned = "".join(f" {name}={value}" for name, value in self.schedule.items())
        return f"{self.builder} {self.shape} {self.dtype}{pinned}"


@dataclass(frozen=True)
class Compiled:
    """A launch of a job. spills: 32-bit words of a thread; shared: bytes and tensor_memory: columns of a program.

    error: why there is no binary, and then there are no numbers. seconds: what compiling it took.
    """

    target: Target
    job: Job
    kernel: str
    error: str | None
    seconds: float
    registers: int = 0
    spills: int = 0
    shared: int = 0
    tensor_memory: int = 0

    @property
    def name(self) -> str:
        return f"{self.target.name} {self.kernel} of {self.job.name}"

    @property
    def fault(self) -> str | None:
        """Why the target cannot run it; None where it can."""
        if self.error is not None:
            return f"{self.name}: {self.error}"
        if self.shared > self.target.shared:
            return f"{self.name}: {self.shared} bytes of shared memory, {self.target.name} has {self.target.shared}"
        if self.tensor_memory > TENSOR_MEMORY:
            return f"{self.name}: {self.tensor_memory} columns of tensor memory, {self.target.name} has {TENSOR_MEMORY}"
        return None


def compiled(target: Target, jobs: Sequence[Job], cache: Path) -> list[Compiled]:
    """Every launch of the jobs, compiled for a target; `cache` is the folder of Triton's binaries."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    order = json.dumps({"target": asdict(target), "jobs": [asdict(job) for job in jobs]})
    worker = forked.program("tests.support.aot_worker", order, environment | {"TRITON_CACHE_DIR": str(cache)})
    answers = [json.loads(line.removeprefix("job ")) for line in worker.stdout.splitlines() if line.startswith("job ")]
    found = [Compiled(target, job, **one) for job, answer in zip(jobs, answers, strict=False) for one in answer]
    if len(answers) < len(jobs):  # a fault of a compiler can end the process
        said = worker.stderr.strip().splitlines()
        error = f"the compiling process ended (exit {worker.status}): {said[-1] if said else 'no message'}"
        found.append(Compiled(target, jobs[len(answers)], "unknown", error, 0.0))
    return found


def both(shape: tuple[int, int, int, int], dtype: str = "bfloat16", **schedule: ScheduleValue) -> tuple[Job, Job]:
    """A shape's forward and backward."""
    return Job(FORWARD, shape, dtype, schedule=schedule), Job(BACKWARD, shape, dtype, schedule=schedule)


MAIN = (4, 2048, 4, 4096)
TINY = (1, 4, 2, 8)

FAMILY: tuple[Job, ...] = tuple(
    Job(builder, (4, 2048, 4, 4) if "sinkhorn" in builder else MAIN, "float32" if "sinkhorn" in builder else "bfloat16")
    for builder in _FAMILY
)
"""Sinkhorn and mHC post at the main shape; logits are float32 in every case."""

DEFAULTS: tuple[Job, ...] = (
    *both(MAIN),
    *both(TINY, "float64"),
    *FAMILY,
)
"""Default schedules that the suite compiles every time, for every target."""

SHARED: tuple[Job, ...] = (
    Job(FORWARD, (2, 2048, 8, 2048)),
    Job(BACKWARD, (1, 2048, 16, 1024)),
    Job(BACKWARD, (1, 2048, 16, 64)),
    Job(BACKWARD, (2, 3, 16, 5), "float16"),
    Job(FORWARD, (2, 2048, 8, 2048), "float32"),
    Job(FORWARD, MAIN, "float16"),
    Job(FORWARD, (2, 2048, 5, 1111), "float32"),
)
"""Default schedules that the suite compiles every time, for every second target."""

SPILLS: Mapping[tuple[str, str], int] = {
    ("sm_80", "partial_kernel"): 42,  # n = 8: 128 columns of phi
    ("sm_80", "streams_kernel"): 60,
    ("sm_90", "gates_kernel"): 8,  # held to 128 registers, so that more programs run at once
    ("sm_90", "resident_kernel"): 4,
    ("sm_90", "resident_backward_kernel"): 2,  # n = 2, in the partition of shares
    ("sm_100", "streams_kernel"): 12,  # 10 with two terms of dh_mix in psi, which is not exact enough; 3.6.0: none
    ("gfx950", "partial_kernel"): 6,
    ("gfx950", "streams_kernel"): 51,
    ("gfx950", "psi_kernel"): 2,
}
"""Words that a kernel of DEFAULTS or SHARED may spill, most measured with Triton 3.6.0 and 3.7.1; every other one none."""

PINNED: tuple[Job, ...] = (
    Job(
        BACKWARD,
        (2, 64, 2, 128),
        gamma=False,
        schedule={
            "backward_mode": "streams",
            "backward_tokens": 16,
            "backward_columns": 16,
            "backward_streams": 1,
            "backward_rows": 32,
            "backward_stages": 1,
        },
    ),
    Job(BACKWARD, (2, 64, 4, 128), schedule={"backward_mode": "streams"}),  # with that mode's own tile, on sm_90 too
)
"""Pinned schedules that the suite compiles every time, for every second target."""

RESIDENT: tuple[Job, ...] = tuple(
    Job(BACKWARD, shape, schedule={"backward_mode": "resident"}) for shape in (MAIN, (1, 1000, 2, 2048), (2, 100, 3, 256))
)
"""A backward that runs where it is pinned, on sm_90 alone."""

MORE_DEFAULTS: tuple[Job, ...] = (
    Job(BACKWARD, MAIN, "float16"),
    Job(BACKWARD, (4, 2048, 2, 4096), "float16"),
    *both(MAIN, "float32"),
    *both((2, 64, 4, 128)),
    *both((4, 2048, 1, 4096)),
    *both((2, 2048, 3, 1280)),
    *both((2, 2048, 5, 1111)),
    Job(BACKWARD, (2, 2048, 8, 2048)),
    *both((1, 512, 8, 2048)),
    *both((1, 2048, 16, 1024)),
    *(Job(FORWARD, shape, "float32") for shape in ((4, 2048, 1, 4096), (2, 64, 4, 128))),
)
"""Default schedules of the full grid."""

_FIELDS: tuple[tuple[str, Mapping[str, ScheduleValue]], ...] = (
    (FORWARD, {"forward_block_tokens": 16, "forward_warps": 4}),
    (FORWARD, {"forward_block_tokens": 32, "forward_block_m": 16, "forward_warps": 4}),
    (FORWARD, {"forward_block_k": 32}),
    (FORWARD, {"forward_block_k": 128, "forward_stages": 2, "forward_block_m": 16, "forward_block_tokens": 64}),
    (FORWARD, {"forward_splits": 3, "forward_stages": 1}),
    (FORWARD, {"forward_presplit": False, "forward_warps": 4, "forward_block_tokens": 64}),
    (FORWARD, {"forward_overlap": False}),
    (FORWARD, {"forward_finish_tokens": 4, "forward_finish_d": 64, "forward_finish_warps": 1}),
    (FORWARD, {"forward_mode": "fused", "forward_block_tokens": 32, "forward_warps": 4, "forward_finish_d": 256}),
    (
        BACKWARD,
        {"backward_gates_tokens": 2, "backward_gates_columns": 16, "backward_gates_warps": 2, "backward_gates_stages": 1},
    ),
    (BACKWARD, {"backward_tokens": 32, "backward_columns": 32, "backward_streams": 1, "backward_stages": 1}),
    (BACKWARD, {"backward_tokens": 16, "backward_columns": 16, "backward_streams": 4, "backward_rows": 32}),
    (BACKWARD, {"backward_rows": 128, "backward_columns": 32, "backward_stages": 1, "backward_splits": 5}),
    (BACKWARD, {"backward_warps": 8, "backward_stages": 1, "backward_columns": 32}),
    (BACKWARD, {"backward_mode": "wide", "backward_rows": 16, "backward_columns": 64, "backward_stages": 1}),
)
MORE_PINNED: tuple[Job, ...] = tuple(
    Job(builder, (2, 512, 4, 1024), schedule={"backward_mode": "streams", **schedule} if builder == BACKWARD else schedule)
    for builder, schedule in _FIELDS
)
"""Pinned schedules of the full grid: each field moved, most by itself."""


def cell(one: Compiled | None) -> str:
    """A launch in the table; what cannot run is bold."""
    if one is None:
        return "-"
    if one.error is not None:
        return f"**{one.error}**"
    text = f"{one.registers}, {one.spills}, {one.shared / 1024:.1f}"
    return text if one.fault is None else f"**{text}**"


def table(found: Mapping[Target, Sequence[Compiled]]) -> str:
    """Markdown: a section for each shape and dtype, a row for each kernel, a column for each target."""
    sections: dict[str, dict[str, dict[str, Compiled]]] = {}
    for target, results in found.items():
        for one in results:
            heading = f"{', '.join(str(size) for size in one.job.shape)}, {one.job.dtype}"
            sections.setdefault(heading, {}).setdefault(one.kernel, {})[target.name] = one
    lines = []
    for heading, kernels in sections.items():
        lines += ["", f"## {heading}", "", f"| kernel | {' | '.join(target.name for target in found)} |"]
        lines += [f"|---|{'---|' * len(found)}"]
        for kernel, cells in kernels.items():
            lines += [f"| {kernel} | {' | '.join(cell(cells.get(target.name)) for target in found)} |"]
    return "\n".join(lines) + "\n"


def report(processes: int) -> str:
    """The page of every default schedule on every target, and of what cannot run."""
    jobs = (*DEFAULTS, *SHARED, *MORE_DEFAULTS)
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(processes) as pool:
        results = pool.map(lambda target: compiled(target, jobs, Path(cache) / target.name), TARGETS)
        found = dict(zip(TARGETS, results, strict=True))
    faults = [f"- {one.fault}\n" for results in found.values() for one in results if one.fault is not None]
    cannot = f"\n## Cannot run\n\n{''.join(faults)}" if faults else ""
    return f"{PREFACE.format(date.today(), triton.__version__, torch.__version__)}{table(found)}{cannot}"


PREFACE = """# Kernels compiled ahead of time

What Triton makes of each kernel for GPUs that are not here: registers, spills and shared memory.

`python -m tests.support.aot --write docs/results/targets.md`, {}, Triton {}, torch {}. Nothing was run on these
GPUs. A cell is registers of a thread (AMD: VGPRs), 32-bit words of it that were spilled, KiB of shared memory of a program,
for the default schedule of the shape (B, S, n, D), gamma present, tensors contiguous. Bold: the target has no room for it,
or it does not compile. `-`: the target's schedule has no such kernel. On sm_90, kernels that share out registers among their
warps are shown with what they start with.
"""


def main() -> None:
    """Writes the page of all targets, or prints it."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.aot", description=main.__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    page = report(given.processes)
    if given.write is None:
        sys.stdout.write(page)
    else:
        given.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
