"""What the TileLang backward decides and generates without a GPU; its results are judged with the other implementations'."""

import re

import pytest
import torch

from mhc import mhc_forward_pre, mhc_pre_backward_manual
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.selection import Problem
from mhc.operators.mhc_pre.tilelang.backward import FACTORIES
from mhc.operators.mhc_pre.tilelang.backward_class import MHCBackwardTileLang
from mhc.operators.mhc_pre.tilelang.backward_schedule import (
    backward_schedule,
    columns_of_left,
    fitting_rows,
    steps_of_dx,
    streams_shared,
    unfit,
    whole_waves,
)
from mhc.operators.mhc_pre.tilelang.compile.cache import kernel_source
from tests.support.needs import needs_tilelang

H200 = Chip(cores=132, shared=232448, capability=90)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("N", [1, 100, 5000])
def test_every_default_can_run(N: int, dtype: torch.dtype) -> None:
    for n in range(1, 17):
        for D in (1, 8, 17, 4096):
            assert unfit(Problem(N, n, D, dtype, H200), {}) is None, (n, D)


def test_a_pinned_schedule_is_refused_with_the_reason() -> None:
    assert "float64" in str(unfit(Problem(64, 4, 64, torch.float64, H200), {}))
    assert "n at most 4" in str(unfit(Problem(64, 5, 64, torch.bfloat16, H200), {"backward_mode": "streams"}))
    assert "float16 and D a multiple of 8" in str(unfit(Problem(64, 5, 65, torch.float16, H200), {"backward_mode": "ring"}))
    many = Problem(64, 8, 2048, torch.bfloat16, H200)
    assert "5 backward_stages need 245760 bytes" in str(unfit(many, {"backward_stages": 5}))
    assert unfit(many, {"backward_stages": 5, "backward_psi_rows": 192}) is None
    assert "64 or 128, was 192" in str(unfit(Problem(64, 5, 65, torch.float16, H200), {"backward_psi_rows": 192}))
    for mode in ("plain", "ring", "streams"):
        assert "float32 takes no other" in str(unfit(Problem(64, 4, 64, torch.float32, H200), {"backward_mode": mode}))
    assert "whole is for float32" in str(unfit(Problem(64, 4, 64, torch.bfloat16, H200), {"backward_mode": "whole"}))
    assert "up to 64, was 128" in str(unfit(Problem(64, 5, 64, torch.float32, H200), {"backward_psi_rows": 128}))
    small = Chip(cores=48, shared=99 << 10, capability=89)
    pinned = {"backward_stages": 5, "backward_psi_rows": 64}
    assert "need 122880 bytes" in str(unfit(Problem(64, 16, 64, torch.float32, small), pinned))
    assert "shared memory" in str(unfit(Problem(5000, 4, 64, torch.bfloat16, H200), {"backward_stages": 6}))


def test_the_mode_of_a_shape() -> None:
    modes = {
        (n, D, dtype): backward_schedule(Problem(4096, n, D, dtype, H200)).mode
        for n, D, dtype in (
            (4, 4096, torch.bfloat16),
            (8, 2048, torch.bfloat16),
            (4, 1111, torch.bfloat16),
            (4, 4096, torch.float16),
            (8, 1111, torch.float16),
            (4, 4096, torch.float32),
        )
    }
    assert list(modes.values()) == ["streams", "ring", "ring", "ring", "plain", "whole"], modes


@pytest.mark.parametrize(("n", "rows"), [(1, 64), (5, 128), (8, 256), (9, 192), (16, 256)])
def test_tiles_of_psi_read_little(n: int, rows: int) -> None:
    assert fitting_rows(n) == rows


def test_programs_of_psi_fill_waves() -> None:
    assert whole_waves(128, 64, 132) == 1
    assert whole_waves(45, 64, 132) * 45 <= 132
    assert whole_waves(1, 2, 132) == 1


