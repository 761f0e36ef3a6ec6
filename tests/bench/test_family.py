"""`python -m mhc.bench family`, on the CPU with a meter that calls once."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from mhc import load
from mhc.bench.cli import main
from mhc.bench.kernels import family

CPU = torch.device("cpu")
TINY = {"B0": 2, "B1": 3, "n": 2, "C": 8}


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **keywords: function)


@pytest.mark.parametrize("operator", family.KERNELS)
def test_every_contender_gives_the_same_at_every_stage(operator: str) -> None:
    found: list[list[Any]] = []

    def meter(call: Any) -> float:
        found.append([torch.as_tensor(one).detach().float() for one in call()])
        return 0.5

    interpreted = load(f"{operator}.triton-interpreted")
    lines = list(family.rows([interpreted], TINY, CPU, 4.3, meter))
    shape = "2,3,2" if "sinkhorn" in operator else "2,3,2,8"
    names = ("golden", "compile", interpreted.name)
    assert [line[:5] for line in lines] == [
        [operator, stage, shape, name, "0.5000"] for stage in ("forward", "backward") for name in names
    ]
    assert all(0 <= float(line[6]) <= 1 for line in lines if line[3] == interpreted.name)
    for golden, compiled, triton in (found[:3], found[3:]):
        for one, other, third in zip(golden, compiled, triton, strict=True):
            torch.testing.assert_close(one, other)
            torch.testing.assert_close(one, third, rtol=1e-2, atol=1e-4)


def test_mhc_pre_has_its_backward_from_saved_tensors() -> None:
    lines = list(family.rows([load("manual")], TINY, CPU, 4.3, lambda call: float(len(call()))))
    assert [line[1:5] for line in lines] == [
        ["forward", "2,3,2,8", "manual", "6.0000"],
        ["backward", "2,3,2,8", "manual", "5.0000"],
    ]


def test_what_raises_is_shown_and_the_rest_is_measured() -> None:
    kernel = load("mhc_post.triton-interpreted")
    said: dict[str, None] = {}
    lines = list(family.rows([kernel], TINY, CPU, 4.3, lambda call: 1 / 0, raised=said.setdefault))
    assert {line[4] for line in lines} == {"ZeroDivisionError"}
    assert f"\n- mhc_post, 2,3,2,8, {kernel.name}, backward: ZeroDivisionError: division by zero\n" in family.failures(said)
    assert family.failures({}) == ""


def test_what_is_rounded_lower_is_named() -> None:
    kernel = replace(load("mhc_post.golden"), precision={"matmul": "tf32"})
    assert {line[7] for line in family.rows([kernel], TINY, CPU, 4.3, lambda call: 1.0)} == {"", "matmul in tf32"}


def test_each_tensor_moves_once() -> None:
    table = load("mhc_post.triton-interpreted").table
    tensors = family.draw(table, TINY, CPU)
    numbers = 6 * (2 * 8 * 2 + 8 * 2 + 2 * 4 + 4 * 4)  # bytes of x, f, h_post, h_res
    y = 6 * 2 * 8 * 2
    assert family.least_ms(table, "forward", tensors, TINY, 1.0) == pytest.approx((numbers + y) / 1e9)
    assert family.least_ms(table, "backward", tensors, TINY, 1.0) == pytest.approx((2 * numbers + y) / 1e9)


def test_axes_of_other_libraries_are_tokens_and_blocks() -> None:
    table = load("tilekernels:mhc_post").table
    sizes = {"B0": 4, "B1": 2048, "n": 4, "C": 4096}
    assert family.axes(table, sizes) == {"T": 8192, "blocks": 64}
    assert family.fits(table, sizes)
    assert not family.fits(table, {**sizes, "n": 16})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    done = CliRunner().invoke(main, ["family"])
    assert (done.exit_code, "on a GPU alone" in done.output) == (2, True)
    assert "no such operator" in CliRunner().invoke(main, ["family", "--only", "softmax"]).output
