"""The Triton implementations: schedules, the two ways to run one source, refusals."""

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mhc import (
    Case,
    Implementation,
    Refused,
    load,
    materialise,
    mhc_backward_triton,
    mhc_forward_pre_triton_optimized,
    reference,
)
from mhc.case import ScheduleValue, with_tensor
from mhc.fuzz.check.check import check
from mhc.fuzz.worker.client import WorkerClient
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.selection import Problem, pinned, problem_of
from mhc.operators.mhc_pre.triton import launcher
from mhc.operators.mhc_pre.triton.constraints import unfit
from mhc.operators.mhc_pre.triton.forward import AGAIN
from mhc.operators.mhc_pre.triton.heuristics import backward_plan, backward_schedule, forward_schedule
from mhc.operators.mhc_pre.triton.implementations import TRITON, TRITON_INTERPRETED
from mhc.operators.mhc_pre.triton.schedule import SPACE
from mhc.oracles.verdict import Status
from mhc.placement import place
from mhc.strategies.cases import cases
from tests.support.helpers import ON_CPU, ON_CUDA, bits, device_of, failing, judged, observed, scaled_case

RUNNABLE = [one for one in (TRITON_INTERPRETED, TRITON) if one in (*ON_CPU, *ON_CUDA)]
runnable = pytest.mark.parametrize("implementation", RUNNABLE, ids=lambda one: one.name)
H200 = Chip(cores=132, shared=232448, capability=90)
INTERPRETER = Chip(cores=1, shared=1 << 30, interpreted=True)


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerClient]:
    started = WorkerClient("triton-interpreted", load("triton-interpreted"), "cpu")
    yield started
    started.stop()


def test_the_interpreter_runs_in_a_process_of_its_own(worker: WorkerClient) -> None:
    """Where this process has Triton for a GPU, TRITON_INTERPRET must be set before the import."""
    for dtype in ("bfloat16", "float64"):
        worker.start(scaled_case(B=1, S=3, n=2, D=5, dtype=dtype))
        verdicts = worker.finish()
        assert not failing(verdicts)
        assert sum(verdict.oracle == "bound" and verdict.status is Status.PASS for verdict in verdicts) == 11


@runnable
@settings(max_examples=8)
@given(data=st.data())
@pytest.mark.slow
def test_any_schedule_is_right_or_refused(implementation: Implementation, data: st.DataObject) -> None:
    space = {implementation.name: {name: values for name, values in SPACE.items() if name != "forward_mode"}}
    case = data.draw(cases(max_elements=1 << 9, dtypes=("bfloat16", "float32", "float16"), special=False, spaces=space))
    verdicts = check(implementation, case, device_of(implementation)).verdicts
    refusals = [verdict.message for verdict in verdicts if verdict.oracle == "refusal"]
    assert not failing(verdicts), case.json
    assert all(message.startswith(("its schedule: ", "schedule: ")) for message in refusals), refusals


# Each leaves another path than the interpreter's default: several tiles, several splits, terms from a kernel of their own.
SCHEDULES: dict[str, dict[str, Any]] = {
    "fused": {"forward_mode": "fused", "forward_block_tokens": 16},
    "tiles of 16": {"forward_block_tokens": 16, "forward_block_m": 16, "forward_block_k": 32, "forward_finish_d": 16},
    "presplit": {"forward_presplit": True, "forward_splits": 3, "forward_warps": 4, "forward_block_tokens": 32},
    "small streams": {"backward_tokens": 16, "backward_columns": 16, "backward_rows": 32, "backward_splits": 2},
    "two streams a tile": {"backward_streams": 2, "backward_columns": 16, "backward_gates_tokens": 2},
    "wide": {"backward_mode": "wide", "backward_rows": 16, "backward_columns": 16, "backward_psi_rows": 16},
}