@pytest.mark.parametrize("n", range(1, 17))
def test_a_step_of_dx_is_always_in_the_same_slot(n: int) -> None:
    """Of two steps with one parity, a whole round of the slots apart, a barrier would not tell which has come."""
    depth, steps, slots = steps_of_dx(n)
    assert steps % slots == 0
    assert slots >= 2
    assert n * n + 2 * n <= depth * steps
    assert depth * slots <= 96  # KiB


@pytest.mark.slow
@needs_tilelang
@pytest.mark.parametrize(("n", "vector"), [(5, 8), (5, 1)])
def test_warps_of_ring_wait_for_no_others_than_they_must(n: int, vector: int) -> None:
    """Behind the first branch a barrier of all threads would stop the rings."""
    constants: dict[str, int | str] = {"n": n, "dtype": "bfloat16", "vector": vector, "planes": int(vector == 1)}
    constants |= {"columns": columns_of_left(n, 3), "unroll": 1, "stages": 4, "psi_rows_block": fitting_rows(n)}
    constants |= dict(zip(("dx_depth", "dx_steps", "dx_slots"), steps_of_dx(n), strict=True))
    source = _lowered("ring", **constants, rows=8, width=32)
    kernels = re.split(r"(?=extern \"C\" __global__ void __launch_bounds__)", source)
    ring_kernels = [kernel for kernel in kernels if "tl::tma_load" in kernel]
    assert len(ring_kernels) == 2
    for kernel in ring_kernels:
        assert kernel.count("__syncthreads") == 1, "the one behind the barriers' initialisation"
        assert set(re.findall(r"__sync_thread_partial<\d+, (\d+)>", kernel)) <= {"256"}


def test_streams_plans_less_shared_memory_than_there_is() -> None:
    """What it takes is seen where it is lowered, in test_tilelang_targets.py: TileLang may put tensors on top of others."""
    slots = backward_schedule(Problem(5000, 4, 4096, torch.bfloat16, H200)).stages
    assert slots >= 2
    assert streams_shared(4, slots) <= H200.shared < streams_shared(4, 8 * slots)


@pytest.mark.slow
@needs_tilelang
@pytest.mark.parametrize("n", [1, 3])
def test_plain_counts_the_arrivals_at_its_barriers(n: int) -> None:
    """A product of fewer steps than stages would leave barriers of another one waiting for a single thread."""
    constants: dict[str, int | str] = {
        "n": n,
        "dtype": "float16",
        "vector": 1,
        "columns": columns_of_left(n),
        "planes": 2,
        "unroll": 1,
    }
    source = _lowered("plain", **constants, stages=3, psi_rows_block=64, rows=8, width=32)
    counts = {int(count) for count in re.findall(r"mbarrier\[\d+\]\.init\((\d+)\)", source)}
    assert counts <= {128, 256}


@needs_tilelang
def test_the_class_compiles_for_a_shape_and_refuses_others() -> None:
    B, S, n, D = 2, 3, 2, 5
    torch.manual_seed(0)
    x, phi, gamma = torch.randn(B, S, n, D), torch.randn(n * n + 2 * n, n * D), torch.randn(n, D)
    alpha, bias = torch.randn(3), torch.randn(n * n + 2 * n)
    h_in, h_post, h_res, inv_rms, h_mix, h_pre = mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True)
    upstream = [torch.randn_like(tensor) for tensor in (h_in, h_post, h_res)]
    arguments = (x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, *upstream, gamma)
    backward = MHCBackwardTileLang(B, S, n, D, dtype=torch.float32, device="cpu")
    for got, wanted in zip(backward(*arguments), mhc_pre_backward_manual(*arguments), strict=True):
        assert got is not None
        torch.testing.assert_close(got, wanted)
    with pytest.raises(ValueError, match=r"torch\.float32"):
        MHCBackwardTileLang(B, S, n, D, device="cpu")(*arguments)
    with pytest.raises(ValueError, match="at most 16, was 17"):
        MHCBackwardTileLang(B, S, 17, D)


def _lowered(mode: str, **constants: int | str) -> str:
    return kernel_source(FACTORIES[mode], "cuda -arch=sm_90a", constants)
