"""The Triton kernels of Sinkhorn and mHC post: padded streams, tiles, views, no tokens, infinities, schedules."""

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import Case, Implementation, default_case
from mhc.case import ScheduleValue
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.operator import OPERATORS
from mhc.operators.mhc_post.triton import schedule as post_schedule
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_sinkhorn.triton import schedule as sinkhorn_schedule
from mhc.oracles.verdict import Status
from mhc.registry import BUILT_IN
from tests.support.device import ASKED, place
from tests.support.helpers import ROOT, bits, device_of, observed

POSTS = ("mhc_post", "mhc_post_transposed")
SINKHORNS = ("mhc_sinkhorn", "mhc_sinkhorn_liger", "mhc_sinkhorn_tilekernels")
TRITON = {
    one.operator: one
    for one in BUILT_IN
    if one.operator in (*POSTS, *SINKHORNS)
    and ".triton" in one.name
    and place(one, ASKED.device, gpu=torch.cuda.is_available(), variables=os.environ).device
}
"""By operator, the implementation in Triton that is tested here: in the interpreter, or on a GPU."""
H200 = Chip(cores=132, shared=232448, capability=90)
INTERPRETER = Chip(cores=1, shared=1 << 30, interpreted=True)


def failures(implementation: Implementation, case: Case) -> list[str]:
    """Return what the gates find of one run; something was judged, and nothing refused."""
    verdicts = check(implementation, case, device_of(implementation), Level.PLAIN).verdicts
    assert any(one.oracle == "bound" and one.status is Status.PASS for one in verdicts), verdicts
    return [f"{one.subject}: {one.message}" for one in verdicts if one.status is Status.FAIL]


def results(implementation: Implementation, case: Case) -> dict[str, bytes]:
    """Return the bits of every output and gradient."""
    run = observed(implementation, case)
    assert run.failure is None
    assert run.refused is None
    return {name: bits(value) for name, value in {**run.outputs, **run.gradients}.items()}


def test_every_operator_of_the_family_but_that_of_transformer_engine_has_kernels() -> None:
    names = {one.name for one in BUILT_IN}
    for operator in (*POSTS, *SINKHORNS):
        assert {f"{operator}.triton", f"{operator}.triton-interpreted"} <= names
    assert not any(name.startswith("mhc_sinkhorn_te.triton") for name in names)


def test_the_registry_imports_no_triton() -> None:
    program = "import sys, mhc.registry; assert not {'triton', 'tilelang'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize(
    ("operator", "sizes"),
    [
        *(
            ("mhc_sinkhorn", sizes)
            for sizes in ({"B0": 2, "B1": 3, "n": 4}, {"B0": 5, "n": 3}, {"n": 1}, {"B0": 2, "n": 16})
        ),
        *((operator, {"B0": 2, "n": 5}) for operator in SINKHORNS[1:]),
    ],
    ids=str,
)
def test_sinkhorn_is_right_where_matrices_are_padded(operator: str, sizes: dict[str, Any]) -> None:
    assert failures(TRITON[operator], default_case(operator=operator, dtype="float32", **sizes)) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize(
    "sizes", [{"B0": 2, "B1": 3, "n": 4, "C": 24}, {"B0": 5, "n": 3, "C": 37}, {"n": 1, "C": 1}], ids=str
)
@pytest.mark.parametrize("operator", POSTS)
def test_post_is_right_in_every_dtype(operator: str, sizes: dict[str, Any], dtype: str) -> None:
    assert failures(TRITON[operator], default_case(operator=operator, dtype=dtype, **sizes)) == []


def pinned(operator: str, schedule: dict[str, ScheduleValue], **sizes: Any) -> Case:
    case = default_case(operator=operator, dtype="float32", **sizes)
    return replace(case, schedules={TRITON[operator].name: schedule})