@runnable
@pytest.mark.parametrize("name", SCHEDULES)
def test_pinned_schedules_are_right_and_deterministic(implementation: Implementation, name: str) -> None:
    case = scaled_case(B=1, S=19, n=3, D=21, schedules={implementation.name: SCHEDULES[name]})
    observation, _, verdicts = judged(implementation, case)
    assert not failing(verdicts)
    assert observation.refused is None
    again = observed(implementation, case)
    for first, second in ((observation.outputs, again.outputs), (observation.gradients, again.gradients)):
        for output, value in first.items():
            assert bits(value) == bits(second[output]), output


# Forward and backward mode, with the smallest shapes that they serve and a tail in every dimension that may have one.
SM_90_CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "resident n=1": ({"forward_mode": "resident"}, {"B": 1, "S": 70, "n": 1, "D": 2048}),
    "resident n=2": ({"forward_mode": "resident"}, {"B": 3, "S": 11, "n": 2, "D": 1024}),
    "resident n=3": ({"forward_mode": "resident"}, {"B": 1, "S": 17, "n": 3, "D": 768}),
    "resident n=4": ({"forward_mode": "resident"}, {"B": 2, "S": 600, "n": 4, "D": 512}),
    "resident, no gamma": ({"forward_mode": "resident"}, {"B": 1, "S": 130, "n": 4, "D": 1024, "absent": {"gamma"}}),
    "resident, float16 n=1": ({"forward_mode": "resident"}, {"B": 1, "S": 70, "n": 1, "D": 2048, "dtype": "float16"}),
    "resident, float16 n=2": ({"forward_mode": "resident"}, {"B": 3, "S": 11, "n": 2, "D": 1024, "dtype": "float16"}),
    "resident, float16 n=3, no gamma": (
        {"forward_mode": "resident"},
        {"B": 1, "S": 130, "n": 3, "D": 768, "dtype": "float16", "absent": {"gamma"}},
    ),
    "resident, float16 n=4": ({"forward_mode": "resident"}, {"B": 2, "S": 600, "n": 4, "D": 512, "dtype": "float16"}),
    "hopper n=1": ({"backward_mode": "hopper"}, {"B": 1, "S": 65, "n": 1, "D": 8}),
    "hopper n=3": ({"backward_mode": "hopper"}, {"B": 1, "S": 2100, "n": 3, "D": 136}),
    "hopper n=4": ({"backward_mode": "hopper"}, {"B": 7, "S": 19, "n": 4, "D": 520}),
    "hopper, no gamma": ({"backward_mode": "hopper"}, {"B": 1, "S": 64, "n": 4, "D": 256, "absent": {"gamma"}}),
    "whole n=1": ({"forward_mode": "whole"}, {"B": 1, "S": 130, "n": 1, "D": 2048, "dtype": "float32"}),
    "whole n=3": ({"forward_mode": "whole", "forward_stages": 2}, {"B": 1, "S": 70, "n": 3, "D": 37, "dtype": "float32"}),
    "whole n=4": ({"forward_block_k": 32}, {"B": 3, "S": 101, "n": 4, "D": 520, "dtype": "float32"}),
    "whole n=8": ({"forward_warps": 8}, {"B": 1, "S": 150, "n": 8, "D": 130, "dtype": "float32"}),
    "whole, wide tiles": (
        {"forward_block_m": 64, "forward_block_tokens": 32, "forward_splits": 3},
        {"B": 1, "S": 33, "n": 8, "D": 20, "dtype": "float32"},
    ),
    "whole, no gamma": (
        {"forward_mode": "whole"},
        {"B": 2, "S": 300, "n": 4, "D": 64, "dtype": "float32", "absent": {"gamma"}},
    ),
    "hopper forward n=1": ({"forward_mode": "hopper"}, {"B": 1, "S": 130, "n": 1, "D": 72}),
    "hopper forward n=5, odd rows": ({"forward_mode": "hopper"}, {"B": 3, "S": 376, "n": 5, "D": 37}),
    "hopper forward n=6, rows of 8 bytes": (
        {"forward_mode": "hopper", "forward_block_tokens": 256},
        {"B": 1, "S": 602, "n": 6, "D": 514},
    ),
    "hopper forward n=8, no gamma": (
        {"forward_mode": "hopper", "forward_splits": 3},
        {"B": 1, "S": 130, "n": 8, "D": 136, "absent": {"gamma"}},
    ),
    "hopper forward n=16": ({"forward_mode": "hopper"}, {"B": 1, "S": 67, "n": 16, "D": 130}),
    "wide_hopper n=5, odd rows": ({"backward_mode": "wide_hopper"}, {"B": 2, "S": 1100, "n": 5, "D": 111}),
    "wide_hopper n=6": ({"backward_mode": "wide_hopper"}, {"B": 1, "S": 2101, "n": 6, "D": 200}),
    "wide_hopper n=8, no gamma": (
        {"backward_mode": "wide_hopper"},
        {"B": 1, "S": 67, "n": 8, "D": 264, "absent": {"gamma"}},
    ),
    "wide_hopper n=16": ({"backward_mode": "wide_hopper"}, {"B": 1, "S": 67, "n": 16, "D": 130}),
    "resident backward n=2": ({"backward_mode": "resident"}, {"B": 1, "S": 1000, "n": 2, "D": 2048}),
    "resident backward n=3, no gamma": (
        {"backward_mode": "resident"},
        {"B": 1, "S": 130, "n": 3, "D": 512, "absent": {"gamma"}},
    ),
    "resident backward n=4, laps of the ring": ({"backward_mode": "resident"}, {"B": 1, "S": 1100, "n": 4, "D": 4096}),
    "resident backward n=4, one tile": ({"backward_mode": "resident"}, {"B": 1, "S": 3, "n": 4, "D": 256}),
    "hopper float16 n=1": ({"backward_mode": "hopper"}, {"B": 1, "S": 65, "n": 1, "D": 8, "dtype": "float16"}),
    "hopper float16 n=3": ({"backward_mode": "hopper"}, {"B": 1, "S": 2100, "n": 3, "D": 136, "dtype": "float16"}),
    "hopper float16 n=4": ({"backward_mode": "hopper"}, {"B": 7, "S": 19, "n": 4, "D": 520, "dtype": "float16"}),
    "resident backward, float16 n=2": (
        {"backward_mode": "resident"},
        {"B": 1, "S": 1000, "n": 2, "D": 2048, "dtype": "float16"},
    ),
    "resident backward, float16 n=4": (
        {"backward_mode": "resident"},
        {"B": 1, "S": 130, "n": 4, "D": 512, "dtype": "float16", "absent": {"gamma"}},
    ),
    "hopper forward, float16 n=1": ({"forward_mode": "hopper"}, {"B": 1, "S": 130, "n": 1, "D": 72, "dtype": "float16"}),
    "hopper forward, float16 n=5, odd rows": (
        {"forward_mode": "hopper"},
        {"B": 3, "S": 376, "n": 5, "D": 37, "dtype": "float16"},
    ),
    "hopper forward, float16 n=8": (
        {"forward_mode": "hopper", "forward_block_tokens": 256},
        {"B": 1, "S": 130, "n": 8, "D": 136, "dtype": "float16", "absent": {"gamma"}},
    ),
    "wide_hopper float16 n=5, odd rows": (
        {"backward_mode": "wide_hopper"},
        {"B": 2, "S": 1100, "n": 5, "D": 111, "dtype": "float16"},
    ),
    "wide_hopper float16 n=16": ({"backward_mode": "wide_hopper"}, {"B": 1, "S": 67, "n": 16, "D": 130, "dtype": "float16"}),
    "wide n=5": ({"backward_mode": "wide"}, {"B": 2, "S": 1100, "n": 5, "D": 111}),
    "wide n=16": ({"backward_mode": "wide"}, {"B": 1, "S": 67, "n": 16, "D": 130}),
}


