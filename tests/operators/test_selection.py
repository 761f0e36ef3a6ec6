"""The tables of kernels: the documentation shows what selects, and every default is a row that serves its problem."""

from pathlib import Path

import pytest
import torch

from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.selection import Kernel, Problem, default_kernel, markdown, unsupported
from mhc.operators.mhc_pre.tilelang import selection as tilelang
from mhc.operators.mhc_pre.triton import selection as triton
from mhc.operators.mhc_pre.triton.heuristics import backward_schedule, forward_schedule

DOCS = Path(__file__).parents[2] / "docs"
TABLES: dict[str, tuple[tuple[Kernel, ...], str]] = {
    "triton forward": (triton.FORWARD, "triton.md"),
    "triton backward": (triton.BACKWARD, "triton.md"),
    "tilelang forward": (tilelang.FORWARD, "tilelang/forward.md"),
    "tilelang backward": (tilelang.BACKWARD, "tilelang/backward.md"),
}
CHIPS = (
    Chip(cores=132, shared=227 << 10, capability=90),
    Chip(cores=108, shared=163 << 10, capability=80),
    Chip(cores=304, shared=64 << 10),
)
H200 = CHIPS[0]


@pytest.mark.parametrize("name", TABLES)
def test_the_documentation_shows_the_table(name: str) -> None:
    kernels, page = TABLES[name]
    assert markdown(kernels) in (DOCS / page).read_text(), f"docs/{page} must have:\n\n{markdown(kernels)}"


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_every_problem_has_a_default_that_serves_it(name: str, dtype: torch.dtype) -> None:
    kernels, _ = TABLES[name]
    for chip in CHIPS:
        for n in range(1, 17):
            for N, D in ((1, 1), (100, 17), (1024, 1024), (8192, 4096)):
                problem = Problem(N, n, D, dtype, chip)
                assert unsupported(kernels, default_kernel(kernels, problem), problem) is None, problem


def test_the_mode_of_a_schedule_is_the_row_of_the_table() -> None:
    for n, N, dtype in ((8, 4096, torch.float16), (4, 8192, torch.bfloat16), (4, 64, torch.float32), (2, 9, torch.float64)):
        problem = Problem(N, n, 4096, dtype, H200)
        assert forward_schedule(problem).mode == default_kernel(triton.FORWARD, problem)
        assert backward_schedule(problem).mode == default_kernel(triton.BACKWARD, problem)


@pytest.mark.parametrize(
    ("N", "n", "D", "mode"),
    [
        (8192, 4, 4096, "resident"),
        (512, 3, 2048, "resident"),
        (32768, 2, 4096, "resident"),
        (4096, 4, 2560, "resident"),
        (4097, 4, 2560, "hopper"),  # 80 of 132 cores
        (511, 4, 4096, "hopper"),
        (8192, 4, 1024, "hopper"),
        (8192, 2, 2048, "hopper"),
        (8192, 4, 7168, "hopper"),
    ],
)
def test_the_backward_reads_x_once_where_that_is_faster(N: int, n: int, D: int, mode: str) -> None:
    assert default_kernel(triton.BACKWARD, Problem(N, n, D, torch.bfloat16, H200)) == mode
    half = "resident" if mode == "resident" and n == 2 else "hopper"
    assert default_kernel(triton.BACKWARD, Problem(N, n, D, torch.float16, H200)) == half


@pytest.mark.parametrize(
    ("N", "n", "D", "mode", "half"),
    [
        (8192, 4, 4096, "resident", "resident"),
        (4096, 3, 4096, "resident", "resident"),
        (8192, 1, 4096, "resident", "hopper"),
        (2048, 4, 2048, "resident", "hopper"),
        (2048, 4, 1280, "hopper", "hopper"),
        (2047, 4, 4096, "hopper", "hopper"),
    ],
)
def test_the_forward_reads_x_once_where_that_is_faster(N: int, n: int, D: int, mode: str, half: str) -> None:
    assert default_kernel(triton.FORWARD, Problem(N, n, D, torch.bfloat16, H200)) == mode
    assert default_kernel(triton.FORWARD, Problem(N, n, D, torch.float16, H200)) == half


def test_a_row_that_does_not_serve_says_why() -> None:
    problem = Problem(8192, 8, 4096, torch.float16, H200)
    assert default_kernel(triton.FORWARD, problem) == "hopper"
    assert default_kernel(triton.BACKWARD, problem) == "wide_hopper"
    reason = unsupported(triton.FORWARD, "resident", problem)
    assert reason is not None
    assert reason.startswith("resident is for bfloat16 and float16 on sm_90, n at most 4, n * D at least 1821")
    assert reason.endswith("was float16, n = 8, D = 4096")


@pytest.mark.parametrize("tokens", [128, 256])
@pytest.mark.parametrize("least", [8, 16])
@pytest.mark.parametrize("cost", [4, 8])
def test_pieces_cover_the_rows_and_fit_into_registers_and_shared_memory(tokens: int, least: int, cost: int) -> None:
    for n in range(1, 17):
        M = n * n + 2 * n
        blocks, first, second = triton.pieces(M, tokens, least, cost)
        assert blocks * (first + second) >= M > (blocks - 1) * (first + second)
        assert first.bit_count() == 1
        assert second == 0 or (second.bit_count() == 1 and second >= least)
        accumulators = (3 * first + cost * second) * tokens // 256  # registers of a thread of two warp groups
        assert accumulators <= 160
        for dtype in (torch.bfloat16, torch.float16):
            assert triton.hopper_stages(Problem(512, n, 8, dtype, H200), tokens) >= 2


def test_packed_rows_are_the_fewest_whose_bytes_are_a_multiple_of_16() -> None:
    assert [triton.packed_rows(K) for K in (8, 12, 10, 5, 5555)] == [1, 2, 4, 8, 8]
