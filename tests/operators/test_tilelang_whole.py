"""TileLang's kernels for float32 x: how they cut a shape, and what their generated source computes, on the CPU."""

import math
import re
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from mhc import Case, materialise, observe, reference
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import read_case
from mhc.operators.mhc_pre.selection import Problem, problem_of
from mhc.operators.mhc_pre.tilelang.forward_schedule import forward_plan, unfit, whole_shared
from mhc.operators.mhc_pre.tilelang.fp32_schedule import depth_of_dx, rows_of_tile, shares
from mhc.oracles.verdict import Status
from tests.support import tilelang_terms
from tests.support.cuda_on_cpu import ORDERS, Emulated, emulated
from tests.support.helpers import ROOT, bits, scaled_case
from tests.support.needs import needs_tilelang
from tests.support.tilelang_targets import SM_80, SM_90, SM_100, Target, has_nvcc, programs, undeclared

PLAIN_CASE = scaled_case(B=1, S=70, n=5, D=36, dtype="float32")
"""More than a tile of tokens and of columns, two steps of dx, loads of 16 bytes."""

BELOW_NORMAL = ("e65b1a89", "8a0b6729", "db1fb978", "d733af20", "7ecfd37a")


def results(on_gpu: Emulated, case: Case) -> dict[str, bytes]:
    inputs = materialise(case)
    observation = observe(on_gpu.implementation, inputs, reference(inputs).saved)
    assert observation.failure is None, observation.failure.traceback
    every = {**observation.outputs, **observation.gradients}
    return {name: bits(value) for name, value in every.items() if value is not None}


def failures(on_gpu: Emulated, case: Case) -> list[str]:
    verdicts = check(on_gpu.implementation, case, "cpu", Level.PLAIN).verdicts
    return [f"{one.oracle}: {one.message}" for one in verdicts if one.status is Status.FAIL]


@pytest.mark.slow
@needs_tilelang
def test_the_source_is_right_in_whatever_order_its_threads_go(tmp_path: Path) -> None:
    """Bits that change with the order, or with the time of an asynchronous copy, would be a race on a GPU."""
    with emulated(SM_90.chip, tmp_path) as on_gpu:
        assert failures(on_gpu, PLAIN_CASE) == []
        wanted = results(on_gpu, PLAIN_CASE)
        assert len(wanted) == 11
        for reverse, late in ORDERS:
            on_gpu.order(reverse, late)
            assert results(on_gpu, PLAIN_CASE) == wanted, (reverse, late)


@pytest.mark.slow
@needs_tilelang
def test_numbers_below_the_normal_range_keep_their_digits(tmp_path: Path) -> None:
    """What bfloat16 terms lost on an H200, and rows that begin anywhere."""
    with emulated(SM_90.chip, tmp_path) as on_gpu:
        for name in BELOW_NORMAL:
            case, _ = read_case(ROOT / "tests" / "regressions" / f"{name}.json")
            assert failures(on_gpu, case) == [], name


BROKEN = {
    "no barrier": (r"__syncthreads\(\);", ";"),
    "a wait too short": (r"tl::cp_async_wait<0>\(\);", "tl::cp_async_wait<1>();"),
    "a slot loaded too early": (r"& 1\)", "& 0)"),
    "a thread that leaves before a barrier": (r"__syncthreads\(\);", "if (threadIdx.x == 5) return; __syncthreads();"),
    "gamma beside K that nobody wrote": (r"norms\[\w+\] = 0x0p\+0f", "norms[0] = norms[0]"),
}


@needs_tilelang
@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_what_a_gpu_would_do_now_and_then_is_seen(broken: str, tmp_path: Path) -> None:
    edited = []

    def edit(kernels: str) -> str:
        text, count = re.subn(*BROKEN[broken], kernels)
        edited.append(count)
        return text

    with emulated(SM_90.chip, tmp_path, edit) as on_gpu:
        seen = bool(failures(on_gpu, PLAIN_CASE))
        for reverse, late in ORDERS:
            on_gpu.order(reverse, late)
            seen = seen or bool(failures(on_gpu, PLAIN_CASE))
    assert sum(edited) > 0
    assert seen