@pytest.mark.skipif(not ON_CUDA or torch.cuda.get_device_capability() != (9, 0), reason="needs a GPU of sm_90")
@pytest.mark.parametrize("name", SM_90_CASES)
def test_modes_of_sm_90_are_right_and_deterministic(name: str) -> None:
    schedule, shape = SM_90_CASES[name]
    case = scaled_case(**{**shape, "absent": frozenset(shape.get("absent", ()))}, schedules={TRITON.name: schedule})
    observation, _, verdicts = judged(TRITON, case)
    assert observation.refused is None
    assert not failing(verdicts)
    again = observed(TRITON, case)
    for first, second in ((observation.outputs, again.outputs), (observation.gradients, again.gradients)):
        assert [bits(value) for value in first.values() if value is not None] == [
            bits(value) for value in second.values() if value is not None
        ]


@pytest.mark.skipif(not ON_CUDA or torch.cuda.get_device_capability() != (9, 0), reason="needs a GPU of sm_90")
def test_rows_that_float16_terms_do_not_hold_are_made_again() -> None:
    few = [scaled_case(B=1, S=130, n=n, D=D, dtype="float16") for n, D in ((1, 2048), (2, 1024), (3, 768))]
    plain = scaled_case(B=1, S=130, n=4, D=1024, dtype="float16")
    wide = with_tensor(with_tensor(plain, "phi", kind="column_scaled"), "gamma", kind="column_scaled")
    sparse = with_tensor(wide, "x", kind="sparse")
    for case, same in (*((one, False) for one in (*few, plain)), (wide, True), (sparse, True)):
        observation, _, verdicts = judged(TRITON, replace(case, schedules={TRITON.name: {"forward_mode": "resident"}}))
        assert not failing(verdicts)
        again = observed(TRITON, replace(case, schedules={TRITON.name: dict(AGAIN)}))
        assert (bits(observation.outputs["h_mix"]) == bits(again.outputs["h_mix"])) is same


