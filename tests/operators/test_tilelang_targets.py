"""The tile-level kernels lower for GPUs that are not here, and compile to machine code where there is nvcc.

`--hypothesis-profile=nightly` lowers every case for every target.
"""

import re

import pytest
from hypothesis import settings

from mhc import Case, Refused
from mhc.operators.mhc_pre.tilelang.compile.cache import kernel_source
from mhc.operators.mhc_pre.tir.forward import TILES
from tests.support.helpers import scaled_case
from tests.support.needs import needs_tilelang
from tests.support.tilelang_targets import SM_80, SM_90, SM_100, Target, has_hip, has_nvcc, programs, undeclared

pytestmark = needs_tilelang

TARGETS = (SM_80, SM_90, SM_100)
LARGE = scaled_case(B=4, S=2048, n=4, D=4096, dtype="bfloat16")
CASES: dict[str, Case] = {
    "many streams": scaled_case(B=1, S=2048, n=16, D=1024, dtype="bfloat16"),
    "odd": scaled_case(B=2, S=3, n=5, D=7, dtype="bfloat16"),
    "float16": scaled_case(B=1, S=5, n=3, D=24, dtype="float16", absent=frozenset({"gamma"})),
    "float32": scaled_case(B=1, S=5, n=3, D=24, dtype="float32"),
}
OFTEN = {(SM_80, "odd"), (SM_90, "many streams"), (SM_90, "float16")}
"""What every run lowers; float32 too, in tests/operators/test_tilelang_whole.py, which compiles it."""


@pytest.mark.parametrize(
    ("target", "name"),
    [
        pytest.param(
            target, name, id=f"{target.name}-{name}", marks=() if (target, name) == (SM_80, "odd") else pytest.mark.slow
        )
        for target in TARGETS
        for name in CASES
    ],
)
def test_lowers(target: Target, name: str) -> None:
    if (target, name) not in OFTEN and settings.get_current_profile_name() != "nightly":
        pytest.skip("lowered with --hypothesis-profile=nightly")
    jobs = programs(CASES[name], target)
    assert len(jobs) == 2  # forward and backward
    for job in jobs:
        source = job.source(target.tilelang)
        assert "__global__" in source
        assert not undeclared(source)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_main_shape_compiles_to_machine_code(target: Target) -> None:
    """Lowered first, so that without nvcc that much is still checked."""
    jobs = programs(LARGE, target)
    assert [job.factory.partition(":")[2] for job in jobs] == (
        ["resident", "streams"] if target is SM_90 else ["two_pass", "plain"]
    )
    sources = [job.source(target.tilelang) for job in jobs]
    if target is SM_90:
        _streams_keeps_its_warps_and_tensors_apart(sources[1])
    if not has_nvcc():
        pytest.skip("no nvcc: lowered, not compiled")
    for source in sources:
        assert target.cubin(source)[:4] == b"\x7fELF"


def _streams_keeps_its_warps_and_tensors_apart(source: str) -> None:
    kernel = next(one for one in source.split("__global__") if "wgmma_ss" in one)
    ring = kernel[kernel.index("].wait(") :]
    assert "__syncthreads" not in ring, "a barrier of all threads would stop the ring"
    # coef and h_pre are two elements of one tensor: each must be read
    assert len(set(re.findall(r"\b[hc]\w*\[i_\d+\] = .*?\+ (\d+)\)\];", kernel))) >= 2


@pytest.mark.slow
def test_all_columns_of_a_tile_are_one_product() -> None:
    """TileLang takes gcd(columns, 256), three products of 32 for 96 columns."""
    source = programs(CASES["many streams"], SM_90)[0].source(SM_90.tilelang)
    assert re.findall(r"wgmma_rs<.*?, 64, (\d+), 16", source) == ["96"] * 3


@pytest.mark.skipif(not has_nvcc(), reason="no nvcc to find it")
def test_what_a_target_cannot_compile_is_found() -> None:
    source = '__global__ void hopper() { asm volatile("wgmma.fence.sync.aligned;"); }'
    assert SM_90.cubin(source)[:4] == b"\x7fELF"
    with pytest.raises(RuntimeError, match=r"wgmma.* not supported on .target 'sm_80'|ptxas"):
        SM_80.cubin(source)


@pytest.mark.parametrize("name", ["tma_store_arrive", "nothing_of_this_name"])
def test_a_header_left_out_is_found(name: str) -> None:
    header, kernel = "#include <tl_templates/cuda/intrin.h>\n", 'extern "C" __global__ void k() {\n  tl::'
    assert undeclared(f"{header}{kernel}warpgroup_wait<0>();\n}}\n") == []
    assert undeclared(f"{header}{kernel}{name}();\n}}\n") == [name]


def test_hip_is_refused_with_the_reason_where_it_is_not_built_in() -> None:
    job = programs(CASES["odd"], SM_80)[0]
    if has_hip():
        assert "__global__" in job.source("hip -mcpu=gfx942")
    else:
        with pytest.raises(Refused, match="was built without hip: it needs a hip build of TileLang"):
            job.source("hip -mcpu=gfx942")


def test_scalar_kernels_lower_for_metal() -> None:
    """Tile-level ones do not: their products and barriers are CUDA's."""
    constants: dict[str, str | int] = {"dtype": "float32", "max_n": 4, **TILES}
    source = kernel_source("mhc.operators.mhc_pre.tir.kernels:forward", "metal", constants)
    assert "kernel void" in source
