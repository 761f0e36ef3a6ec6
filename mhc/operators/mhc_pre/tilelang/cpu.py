"""mHC Forward Pre and its backward on the CPU: TileLang's `c` target, compiled once for each dtype of x.

bfloat16 x is stored as float32 here, since the target has no bfloat16, and h_in and dx are rounded once on the way out.
Strided tensors are copied first, so a view gives bit for bit what its copy gives. Without gamma the programs get ones.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mhc.operators.mhc_pre.shapes import MAX_N
from mhc.operators.mhc_pre.table import PRE, sizes
from mhc.operators.mhc_pre.tensors import empty_outputs
from mhc.operators.mhc_pre.tilelang.compile.cache import Program, program

PASSES = {"tl.disable_safe_memory_legalize": True, "tl.disable_out_of_bound_warning": True}  # every loop ends at its tensor
FLAGS = ("-O3",)  # the target's default is -O0


def stored(tensor: Tensor) -> Tensor:
    """Return a tensor dense, and in float32 where it is bfloat16."""
    return tensor.to(torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype).contiguous()


def weight(gamma: Tensor | None, phi: Tensor) -> Tensor:
    """Return gamma, or ones."""
    return phi.new_ones(phi.shape[1]) if gamma is None else gamma.contiguous()


def call(run: Program, values: Mapping[str, Tensor | float]) -> None:
    """Call a program with arguments by name; a tensor stands for its address."""
    given = (values[name] for name, _ in run.arguments)
    run(*(value.data_ptr() if isinstance(value, Tensor) else value for value in given))


def serial_program(stage: str, dtype: torch.dtype) -> Program:
    """Return the program of "forward" or "backward" for a dtype of x, not bfloat16."""
    constants: dict[str, str | int] = {"dtype": str(dtype).removeprefix("torch."), "max_n": MAX_N}
    return program(f"mhc.operators.mhc_pre.tilelang.kernels.cpu:{stage}", "c", constants, pass_configs=PASSES, flags=FLAGS)


def forward(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor, ...]:
    """Return (h_in, h_post, h_res, inv_rms, h_mix, h_pre) of mHC Forward Pre; the formula is in `mhc_pre.formula`.

    x [B, S, n, D] bfloat16, float16, float32 or float64, any strides; phi [M, K], alpha [3], bias [M], gamma [n, D] or
    None, float32 (float64 with float64 x). h_in [B, S, D] has x's dtype; h_post [B, S, n], h_res [B, S, n, n],
    inv_rms [B, S], h_mix [B, S, M] and h_pre [B, S, n] have phi's. Accumulates in phi's dtype. Takes checked arguments.
    """
    v = stored(x)
    outputs = empty_outputs(v)
    if x.numel() > 0:
        given = {"phi": phi, "alpha": alpha, "bias": bias}
        tensors = {"x": v, "gamma": weight(gamma, phi), **{name: one.contiguous() for name, one in given.items()}, **outputs}
        call(serial_program("forward", v.dtype), {**tensors, **sizes(*x.shape), "norm_eps": norm_eps, "hc_eps": hc_eps})
    outputs["h_in"] = outputs["h_in"].to(x.dtype)
    return tuple(outputs.values())


def backward(*given: Tensor | None, norm_eps: float, hc_eps: float) -> tuple[Tensor | None, ...]:
    """Return (dx, dphi, dalpha, dbias, dgamma) of mHC Forward Pre; the formula is in `mhc_pre.formula`.

    given: the arguments in the operator's order: x, phi, alpha, bias as for the forward, its saved inv_rms [B, S],
    h_mix [B, S, M], h_pre and h_post [B, S, n], the upstream gradients dh_in [B, S, D] in x's dtype, dh_post [B, S, n],
    dh_res [B, S, n, n], and gamma or None. dx [B, S, n, D] has x's dtype, the others phi's; dgamma [n, D] is None where
    gamma is. bias and norm_eps do not enter. Takes checked arguments.
    """
    del norm_eps
    arguments = dict(zip(PRE.backward_arguments, given, strict=True))
    tensors = {name: stored(one) for name, one in arguments.items() if one is not None}
    x, phi, gamma = given[0], tensors["phi"], arguments["gamma"]
    assert x is not None, "checked before"
    B, S, n, D = x.shape
    N, K, M = B * S, n * D, n * n + 2 * n
    empty = phi.new_empty if N > 0 else phi.new_zeros
    dx, dphi, dalpha, dbias, dgamma = torch.empty_like(tensors["x"]), empty(M, K), empty(3), empty(M), empty(n, D)
    if N > 0:
        gradients = {"dx": dx, "dphi": dphi, "dalpha": dalpha, "dbias": dbias, "dgamma": dgamma}
        scratch = {"dh_mix": empty(N, M), "coefficient": empty(N)}
        tensors = {**tensors, "gamma": weight(gamma, phi), **gradients, **scratch}
        call(serial_program("backward", tensors["x"].dtype), {**tensors, **sizes(B, S, n, D), "hc_eps": hc_eps})
    return dx.to(x.dtype), dphi, dalpha, dbias, None if gamma is None else dgamma