_ROW = torch.linspace(1.0, 2.0, 25, dtype=torch.float64)
ROWS_IN_DOUBT = {
    "neither": (_ROW, _ROW),
    "spread beside sparse": (torch.cat([_ROW[:1], _ROW[1:] * 2.0**-49]), torch.cat([_ROW[:1] * 0, _ROW[1:]])),
    "spread beside a thin, sparse one": (
        torch.cat([_ROW[:1], _ROW[1:] * 2.0**-49]),
        torch.cat([_ROW[:1] * 2.0**-45, _ROW[1:]]),
    ),
    "both spread": (_ROW * 2.0 ** -torch.arange(0, 50, 2), _ROW * 2.0 ** -torch.arange(48, -2, -2)),
    "faint": (_ROW * 2.0**-100, _ROW * 2.0**90),
    "large": (_ROW * 2.0**60, _ROW * 2.0**-20),
    "cancels": (_ROW * (-1.0) ** torch.arange(25), _ROW),
}


@runnable
@pytest.mark.parametrize("mode", ["wide", "wide_hopper"])
@pytest.mark.parametrize(
    "name",
    [
        one if one in {"spread beside sparse", "cancels"} else pytest.param(one, marks=pytest.mark.slow)
        for one in ROWS_IN_DOUBT
    ],
)
def test_dx_of_many_streams_is_right_where_float16_is_not(implementation: Implementation, name: str, mode: str) -> None:
    """dh_res in rows and phi in columns, either way round: dx is their product alone."""
    if mode == "wide_hopper" and (implementation is not TRITON or torch.cuda.get_device_capability() != (9, 0)):
        pytest.skip("needs a GPU of sm_90")
    n, M, D, N = 6, 48, 64, 8
    device = device_of(implementation)
    for rows in (ROWS_IN_DOUBT[name], ROWS_IN_DOUBT[name][::-1]):
        a, b = (
            torch.zeros(M, dtype=torch.float64, device=device).index_copy_(
                0, torch.arange(12, 37, device=device), one.to(device)
            )
            for one in rows
        )
        phi = b.float()[:, None].repeat(1, n * D)
        phi[:, 5:] = torch.rand(M, n * D - 5, generator=torch.Generator().manual_seed(3)).to(device) + 1.0
        dh_mix = a.float().repeat(N, 1)
        dh_mix[3:] = 1.0 + torch.rand(N - 3, M, generator=torch.Generator().manual_seed(4)).to(device)
        dh_mix[:, :12] = 0.0
        zeros = partial(torch.zeros, device=device)
        gradients = mhc_backward_triton(
            zeros(1, N, n, D, dtype=torch.bfloat16),
            phi,
            torch.ones(3, device=device),
            zeros(M),
            torch.ones(1, N, device=device),
            zeros(1, N, M),
            zeros(1, N, n),
            zeros(1, N, n),
            zeros(1, N, D, dtype=torch.bfloat16),
            zeros(1, N, n),
            dh_mix[:, 12:].reshape(1, N, n, n).contiguous(),
            None,
            schedule={"backward_mode": mode},
        )
        dx = gradients[0].double().reshape(N, n * D)
        exact = dh_mix.double() @ phi.double()
        sizes = dh_mix.double().abs() @ phi.double().abs()
        bound = 2.0**-8 * exact.abs() + 6 * 48**0.5 * 2.0**-24 * sizes + 2.0**-133
        assert bool(((dx - exact).abs() <= bound).all())