@pytest.mark.parametrize("name", tilelang_terms.CASES)
def test_what_terms_lose_is_as_the_page_says(name: str) -> None:
    """Of bfloat16 and float16 x; on a GPU nobody has looked."""
    case, subject = tilelang_terms.CASES[name]
    page = (ROOT / "docs" / "tilelang" / "README.md").read_text(encoding="utf-8")
    ((exact, aligned),) = re.findall(rf"^\| {re.escape(name)} \| {subject} \| (\S+) \| (\S+) \|$", page, flags=re.MULTILINE)
    for written, multiply in ((exact, tilelang_terms.exact), (aligned, tilelang_terms.aligned)):
        found = tilelang_terms.worst(case, subject, multiply)
        assert found == pytest.approx(math.inf if written == "class" else float(written), rel=0.01)
    assert (aligned == "class" or float(aligned) > 1) == (name not in tilelang_terms.INSIDE)


@pytest.mark.parametrize(("n", "rows"), [(1, 8), (3, 16), (4, 24), (5, 40), (8, 40), (9, 56), (15, 64), (16, 48)])
def test_tiles_leave_few_rows_of_phi_empty(n: int, rows: int) -> None:
    M = n * n + 2 * n
    assert rows_of_tile(M) == rows
    steps, depth = depth_of_dx(M)
    assert depth % 4 == 0
    assert depth <= 32
    assert M <= steps * depth < M + 4 * steps + depth


def test_programs_share_a_sum_until_the_gpu_is_busy() -> None:
    assert shares(64, 512, 4, 132, most=32) == 8  # 512 programs, four on each of 132 multiprocessors
    assert shares(1, 16, 4, 132, most=32) == 16
    assert shares(4 * 132, 512, 4, 132, most=32) == 1
    assert shares(1, 1, 4, 132, most=32) == 1


@pytest.mark.parametrize("target", [SM_80, SM_90, SM_100], ids=lambda target: target.name)
def test_every_default_can_run(target: Target) -> None:
    for n in range(1, 17):
        for D in (1, 4, 33, 4096):
            for N in (1, 100, 5000):
                case = scaled_case(B=1, S=N, n=n, D=D, dtype="float32")
                assert unfit(problem_of(case, target.chip), {}) is None, (n, D, N)


def test_a_pinned_schedule_is_refused_with_the_reason() -> None:
    case = scaled_case(B=1, S=5, n=4, D=8, dtype="float32")
    refusals: dict[str, dict[str, int | bool]] = {
        "forward_presplit is for bfloat16 and float16": {"forward_presplit": True},
        "forward_fixed is for bfloat16": {"forward_fixed": True},
        "at most 64 with float32, was 128": {"forward_block_m": 128},
        "4 * forward_block_m with float32, was 256 for 24": {"forward_threads": 256},
        "more than the 232448 bytes": {"forward_stages": 8, "forward_block_k": 64, "forward_block_tokens": 128},
    }
    for reason, schedule in refusals.items():
        assert reason in str(unfit(problem_of(case, SM_90.chip), schedule))
    taken: dict[str, int] = {"forward_block_m": 64, "forward_block_k": 64, "forward_stages": 3}
    assert unfit(problem_of(case, SM_90.chip), taken) is None
    plan = forward_plan(Problem(5, 4, 8, torch.float32, SM_90.chip), taken)
    assert (plan.threads, whole_shared(plan)) == (256, 4 * 3 * (64 + 64) * 68)


@pytest.mark.slow
@pytest.mark.parametrize(("B", "S", "n", "D"), [(1, 100, 5, 33), (4, 2048, 4, 4096), (1, 2048, 16, 1024)])
@pytest.mark.parametrize("target", [SM_90, SM_80, SM_100], ids=lambda target: target.name)
def test_nothing_spills(target: Target, B: int, S: int, n: int, D: int, tmp_path: Path) -> None:
    """Registers are what these kernels have least of: 64 sums in each thread. Lowered first, as without nvcc too."""
    if (target is not SM_90 or n != 5) and settings.get_current_profile_name() != "nightly":
        pytest.skip("compiled with --hypothesis-profile=nightly")
    sources = [job.source(target.tilelang) for job in programs(scaled_case(B=B, S=S, n=n, D=D, dtype="float32"), target)]
    assert len(sources) == 2  # forward and backward
    assert not any(undeclared(source) for source in sources)
    if not has_nvcc():
        pytest.skip("no nvcc: lowered, not compiled")
    for source in sources:
        said = target.registers(source, tmp_path)
        assert said, "ptxas said nothing"
        assert all(registers <= 168 and spilled == 0 for registers, spilled in said), said
