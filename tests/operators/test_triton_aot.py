"""The Triton kernels compile for five GPUs, fit in their shared memory, and spill no more than is known.

No GPU is needed, and none is asked: nothing runs. `--hypothesis-profile=nightly` compiles the full grid.
"""

from pathlib import Path

import pytest
from hypothesis import settings

from mhc.case import ScheduleValue
from tests.support.aot import (
    BACKWARD,
    DEFAULTS,
    FAMILY,
    MAIN,
    MORE_DEFAULTS,
    MORE_PINNED,
    PINNED,
    RESIDENT,
    SHARED,
    SPILLS,
    TARGETS,
    TINY,
    Compiled,
    Job,
    Target,
    both,
    compiled,
    table,
)

SM_80, SM_90, SM_100, GFX942, _ = TARGETS


def jobs_of(target: Target) -> tuple[Job, ...]:
    """Return the defaults and half of the rest, each of which is compiled for a GPU of either maker; at night everything."""
    if settings.get_current_profile_name() == "nightly":
        return (*DEFAULTS, *SHARED, *PINNED, *MORE_DEFAULTS, *MORE_PINNED)
    return (*DEFAULTS, *(*SHARED, *PINNED)[TARGETS.index(target) % 2 :: 2])


@pytest.mark.parametrize(
    ("target", "jobs"),
    [
        pytest.param(SM_80, both(MAIN), id="sm_80-main", marks=pytest.mark.slow),
        pytest.param(SM_90, (*FAMILY, *RESIDENT), id="sm_90-family", marks=pytest.mark.slow),
        *(pytest.param(target, jobs_of(target), id=target.name, marks=pytest.mark.slow) for target in TARGETS),
    ],
)
def test_compiles_and_fits(target: Target, jobs: tuple[Job, ...], tmp_path: Path) -> None:
    results = compiled(target, jobs, tmp_path)
    assert {result.job.name for result in results} == {job.name for job in jobs}
    assert not [result.fault for result in results if result.fault is not None]
    beyond = [
        f"{result.name}: {result.spills} words spilled"
        for result in results
        if result.job in (*DEFAULTS, *SHARED) and result.spills > SPILLS.get((target.name, result.kernel), 0)
    ]
    assert not beyond


@pytest.mark.slow
def test_what_a_target_has_no_room_for_is_found(tmp_path: Path) -> None:
    schedule: dict[str, ScheduleValue] = {
        "backward_mode": "streams",
        "backward_tokens": 64,
        "backward_streams": 1,
        "backward_columns": 128,
        "backward_stages": 4,
    }
    jobs = Job("tests.support.aot_faults:hoard", TINY), Job(BACKWARD, (2, 64, 2, 128), schedule=schedule)
    results = compiled(GFX942, jobs, tmp_path)
    faults = [result.fault for result in results if result.fault is not None]
    assert [fault.split(" of ")[0] for fault in faults] == ["gfx942 hoard_kernel", "gfx942 streams_kernel"]
    assert all(fault.endswith(" bytes of shared memory, gfx942 has 65536") for fault in faults)


def test_tensor_memory_that_a_target_has_not_is_found() -> None:
    result = Compiled(SM_100, Job(BACKWARD, MAIN), "streams_kernel", None, 1.0, tensor_memory=640)
    assert result.fault is not None
    assert result.fault.endswith("640 columns of tensor memory, sm_100 has 512")


def test_what_a_target_cannot_compile_is_found(tmp_path: Path) -> None:
    job = Job("tests.support.aot_faults:small_float", TINY, "float32")
    (result,) = compiled(SM_80, [job], tmp_path)
    assert result.fault is not None
    assert "type fp8e4nv not supported in this architecture" in result.fault
    jobs = [
        job,
        *(Job(f"tests.support.aot_faults:{name}", TINY, "float32") for name in ("shared", "unbuildable", "ends", "shared")),
    ]
    known, gluon, unbuildable, ends = compiled(SM_90, jobs, tmp_path)
    assert (known.fault, known.kernel) == (None, "small_float_kernel")
    assert (gluon.fault, gluon.shared) == (None, 512)
    assert unbuildable.error == "ValueError: no such schedule"
    assert ends.error == "the compiling process ended (exit 7): out of memory"
    assert "**ValueError: no such schedule**" in table({SM_90: [unbuildable, ends]})