@runnable
@pytest.mark.parametrize("mode", ["streams", "hopper"])
@pytest.mark.parametrize("tokens", [16, 19], ids=["tiles that fill", "tiles that do not"])
@pytest.mark.parametrize(
    ("phi", "gamma", "dh_res"),
    [
        (0.06, 1e-40, 3e3),
        pytest.param(1.0, 3.6e-39, 1.0, marks=pytest.mark.slow),
        pytest.param(2.0**-118, None, 2.0**80, marks=pytest.mark.slow),
        (2.0**-130, None, 2.0**90),
        (0.06, 1e38, 1e-3),
    ],
    ids=["gamma 1e-40", "gamma 3.6e-39", "phi 2^-118", "phi 2^-130", "no faint one"],
)
def test_dx_is_right_where_terms_of_bfloat16_are_not(
    implementation: Implementation, phi: float, gamma: float | None, dh_res: float, tokens: int, mode: str
) -> None:
    """phi * gamma is faint in the first stream alone."""
    if mode == "hopper" and (implementation is not TRITON or torch.cuda.get_device_capability() != (9, 0)):
        pytest.skip("needs a GPU of sm_90")
    n, M, D = 4, 24, 32 if mode == "streams" else 128
    zeros = partial(torch.zeros, device=device_of(implementation))
    drawn = torch.Generator().manual_seed(5)
    weights = (1 + torch.rand(M, n * D, generator=drawn)).to(zeros(0).device)
    weights[:, :D] *= phi
    rows = dh_res * (1 + torch.rand(tokens, 16, generator=drawn)).to(zeros(0).device)
    rows[:, 8:] *= -1.0
    scale = None
    if gamma is not None:
        scale = zeros(n, D) + 1
        scale[0] = gamma
    given = (zeros(1, tokens, n, D, dtype=torch.bfloat16), weights, zeros(3) + 1, zeros(M), zeros(1, tokens) + 1)
    saved = (zeros(1, tokens, M), zeros(1, tokens, n), zeros(1, tokens, n))
    upstream = (zeros(1, tokens, D, dtype=torch.bfloat16), zeros(1, tokens, n), rows.reshape(1, tokens, n, n))
    schedule: dict[str, ScheduleValue] = {"backward_mode": mode}
    if mode == "streams":
        schedule |= {"backward_tokens": 16, "backward_columns": 16}
    dx = mhc_backward_triton(*given, *saved, *upstream, scale, schedule=schedule)[0].double().reshape(tokens, n * D)
    right = weights[8:].double() * (1.0 if scale is None else scale.double().reshape(-1))
    exact, sizes = rows.double() @ right, rows.double().abs() @ right.abs()
    assert bool(((dx - exact).abs() <= 2.0**-8 * exact.abs() + 24 * 2.0**-24 * sizes + 2.0**-133).all())


