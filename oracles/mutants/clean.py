"""Clean variants: another order of sums, other tiles, other products. All are right, and none may be flagged."""

from functools import partial

from mhc.oracles.mutants.record import Mutant

_formula = partial(Mutant, base="manual", file="formula", clean=True)
_project = partial(Mutant, base="triton", file="triton.kernels.fwd_project", clean=True)
_defaults = partial(Mutant, base="triton", file="triton.heuristics", clean=True)
_gates = partial(Mutant, base="triton", file="triton.kernels.bwd_common", clean=True)
_kernel = partial(Mutant, base="tilelang", file="tilelang.kernels.cpu", clean=True)
_host = partial(Mutant, base="tilelang", file="tilelang.cpu", clean=True)

CLEAN: tuple[Mutant, ...] = (
    _formula(
        name="clean_float64_projection",
        bug="the projection accumulated in float64",
        old="weighted @ phi.mT",
        new="(weighted.double() @ phi.mT.double()).to(phi.dtype)",
    ),
    _formula(
        name="clean_float64_dphi",
        bug="dphi accumulated in float64",
        old="dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)",
        new="(dh_mix.reshape(N, M).mT.double() @ weighted.reshape(N, K).double()).to(acc)",
    ),
    _formula(
        name="clean_gamma_folded",
        bug="gamma folded into phi before the product",
        old="weighted @ phi.mT",
        new="(flat @ phi.mT if gamma is None else flat @ (phi * gamma.reshape(K)).mT)",
    ),
    _formula(
        name="clean_blocked_squares",
        bug="the squares summed in blocks of 16, the blocks one after the other",
        old="flat.square().mean(-1)",
        new="(sum((part.square().sum(-1) for part in flat.split(16, -1)), flat.new_zeros(B, S)) / K)",
    ),
    _formula(
        name="clean_reversed_projection",
        bug="the projection summed from the other end",
        old="weighted @ phi.mT",
        new="weighted.flip(-1) @ phi.flip(-1).mT",
    ),
    _formula(
        name="clean_fused_h_in",
        bug="h_in by fused multiply-adds, stream by stream",
        old="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)",
        new="h_in = v.new_zeros(B, S, D)\n    for i in range(n):\n"
        "        h_in = torch.addcmul(h_in, h_pre[..., i : i + 1], v[..., i, :])\n    del i",
    ),
    _formula(
        name="clean_dx_in_another_order",
        bug="dx summed in another order",
        old="dx = (dvec - dnorm).reshape(B, S, n, D) + h_pre.unsqueeze(-1) * dh",
        new="dx = dvec.reshape(B, S, n, D) + (h_pre.unsqueeze(-1) * dh - dnorm.reshape(B, S, n, D))",
    ),
    _formula(
        name="clean_dgamma_from_psi",
        bug="dgamma as a sum of phi and dh_mix^T x, not of x and dh_mix phi",
        old="(flat * dvec_mm).reshape(N, K).sum(0)",
        new="((dh_mix.reshape(N, M).mT @ flat.reshape(N, K)) * (phi if N else 1)).sum(0)",
    ),
    _formula(
        name="clean_gamma_out_of_dphi",
        bug="gamma taken out of the sum over tokens",
        old="dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)",
        new="(dh_mix.reshape(N, M).mT @ flat.reshape(N, K)) * (1 if gamma is None or N == 0 else gamma.reshape(K))",
    ),
    _project(
        name="clean_float32_products",
        bug="float32 products in place of bfloat16 terms",
        old="        if DOUBLE:\n            acc0",
        new="        if not WHOLE and not PRESPLIT:\n            acc0 = dot(v, tl.trans(w), acc0)\n        elif DOUBLE:\n            acc0",
    ),
    _project(
        name="clean_blocks_backwards",
        bug="split-K shares taken in reverse",
        old="first = total * split // SPLITS\n    last = total * (split + 1) // SPLITS",
        new="split_of = SPLITS - 1 - split\n    first = total * split_of // SPLITS\n    last = total * (split_of + 1) // SPLITS",
    ),
    _defaults(
        name="clean_small_blocks",
        bug="blocks of 16 tokens, 32 elements of K, presplit, four splits",
        old="            block_tokens=power_of_2(N, 16, 64),\n            block_m=power_of_2(M + 1, 16, 64 if small else 512),\n"
        "            block_k=power_of_2(K, 16, 64) if small else 64,\n            splits=1 if K <= 128 else 2,\n            presplit=False,",
        new="            block_tokens=16,\n            block_m=power_of_2(M + 1, 16, 64 if small else 512),\n"
        "            block_k=32,\n            splits=4,\n            presplit=dtype not in WHOLE,",
    ),
    _defaults(
        name="clean_small_tiles_backward",
        bug="tiles of 16 tokens, five splits in the backward",
        old="            tokens=power_of_2(N, 16, 32 if double else 64),",
        new="            tokens=16,",
    ),
    _gates(
        name="clean_coefficient_in_another_order",
        bug="the coefficient of x multiplied in another order",
        old="dinv * inv * inv / (D * n) * inv",
        new="dinv / (D * n) * (inv * inv * inv)",
    ),
    _kernel(
        name="clean_16_lanes",
        bug="sums in 16 lanes in place of 32",
        old="LANES = 32",
        new="LANES = 16",
    ),
    _kernel(
        name="clean_short_blocks",
        bug="blocks of 64 terms in place of 256",
        old="LINES = 8",
        new="LINES = 2",
    ),
    _kernel(
        name="clean_tiles_of_5_tokens",
        bug="sums over tokens in tiles of 5",
        old="TOKENS = 32",
        new="TOKENS = 5",
    ),
    _host(
        name="clean_fused",
        bug="compiled with fused multiply-adds for this machine",
        old='FLAGS = ("-O3",)',
        new='FLAGS = ("-O3", "-march=native", "-ffp-contract=fast")',
    ),
    _host(
        name="clean_unoptimised",
        bug="compiled without optimisation",
        old='FLAGS = ("-O3",)',
        new='FLAGS = ("-O0",)',
    ),
)