def test_tiles_of_post_add_up() -> None:
    """Several tiles of tokens and columns, the last of each not full, and streams in two programs, the last not full."""
    tiles: dict[str, ScheduleValue] = {"tokens": 2, "columns": 16}
    schedule = {f"{stage}_{name}": value for stage in ("forward", "backward") for name, value in tiles.items()}
    case = pinned("mhc_post", {**schedule, "backward_streams": 2}, B0=5, n=3, C=37)
    assert failures(TRITON["mhc_post"], case) == []
    whole, cut = (results(TRITON["mhc_post"], one) for one in (replace(case, schedules={}), case))
    assert {name for name, value in whole.items() if value != cut[name]} <= {"dh_post", "dh_res"}  # sums over C


@pytest.mark.skipif(ASKED.device == "cuda", reason="compiled, a sum's order depends on the lanes that hold it")
@pytest.mark.parametrize("operator", ["mhc_sinkhorn", "mhc_sinkhorn_liger"])
def test_how_many_matrices_a_program_takes_changes_no_bit(operator: str) -> None:
    case = pinned(operator, {"forward_tokens": 2, "backward_tokens": 2}, B0=5, n=3)
    assert results(TRITON[operator], case) == results(TRITON[operator], replace(case, schedules={}))


def run(operator: str, stage: str, *tensors: Tensor, **scalars: float) -> tuple[Tensor, ...]:
    """Return what a stage makes of tensors on the CPU, there again."""
    implementation = TRITON[operator]
    scalars = {**OPERATORS[operator].scalars, **scalars}
    moved = [tensor.to(device_of(implementation)) for tensor in tensors]
    returned = getattr(implementation, stage)(*moved, **implementation.keywords(scalars))
    return tuple(one.cpu() for one in ((returned,) if isinstance(returned, Tensor) else returned))


@pytest.mark.parametrize("lead", [(0,), (2, 0)])
def test_no_tokens_and_no_columns(lead: tuple[int, ...]) -> None:
    logits = torch.empty(*lead, 3, 3)
    assert [one.shape for one in run("mhc_sinkhorn", "forward", logits)] == [logits.shape]
    assert [one.shape for one in run("mhc_sinkhorn", "backward", logits, logits)] == [logits.shape]
    x, f, post = torch.empty(*lead, 3, 5), torch.empty(*lead, 5), torch.empty(*lead, 3)
    assert [one.shape for one in run("mhc_post", "forward", x, f, post, logits)] == [x.shape]
    found = run("mhc_post", "backward", x, f, post, logits, x)
    assert [one.shape for one in found] == [one.shape for one in (x, f, post, logits)]
    narrow = run(
        "mhc_post",
        "backward",
        torch.ones(2, 3, 0),
        torch.ones(2, 0),
        torch.ones(2, 3),
        torch.ones(2, 3, 3),
        torch.ones(2, 3, 0),
    )
    assert [bool((one == 0).all()) for one in narrow] == [True] * 4


def views(tensor: Tensor) -> list[Tensor]:
    """Return the tensor with its last two axes exchanged in memory, in the middle of a larger one, and misaligned."""
    larger = torch.full((*tensor.shape[:-1], 3 * tensor.shape[-1]), torch.nan)
    larger[..., 1::3] = tensor
    shifted = torch.cat([torch.zeros(1), tensor.flatten()])[1:].view(tensor.shape)
    return [tensor.mT.contiguous().mT, larger[..., 1::3], shifted]


def test_a_view_gives_the_bits_of_its_copy() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, dm, x, f, post = (
        torch.randn(shape, generator=generator) for shape in ((3, 5, 5), (3, 5, 5), (3, 5, 7), (3, 7), (3, 5))
    )
    for operator, stage, given in (
        ("mhc_sinkhorn", "forward", (logits,)),
        ("mhc_sinkhorn", "backward", (logits, dm)),
        ("mhc_post", "forward", (x, f, post, logits)),
        ("mhc_post", "backward", (x, f, post, logits, x * 2)),
    ):
        wanted = [bits(one) for one in run(operator, stage, *given)]
        for some in zip(*map(views, given), strict=True):
            assert [bits(one) for one in run(operator, stage, *some)] == wanted