@runnable
def test_a_pinned_schedule_is_what_runs(implementation: Implementation) -> None:
    """Another number of splits is another order of summation: some bits differ."""
    case = scaled_case(B=1, S=4, n=2, D=150, dtype="float32")
    one, other = (
        observed(implementation, replace(case, schedules={implementation.name: {"forward_splits": splits}})).outputs["h_mix"]
        for splits in (1, 2)
    )
    assert bits(one) != bits(other)


def test_what_a_schedule_cannot_serve_is_refused_with_the_reason() -> None:
    case = scaled_case(B=2, S=3, n=3, D=8, dtype="float32")
    reasons: dict[str, tuple[Case, dict[str, Any]]] = {
        "float64 has no bfloat16 terms": (replace(case, dtype="float64"), {"forward_presplit": True}),
        "backward_mode wide is for bfloat16 and float16, was float32": (case, {"backward_mode": "wide"}),
        "backward_mode hopper is for bfloat16 and float16 on sm_90": (case, {"backward_mode": "hopper"}),
        "forward_mode resident is for bfloat16 and float16 on sm_90": (case, {"forward_mode": "resident"}),
        "forward_mode whole is for float32": (replace(case, dtype="float16"), {"forward_mode": "whole"}),
        "forward_mode whole, the default of float32, takes": (case, {"forward_block_k": 64}),
        "forward_block_tokens * columns of phi must be at most 8192 there, was 16384": (
            case,
            {"forward_block_tokens": 128, "forward_block_m": 128, "forward_warps": 4},
        ),
    }
    hopper = scaled_case(B=2, S=64, n=4, D=128)
    reasons["backward_mode hopper takes backward_columns 32"] = (hopper, {"backward_columns": 16})
    reasons["backward_mode hopper takes backward_stages 5"] = (hopper, {"backward_stages": 1})
    reasons["forward_mode hopper takes forward_block_tokens 128 or 256, was 64"] = (
        hopper,
        {"forward_mode": "hopper", "forward_block_tokens": 64},
    )
    reasons["forward_mode hopper takes forward_stages of 2 to 8 there, was 1"] = (
        hopper,
        {"forward_mode": "hopper", "forward_stages": 1},
    )
    reasons["backward_mode resident is for bfloat16 and float16 on sm_90, n from 2 to 4"] = (
        hopper,
        {"backward_mode": "resident"},
    )
    reasons["backward_mode resident takes backward_splits 1;"] = (
        scaled_case(B=2, S=64, n=4, D=4096),
        {"backward_mode": "resident", "backward_splits": 2},
    )
    odd = scaled_case(B=1, S=9, n=3, D=7)
    reasons["forward_mode hopper is for bfloat16 and float16 on sm_90, N a multiple of 8 / gcd(n * D, 8)"] = (
        odd,
        {"forward_mode": "hopper"},
    )
    reasons["backward_mode wide_hopper is for bfloat16 and float16 on sm_90, N a multiple"] = (
        odd,
        {"backward_mode": "wide_hopper"},
    )
    for reason, (spoilt, schedule) in reasons.items():
        assert (unfit(spoilt, schedule, H200) or "").startswith(reason), reason
    assert unfit(case, {}, H200) is None
    slow = scaled_case(B=8, S=64, n=4, D=64)
    tiny = {"forward_block_tokens": 16, "forward_block_m": 16, "forward_block_k": 32}
    assert "the interpreter gets through in time" in (unfit(slow, tiny, INTERPRETER) or "")
    assert unfit(slow, {}, INTERPRETER) is None
    unknown = replace(case, schedules={"triton": {"forward_tokens": 3}})
    assert (
        TRITON.refusal(unknown, "cuda") == Refused("its schedule has no forward_tokens = 3")
        or str(TRITON.refusal(unknown, "cuda")) == "its schedule has no forward_tokens = 3"
    )


