"""TileLang's schedules of the forward: what is taken serves every element of its tiles."""

import itertools

import pytest
import torch

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.selection import Problem, problem_of
from mhc.operators.mhc_pre.tilelang.forward_schedule import SPACE, forward_plan, forward_schedule, unfit
from tests.support.helpers import scaled_case
from tests.support.tilelang_targets import SM_80, SM_90, SM_100, Target

TILED = ("forward_block_tokens", "forward_block_m", "forward_block_k", "forward_threads")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_schedule_that_is_taken_has_a_piece_of_each_tile_for_every_thread(dtype: str) -> None:
    """With 16 rows of phi and more threads than pieces, no thread wrote the tile, and h_mix was what lay there."""
    case = scaled_case(B=1, S=3, n=1, D=64, dtype=dtype)
    problem, taken = problem_of(case, SM_90.chip), 0
    for values in itertools.product(*(SPACE[name] for name in TILED)):
        schedule = dict(zip(TILED, values, strict=True))
        if unfit(problem, schedule) is not None:
            continue
        taken += 1
        plan = forward_plan(problem, schedule)
        for rows in (plan.block_tokens, plan.block_m):
            assert rows * plan.block_k // 8 % plan.threads == 0, schedule
            assert rows * plan.block_k >= 8 * plan.threads, schedule
    assert taken >= 4


def test_a_tile_too_small_for_its_threads_is_refused() -> None:
    case = scaled_case(B=1, S=1, n=1, D=1, dtype="float16")
    problem = problem_of(case, SM_90.chip)
    assert "a multiple of 8 * forward_threads" in str(unfit(problem, {"forward_block_m": 16}))
    assert unfit(problem, {}) is None


@pytest.mark.parametrize(
    ("n", "D", "rows"),
    [
        (1, 1111, 16),
        (4, 1111, 32),
        (5, 1111, 48),
        (8, 1111, 48),
        (16, 1111, 64),
        (4, 7168, 24),
        (8, 2048, 80),
        (16, 1024, 96),
    ],
)
def test_tiles_have_as_few_empty_rows_of_phi_as_can_be(n: int, D: int, rows: int) -> None:
    problem = Problem(4096, n, D, torch.bfloat16, SM_90.chip)
    assert forward_schedule(problem).block_m == rows
    assert unfit(problem, {}) is None


def test_a_default_of_48_rows_takes_no_steps_of_32_columns() -> None:
    assert "was 48 * 32 for 128" in str(unfit(Problem(4096, 5, 1111, torch.bfloat16, SM_90.chip), {"forward_block_k": 32}))


@pytest.mark.parametrize("target", [SM_80, SM_90, SM_100], ids=lambda target: target.name)
def test_a_default_fits_into_the_shared_memory_of_a_gpu(target: Target) -> None:
    """Also where a case pins the rows of phi, and not how many tiles are on their way."""
    rows: dict[str, ScheduleValue] = {"forward_mode": "two_pass", "forward_block_m": 128}
    rows |= {"forward_fixed": True, "forward_presplit": True}
    for n, D, N in itertools.product(range(1, 17), (1024, 4096), (64, 8192)):
        problem = Problem(N, n, D, torch.bfloat16, target.chip)
        assert unfit(problem, {}) is None, problem
        if n >= 5:
            assert "shared memory" not in str(unfit(problem, rows)), problem