@pytest.mark.parametrize("operator", SINKHORNS)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_stays_in_its_matrix_as_in_the_reference(operator: str, value: float) -> None:
    logits = torch.linspace(-1, 1, 27).reshape(3, 3, 3)
    logits[1, 0, 2] = value
    (found,) = run(operator, "forward", logits)
    wanted = OPERATORS[operator].forward(logits.double(), **OPERATORS[operator].scalars)[0].float()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7, equal_nan=True)
    (gradient,) = run(operator, "backward", logits, logits.nan_to_num(0.0, 0.0, 0.0))
    assert bool(gradient[[0, 2]].isfinite().all())


@pytest.mark.skipif("mhc_sinkhorn.triton" in {one.name for one in TRITON.values()}, reason="exp is less exact on a GPU")
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("operator", SINKHORNS)
def test_before_it_has_converged_it_is_as_exact_as_pytorch(operator: str, n: int) -> None:
    """A wrong sum scales rows or columns, which later steps undo, but for matrices as extreme as these.

    Here a product with the reciprocal of the sum, in place of a division, makes some gradients wrong.
    """
    generator = torch.Generator().manual_seed(3)
    logits = (24 * torch.randn(500, n, n, generator=generator)).clamp(-80, 80)
    dm = torch.randn(500, n, n, generator=generator)
    table = OPERATORS[operator]
    scalars = dict.fromkeys(table.scalars, 1e-4)

    def gradient(logits: Tensor) -> tuple[Tensor, Tensor]:
        leaf = logits.requires_grad_()
        (m,) = table.forward(leaf, **scalars)
        (dlogits,) = torch.autograd.grad(m, leaf, dm.to(m.dtype))
        return m.detach(), dlogits

    rights, theirs = gradient(logits.double()), gradient(logits.clone())
    ours = run(operator, "forward", logits, **scalars)[0], run(operator, "backward", logits, dm, **scalars)[0]
    for right, one, other in zip(rights, ours, theirs, strict=True):
        errors = [(found.double() - right).flatten(1).norm(dim=-1) / right.flatten(1).norm(dim=-1) for found in (one, other)]
        assert float(errors[0].mean()) <= 2 * float(errors[1].mean())


def test_what_a_schedule_cannot_serve_is_refused_with_the_reason() -> None:
    case = default_case(operator="mhc_sinkhorn", B0=64, n=16)
    unfit = sinkhorn_schedule.unfit
    assert unfit(case, {"forward_tokens": 2}, H200) is None
    assert unfit(case, {"forward_tokens": 32}, H200) == "forward_tokens make 8192 elements a program, more than 2048"
    assert "the interpreter gets through in time" in (unfit(case, {"backward_tokens": 1}, INTERPRETER) or "")
    case = default_case(operator="mhc_post", B0=64, n=16, C=512)
    assert post_schedule.unfit(case, {"backward_streams": 2}, H200) is None
    reason = post_schedule.unfit(case, {"backward_columns": 512, "backward_warps": 1}, H200)
    assert reason == "backward_tokens and backward_columns of a tile make 1280 numbers a thread, more than 512"
    assert "the interpreter gets through in time" in (
        post_schedule.unfit(case, {"forward_columns": 16, "forward_tokens": 1}, INTERPRETER) or ""
    )


@pytest.mark.parametrize("module", [sinkhorn_schedule, post_schedule], ids=["sinkhorn", "post"])
def test_every_name_of_a_space_can_be_pinned(module: Any) -> None:
    sizes = {"C": 64} if module is post_schedule else {}
    for name, values in module.SPACE.items():
        stage, _, field = name.partition("_")
        for value in values:
            cut = module.plan(stage, *(64, 4, *sizes.values()), H200, {name: value})
            assert getattr(cut, field) == value