def test_every_name_of_the_space_is_a_field_and_every_value_can_be_pinned() -> None:
    defaults = {
        "forward": forward_schedule(Problem(64, 4, 128, torch.bfloat16, H200)),
        "backward": backward_schedule(Problem(64, 4, 128, torch.bfloat16, H200)),
    }
    for name, values in SPACE.items():
        stage, _, field = name.partition("_")
        for value in values:
            assert getattr(pinned(defaults[stage], stage, {name: value}), field) == value


@pytest.mark.parametrize("mode", SPACE["backward_mode"])
def test_a_pinned_mode_brings_its_own_tile(mode: str) -> None:
    """Not that of the mode that would have been the default."""
    case = scaled_case(B=2, S=64, n=4, D=256)
    assert unfit(case, {"backward_mode": mode}, H200) is None
    plan = backward_plan(problem_of(case, H200), {"backward_mode": mode})
    assert plan == backward_schedule(problem_of(case, H200), str(mode))
    assert plan.mode == mode
    assert mode == "hopper" or plan.rows.bit_count() == 1  # what a kernel can have as a range


def test_on_the_cpu_the_compiled_one_refuses() -> None:
    refusal = TRITON.refusal(scaled_case(), "cpu")
    assert refusal is not None
    assert refusal.reason == "runs on cuda, not on cpu"


def test_without_its_variable_the_interpreted_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    import triton  # noqa: PLC0415

    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    refusal = TRITON_INTERPRETED.refusal(scaled_case(), "cpu")
    assert refusal is not None
    assert refusal.reason == "needs TRITON_INTERPRET=1 before Triton is imported"


@pytest.mark.skipif(not RUNNABLE, reason="neither a GPU nor Triton's interpreter here")
def test_the_named_functions_are_differentiable_and_agree_with_the_implementation() -> None:
    implementation = RUNNABLE[-1]
    case: Case = scaled_case(B=2, S=3, n=2, D=9)
    inputs = materialise(case, "cpu" if implementation in ON_CPU else "cuda")
    wanted = observed(implementation, case)
    given = place(inputs, reference(inputs).saved).tensors
    arguments = [given[name] for name in case.table.forward_arguments]
    outputs = mhc_forward_pre_triton_optimized(*arguments, outflag=True)  # type: ignore[arg-type]
    assert [bits(value) for value in outputs] == [bits(value) for value in wanted.outputs.values()]
    gradients = mhc_backward_triton(**{name: given[name] for name in case.table.backward_arguments})  # type: ignore[arg-type]
    assert [bits(value) for value in gradients] == [bits(value) for value in wanted.gradients.values()]
    leaves = [tensor.detach().requires_grad_() for tensor in arguments if tensor is not None]
    h_in, h_post, h_res = mhc_forward_pre_triton_optimized(*leaves)
    torch.autograd.backward([h_in, h_post, h_res], [given[f"d{name}"] for name in ("h_in", "h_post", "h_res")])
    assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in leaves)
    with pytest.raises(Refused, match="its schedule has no forward_splits = 7"):
        mhc_forward_pre_triton_optimized(*arguments, schedule={"forward_splits": 7})  # type: ignore[arg-type]


_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(launcher._Config),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


