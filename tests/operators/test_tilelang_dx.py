"""dx of TileLang's `ring` beside its products: factors in float16 terms, marks, and what is made again. Needs no GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import mhc_forward_pre, mhc_pre_backward_manual
from mhc.operators.mhc_pre.tilelang.backward_schedule import columns_of_left, rows_of_terms, steps_of_dx
from tests.support.cuda_on_cpu import Emulated
from tests.support.needs import needs_tilelang

ODD, SPREAD, THIN, SPARSE = 1, 2, 4, 8


def marks(rows: Tensor) -> Tensor:
    """Of each row what `fp16_split` says of it."""
    size = rows.double().abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    top = size.amax(1, keepdim=True)
    some = torch.where(size > 0, size, torch.inf).amin(1, keepdim=True)
    mark = SPREAD * (some < top * 2.0**-28) + THIN * (size.amin(1, keepdim=True) < top * 2.0**-20)
    mark = mark + SPARSE * (2 * (size >= top * 2.0**-10).sum(1, keepdim=True) <= rows.shape[1])
    fits = (top >= 2.0**-60) & (top < 2.0**58)
    return torch.where(fits, mark, torch.where(top == 0, 0, ODD))[:, 0]


def in_doubt(a: Tensor, b: Tensor) -> Tensor:
    """For each pair of rows."""
    a, b = a[:, None], b[None, :]
    lost = ((a & SPREAD > 0) & (b & THIN > 0)) | ((b & SPREAD > 0) & (a & THIN > 0))
    return ((a | b) & ODD > 0) | (lost & ((a | b) & SPARSE > 0))


class Stages:
    """A problem of N tokens, and what the stages make of it."""

    def __init__(self, N: int, n: int, D: int, *, gamma: bool) -> None:
        torch.manual_seed(n)
        M, K = n * n + 2 * n, n * D
        self.N, self.n, self.D, self.M, self.gamma = N, n, D, M, gamma
        x, phi, alpha, bias = torch.randn(1, N, n, D), torch.randn(M, K) * K**-0.5, torch.randn(3), torch.randn(M)
        scale = 1 + 0.1 * torch.randn(n, D) if gamma else None
        h_in, h_post, h_res, inv_rms, h_mix, h_pre = mhc_forward_pre(x, phi, alpha, bias, scale, outflag=True)
        upstream = [torch.randn_like(one) for one in (h_in, h_post, h_res)]
        self.given: list[Any] = [x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, *upstream, scale]

    def run(self, folder: Path) -> dict[str, Tensor]:
        """Everything by the program's names; dx is -1 where nothing was made again."""
        N, n, D, M = self.N, self.n, self.D, self.M
        DP, vector, (depth, steps, _) = -(-D // 8) * 8, 4 if D % 8 == 0 else 1, steps_of_dx(n)
        x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res, gamma = self.given
        C, CX, programs = columns_of_left(n, 3), 2 * depth * steps, 2
        tensors = {
            **{"x": x, "phi": phi, "phi_flat": phi, "alpha": alpha, "bias": bias, "inv_rms": inv_rms, "h_mix": h_mix},
            **{"h_pre": h_pre, "h_post": h_post, "dh_in": dh_in, "dh_post": dh_post, "dh_res": dh_res},
            **{"gamma": phi if gamma is None else gamma, "gamma_flat": phi if gamma is None else gamma},
            **{"x_flat": x, "dh_in_flat": dh_in, "coef": torch.empty(N), "sums": torch.empty(programs, M + 3)},
            **{"left": torch.empty(N, C, dtype=torch.bfloat16), "left_dx": torch.empty(N, CX, dtype=torch.float16)},
            **{"left_back": torch.empty(N), "left_marks": torch.empty(N, dtype=torch.int32)},
            **{"right": torch.empty(CX, n, DP, dtype=torch.float16), "right_back": torch.empty(n, DP)},
            **{"right_marks": torch.empty(n, DP, dtype=torch.int32), "dx": torch.full((N, n, D), -1.0)},
            **{"dphi": phi, "dgamma": phi, "dalpha": alpha, "dbias": bias},
        }
        tensors["right_units"] = tensors["right"]
        constants = {"n": n, "vector": vector, "columns": C, "columns_dx": CX}
        passes = {"tl.disable_safe_memory_legalize": True} if vector > 1 else {}
        program = Emulated(folder, str).program
        made = program("tests.support.ring_stages:stages", "cuda -arch=sm_90a", constants, pass_configs=passes)
        scalars = {"N": N, "D": D, "Dv": D // vector, "DPv": DP // 8, "programs": programs, "hc_eps": 1e-6, "stream": 0}
        scalars["has_gamma"] = int(gamma is not None)
        tensors = {name: one.detach().contiguous() for name, one in tensors.items()}
        made(*(scalars[name] if name in scalars else tensors[name].data_ptr() for name, _ in made.arguments))
        return tensors

    def dh_mix(self, got: dict[str, Tensor]) -> Tensor:
        """As three exact terms have it."""
        MP, left = rows_of_terms(self.n), got["left"].double()
        v0, v1, v2 = (left[:, q * MP : q * MP + self.M] for q in range(3))
        return torch.where(v0.isfinite(), v0 + v1 / 2**8 + v2 / 2**16, v0)

    def weights(self) -> Tensor:
        """phi * gamma, rounded once, [n * D, M]."""
        phi, gamma = self.given[1], self.given[11]
        weights: Tensor = phi if gamma is None else phi * gamma.reshape(1, -1)
        return weights.T


@needs_tilelang
@pytest.mark.slow
@pytest.mark.parametrize(("n", "D", "gamma"), [(5, 24, True), (3, 17, False), (9, 40, True)])
def test_factors_are_exact_to_22_bits_and_normal_numbers_are_not_made_again(
    n: int, D: int, gamma: bool, tmp_path: Path
) -> None:
    one = Stages(37, n, D, gamma=gamma)
    got = one.run(tmp_path)
    MQ = got["left_dx"].shape[1] // 2
    factors = {
        "left": (got["left_dx"].double(), got["left_back"].double(), one.dh_mix(got), got["left_marks"]),
        "right": (
            got["right"][:, :, :D].reshape(2 * MQ, n * D).T.double(),
            got["right_back"][:, :D].reshape(-1).double(),
            one.weights().double(),
            got["right_marks"][:, :D].reshape(-1),
        ),
    }
    for name, (terms, back, wanted, mark) in factors.items():
        value = (terms[:, :MQ] + terms[:, MQ:] / 2**11) * back[:, None]
        size = wanted.abs().amax(1, keepdim=True)
        bound = torch.maximum(2.0**-22 * wanted.abs(), 2.0**-50 * size)
        assert ((value[:, : one.M] - wanted).abs() <= bound).all(), name
        assert (value[:, one.M :] == 0).all(), name
        assert (mark == marks(wanted)).all(), name
    assert (got["dx"] == -1).all()


@needs_tilelang
@pytest.mark.slow
@pytest.mark.parametrize(("n", "D", "gamma"), [(5, 24, False), (3, 17, True)])
def test_what_is_in_doubt_is_made_again_in_float32(n: int, D: int, gamma: bool, tmp_path: Path) -> None:
    one = Stages(300, n, D, gamma=gamma)
    phi, dh_in, dh_post, dh_res = one.given[1], *one.given[8:11]
    for t, scale in ((3, 1e-25), (4, 1e18)):
        for upstream in (dh_in, dh_post, dh_res):
            upstream[0, t] *= scale
    dh_in[0, 5], dh_post[0, 5], dh_res[0, 5] = 0, 0, 0
    # SPREAD and SPARSE: one element is large, one is below 2**-28 of it, the others are 0
    dh_in[0, 6], dh_post[0, 6], dh_res[0, 6] = 0, 0, 0
    dh_res[0, 6, 0, 0], dh_res[0, 6, 1, 1] = 1.0, 1e-10
    phi[:, 7] *= 1e19
    phi[1:, 8] = 0  # THIN and SPARSE
    phi[:, 9] = 0
    dh_res[0, 299, 0, 0] = torch.nan
    got = one.run(tmp_path)
    left, right = marks(one.dh_mix(got)), marks(one.weights())
    assert (got["left_marks"] == left).all()
    assert (got["right_marks"][:, :D].reshape(-1) == right).all()
    doubt = in_doubt(left, right)
    assert {ODD, 0} <= set(left.tolist())
    assert {ODD, 0, THIN | SPARSE} <= set(right.tolist())
    assert left[6] & SPREAD
    assert doubt[6, 8]
    assert not doubt[0, 8]
    dx = got["dx"].reshape(300, n * D)
    assert (dx[~doubt] == -1).all()
    exact: list[Any] = [None if given is None else given.double() for given in one.given]
    wanted = mhc_pre_backward_manual(*exact)[0]
    wanted = wanted.reshape(300, n * D)
    assert (dx[299, doubt[299]].isnan()).all()
    doubt[299] = False
    size = one.dh_mix(got).abs() @ one.weights().double().abs().T + wanted.abs()
    assert ((dx.double() - wanted).abs() <= 64 * 2.0**-24 * size)[doubt].all()
