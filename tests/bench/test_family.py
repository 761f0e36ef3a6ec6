"""`python -m mhc.bench family`, on the CPU with a meter that calls once."""

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
    lines = family.rows(interpreted, TINY, CPU, 4.3, meter)
    shape = "2,3,2" if "sinkhorn" in operator else "2,3,2,8"
    assert [line[:6] for line in lines] == [[operator, stage, shape, *["0.5000"] * 3] for stage in ("forward", "backward")]
    for golden, compiled, triton in (found[:3], found[3:]):
        for one, other, third in zip(golden, compiled, triton, strict=True):
            torch.testing.assert_close(one, other)
            torch.testing.assert_close(one, third, rtol=1e-2, atol=1e-4)


def test_what_raises_is_shown_and_the_rest_is_measured() -> None:
    kernel = load("mhc_post.triton-interpreted")
    lines = family.rows(kernel, TINY, CPU, 4.3, lambda call: 1 / 0)
    assert {cell for line in lines for cell in line[3:6]} == {"ZeroDivisionError"}


def test_each_tensor_moves_once() -> None:
    kernel = load("mhc_post.triton-interpreted")
    tensors = family.draw(kernel, TINY, CPU)
    numbers = 6 * (2 * 8 * 2 + 8 * 2 + 2 * 4 + 4 * 4)  # bytes of x, f, h_post, h_res
    y = 6 * 2 * 8 * 2
    assert family.least_ms(kernel, "forward", tensors, TINY, 1.0) == pytest.approx((numbers + y) / 1e9)
    assert family.least_ms(kernel, "backward", tensors, TINY, 1.0) == pytest.approx((2 * numbers + y) / 1e9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    done = CliRunner().invoke(main, ["family"])
    assert (done.exit_code, "on a GPU alone" in done.output) == (2, True)
    assert "no such operator" in CliRunner().invoke(main, ["family", "--only", "mhc_pre"]).output