def test_the_driver_gets_what_a_launch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each launch grid, threads, shared memory, stream, attributes, and every parameter with the type of the kernel."""
    launches = [
        launcher.Launch(None, (3, 2, 1), 4, ("x", "w"), (7, 0.5, 1 << 40, "form", 1e-6), overlap=True, together=True),
        launcher.Launch(None, (5, 1, 1), 8, ("w", "y"), (2,)),
    ]
    kinds = [{"a": "*bf16", "b": "*fp32", "N": "i32", "f": "fp32", "K": "i64", "FORM": "constexpr", "eps": "fp64"}]
    kinds.append({"a": "*fp32", "b": "*fp32", "n": "constexpr"})
    kernels = [
        SimpleNamespace(
            src=SimpleNamespace(signature=signature),
            function=function,
            metadata=SimpleNamespace(num_warps=warps, shared=shared),
        )
        for signature, function, warps, shared in zip(kinds, (11, 12), (12, 8), (4096, 0), strict=True)
    ]
    types: list[list[Any]] = [
        [*[ctypes.c_uint64] * 2, ctypes.c_int32, ctypes.c_float, ctypes.c_int64, ctypes.c_double, *[ctypes.c_uint64] * 2],
        [ctypes.c_uint64] * 4,
    ]
    seen: list[Any] = []

    def launched(config: Any, function: int, parameters: Any, extra: Any) -> int:
        one, of = config.contents, types[len(seen) % 2]
        marks = [(one.attributes[i].id, one.attributes[i].value[1]) for i in range(one.count)]
        values = [kind.from_address(parameters[i]).value for i, kind in enumerate(of)]
        assert extra is None
        seen.append((function, tuple(one.grid), tuple(one.block), one.shared, one.stream, marks, values))
        return 0

    monkeypatch.setattr(launcher, "_cuda", lambda: SimpleNamespace(cuLaunchKernelEx=_LAUNCH(launched)))
    start = launcher._Driven(launches, kernels, ("x", "y", "w"))
    for stream, (x, y, w) in ((64, (1 << 50, 2, 3)), (128, (4, 5, 6))):
        seen.clear()
        start(stream, [x, y, w])
        first, second = seen
        assert first == (
            *(11, (3, 2, 1), (384, 1, 1), 4096, stream),
            [(6, 1), (2, 1)],
            [x, w, 7, 0.5, 1 << 40, 1e-6, 0, 0],
        )
        assert second == (12, (5, 1, 1), (256, 1, 1), 0, stream, [], [w, y, 0, 0])


def test_an_error_of_the_driver_is_raised_with_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def text_of(error: int, text: Any) -> int:
        text._obj.value = b"no such launch"
        return 0

    driver = SimpleNamespace(cuLaunchKernelEx=lambda *_: 700, cuGetErrorString=text_of)
    monkeypatch.setattr(launcher, "_cuda", lambda: driver)
    kernel = SimpleNamespace(
        src=SimpleNamespace(signature={"x": "*fp32"}), function=1, metadata=SimpleNamespace(num_warps=4, shared=0)
    )
    start = launcher._Driven([launcher.Launch(None, (1, 1, 1), 4, ("x",), ())], [kernel], ("x",))
    with pytest.raises(RuntimeError, match=r"Triton Error \[CUDA\]: no such launch"):
        start(0, [1])


def test_other_releases_of_triton_launch_by_their_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_TRITON_36", False)
    seen: list[Any] = []
    kernels = [
        SimpleNamespace(run=lambda *arguments: seen.append(arguments), function=11 + i, packed_metadata=i) for i in range(2)
    ]
    launches = [
        launcher.Launch(None, (3, 2, 1), 4, ("x", "w"), (7,)),
        launcher.Launch(None, (5, 1, 1), 8, ("w",), ()),
    ]
    launcher._start(launches, kernels, ("x", "w"))(64, [1, 2])
    assert seen == [(3, 2, 1, 64, 11, 0, None, None, None, 1, 2, 7), (5, 1, 1, 64, 12, 1, None, None, None, 2)]
