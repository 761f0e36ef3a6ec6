"""`tilelang-c`: what the contract and gradcheck tests of every implementation leave open about the serial loops."""

import re
from typing import Any

import pytest
import torch
from torch.autograd.gradcheck import gradcheck

from mhc import Case, mhc_pre
from mhc.case import with_tensor
from mhc.operator import STORAGE_DTYPES
from mhc.operators.mhc_pre.shapes import MAX_N
from mhc.operators.mhc_pre.tilelang.compile.cache import Counts, kernel_source
from mhc.operators.mhc_pre.tilelang.cpu import PASSES
from mhc.operators.mhc_pre.tilelang.implementations import TILELANG_C
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles.verdict import Status
from tests.support.helpers import failing, judged, leaves, observed, scaled_case
from tests.support.needs import WITHOUT_TILELANG

if WITHOUT_TILELANG:
    pytest.skip(WITHOUT_TILELANG, allow_module_level=True)

from mhc.operators.mhc_pre.tilelang.kernels.cpu import BLOCK, LANES, TOKENS

SHAPES = {
    "one": {"S": 1, "n": 1, "D": 1},
    "under a tile": {"S": TOKENS - 1, "n": 3, "D": LANES - 1},
    "a tile": {"S": TOKENS, "n": 2, "D": LANES},
    "over a tile": {"S": 2 * TOKENS + 1, "n": 5, "D": LANES + 1},
    "a block of columns": {"S": 2, "n": 1, "D": BLOCK},
    "over a block of columns": {"S": 2, "n": 7, "D": BLOCK + 1},
    "all streams": {"S": 3, "n": MAX_N, "D": 5},
}
GAMMA = {"gamma": frozenset[str](), "nogamma": frozenset({"gamma"})}


@pytest.mark.parametrize("gamma", GAMMA)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", STORAGE_DTYPES)
def test_every_remainder_of_tiles_and_blocks(dtype: str, shape: str, gamma: str) -> None:
    observation, _, verdicts = judged(TILELANG_C, scaled_case(B=1, dtype=dtype, absent=GAMMA[gamma], **SHAPES[shape]))
    assert not failing(verdicts), verdicts
    passes = {verdict.subject for verdict in verdicts if verdict.oracle == "bound" and verdict.status is Status.PASS}
    assert {*observation.outputs, *observation.gradients} - passes == ({"dgamma"} if gamma == "nogamma" else set())


EQUAL_TERMS = {"K": {"S": 1, "n": 1, "D": 65536}, "streams": {"S": 1, "n": 4, "D": 16384}, "N": {"S": 30000, "n": 1, "D": 1}}


def equal_terms(name: str) -> Case:
    """A case whose sums have equal terms, which round in the same way again and again; 0.1 has no short binary form."""
    case = scaled_case(B=1, dtype="float32", **EQUAL_TERMS[name])
    for spec in case.table.drawn:
        case = with_tensor(case, spec.name, kind="constant", scale=0.1)
    return case


@pytest.mark.parametrize("name", EQUAL_TERMS)
def test_long_sums_of_equal_terms_stay_far_inside_the_bound(name: str) -> None:
    """A plain loop is at 2.5 times the bound for 4,096 terms (docs/tolerances.md)."""
    _, _, verdicts = judged(TILELANG_C, equal_terms(name))
    assert not failing(verdicts), verdicts
    ratios = {verdict.subject: verdict.ratio for verdict in verdicts if verdict.oracle == "bound"}
    summed = ("dphi", "dbias", "dalpha", "dgamma") if name == "N" else ("h_mix", "inv_rms")
    assert all((ratios[one] or 1) < 0.25 for one in summed), ratios


# Large enough that a term forgotten with them shows in a finite difference.
SCALARS: Any = {"norm_eps": 1e-3, "hc_eps": 0.125}


@pytest.mark.parametrize("gamma", GAMMA)
@pytest.mark.parametrize("n", range(1, 7))
def test_gradcheck(n: int, gamma: str) -> None:
    """Its forward's finite differences against its own backward, in all of the arguments."""
    case = scaled_case(B=1, S=2, n=n, D={1: 7, 2: 5, 3: 3}.get(n, 1), dtype="float64", absent=GAMMA[gamma])
    assert gradcheck(lambda *inputs: mhc_pre(*inputs, impl=TILELANG_C, **SCALARS), leaves(case))


@pytest.mark.parametrize("gamma", GAMMA)
@pytest.mark.parametrize("n", [1, 2, 5, MAX_N])
@pytest.mark.parametrize("x_scale", [1e-3, 1.0])
def test_backward_equals_manual_to_float64_rounding(n: int, x_scale: float, gamma: str) -> None:
    case = scaled_case(x_scale, B=2, S=3, n=n, D=7, dtype="float64", absent=GAMMA[gamma])
    serial, manual = (observed(implementation, case).gradients for implementation in (TILELANG_C, MANUAL))
    for name, gradient in serial.items():
        other = manual[name]
        if gradient is None:
            assert (name, other, gamma) == ("dgamma", None, "nogamma")
            continue
        assert other is not None
        # sums of at most M + K products of order one, each rounded: a hundred roundings of the largest element
        largest = float(other.abs().max())
        assert largest > 0
        assert float((gradient - other).abs().max()) <= 100 * torch.finfo(torch.float64).eps * largest, name


@pytest.mark.parametrize(("dtype", "stored"), [("float32", "float32"), ("bfloat16", "float32"), ("float64", "float64")])
def test_one_program_for_all_shapes(dtype: str, stored: str) -> None:
    """B, S, n, D and gamma compile nothing; bfloat16 has the program of float32."""
    observed(TILELANG_C, scaled_case(B=1, S=1, n=1, D=1, dtype=stored))
    before = Counts.compiled + Counts.loaded
    for shape in SHAPES.values():
        for absent in GAMMA.values():
            observed(TILELANG_C, scaled_case(B=2, dtype=dtype, absent=absent, **shape))
    assert Counts.compiled + Counts.loaded == before


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_indices_are_64_bits(stage: str) -> None:
    """Sizes are int64, and a 32-bit counter never counts further than a buffer of the program's own."""
    source = kernel_source(
        f"mhc.operators.mhc_pre.tilelang.kernels.cpu:{stage}", "c", {"dtype": "float32", "max_n": MAX_N}, PASSES
    )
    *_, body = source.partition(f"serial_{stage}_kernel(")
    *_, body = body.rpartition(f"serial_{stage}_kernel(")
    signature, _, loops = body.partition("{")
    assert set(re.findall(r"int64_t (\w+)", signature)) == {"N", "K", "M", "n", "D"}
    counters = re.findall(r"for \(int32_t (\w+) = 0; \1 < (.+?); \+\+\1\)", loops)
    assert len(counters) == loops.count("int32_t ")
    own = max(3, LANES, TOKENS, BLOCK)
    for name, end in counters:
        is_short = re.fullmatch(r"\(16 >> \w+\)|\(\(int32_t\)\(\(v_+\d*\) < .+\)", end) or (
            end.isdigit() and int(end) <= own
        )
        assert is_short, (name, end)
        assert not re.search(rf"\(\(?int32_t\)?{name} \* |\b{name} \* \w*[NKMD]\b", loops), name
