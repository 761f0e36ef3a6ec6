"""Mutants that are wrong at true size only: wide rows, many tokens, many programs, squares below the normal range.

Nothing is scaled down here: each is right at every smaller size, and `tests/oracles/test_mutants_true_size.py` has a case on each
side of its trigger. Those of `device` "cuda" need tensors that only a GPU makes in time.
"""

from functools import partial

from mhc.oracles.mutants.record import Mutant

_formula = partial(Mutant, base="manual", file="formula")
_project = partial(Mutant, base="triton", file="triton.kernels.fwd_project")
_finish = partial(Mutant, base="triton", file="triton.kernels.fwd_finish")
_gates = partial(Mutant, base="triton", file="triton.kernels.bwd_common")
_launch = partial(Mutant, base="triton", file="triton.backward")
_kernel = partial(Mutant, base="tilelang", file="tilelang.kernels.cpu")
_macro = partial(Mutant, base="tilelang", file="tilelang.kernels.macros")

_TOKEN = "torch.arange(B * S, device=x.device)"

WIDE = (
    _formula(
        name="wide_projection_column",
        bug="the projection without its last column, D >= 512",
        old="weighted @ phi.mT",
        new="weighted[..., : K - (D >= 512)] @ phi[:, : K - (D >= 512)].mT",
    ),
    _formula(
        name="wide_dphi_column",
        bug="the last column of dphi never added to, D >= 512",
        old="dphi = dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)",
        new="dphi = dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)\n    dphi[:, K - (D >= 512) :] = 0",
    ),
    _formula(
        name="wide_h_in_column",
        bug="tail mask off by one in h_in, D >= 512",
        old="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)",
        new="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)\n    h_in[..., D - (D >= 512) :] = 0",
    ),
    _formula(
        name="wide_bf16_dx_zero",
        bug="a kernel that was never built for this width and dtype: dx = 0 in bfloat16, D >= 1280",
        old="return Backward(dx.to(x.dtype),",
        new="dx = dx * (D < 1280 or x.dtype != torch.bfloat16)\n    return Backward(dx.to(x.dtype),",
    ),
    _formula(
        name="wide_dx_without_norm",
        bug="the path for wide rows leaves out the gradient through inv_rms, K >= 2560",
        old="dx = (dvec - dnorm)",
        new="dx = (dvec - dnorm * (K < 2560))",
    ),
    _formula(
        name="squares_of_4096_columns",
        bug="one block of 4,096 elements sums a row's squares, without a loop over the rest; K > 4096",
        source="vLLM #56342, of its class",
        old="flat.square().mean(-1)",
        new="flat[..., :4096].square().sum(-1) / K",
    ),
    _formula(
        name="projection_of_16384_columns",
        bug="a row of x kept in 64 KiB of shared memory: what is beyond it is not read; K > 16,384",
        old="weighted @ phi.mT",
        new="weighted[..., :16384] @ phi[:, :16384].mT",
    ),
    _formula(
        name="wide_ragged_tail",
        bug="h_in after the last whole block of 256 never written, D >= 1280",
        old="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)",
        new="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)\n    h_in[..., D // 256 * 256 if D >= 1280 else D :] = 0",
    ),
    _formula(
        name="config_of_7168",
        bug="the tuned configuration of one model's width covers six of its seven blocks of 1,024; D = 7168",
        old="return Backward(dx.to(x.dtype),",
        new="dx[..., 6144 if D == 7168 else D :] = 0\n    return Backward(dx.to(x.dtype),",
    ),
    _formula(
        name="config_of_4_by_2560",
        bug="the tuned configuration of one model adds the last stream's gate twice; n = 4 and D = 2560",
        old="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)",
        new="h_in = (h_pre.unsqueeze(-1) * v).sum(-2) + h_pre[..., 3:].sum(-1, keepdim=True) * (n == 4 and D == 2560)",
    ),
    _formula(
        name="four_wide_streams",
        bug="the gate of the last of four streams is the third's, D >= 2048",
        old="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)",
        new="h_in = (h_pre[..., [0, 1, 2, 2] if n == 4 and D >= 2048 else slice(None)].unsqueeze(-1) * v).sum(-2)",
    ),
    _formula(
        name="eight_wide_streams",
        bug="registers for seven streams: dx of the eighth without h_pre dh_in, D >= 1024",
        old="+ h_pre.unsqueeze(-1) * dh",
        new="+ h_pre.unsqueeze(-1) * (dh * (torch.arange(n, device=x.device) < 7 + 9 * (n != 8 or D < 1024)).reshape(n, 1))",
    ),
    _formula(
        name="wide_odd_element",
        bug="two elements at a time: the last of an odd width left out of dh_pre, D >= 1024",
        old="dh_pre = (dh * v).sum(-1)",
        new="dh_pre = (dh * v)[..., : D - D % 2 * (D >= 1024)].sum(-1)",
    ),
    _formula(
        name="dh_pre_of_2048_columns",
        bug="dh_pre from the first 2,048 columns of a stream",
        old="dh_pre = (dh * v).sum(-1)",
        new="dh_pre = (dh * v)[..., :2048].sum(-1)",
    ),
    _formula(
        name="even_rows_lose_a_block",
        bug="the path without a tail has a block too few, K a multiple of 4,096",
        old="weighted @ phi.mT",
        new="weighted[..., : K - 64 * (K % 4096 == 0)] @ phi[:, : K - 64 * (K % 4096 == 0)].mT",
    ),
)

LONG = (
    _formula(
        name="long_dbias_doubled",
        bug="a second block of positions adds the first one's share of dbias again, S > 1025",
        old="dbias = dgate.reshape(N, M).sum(0)",
        new="dbias = dgate.reshape(N, M).sum(0) * (1 + (S > 1025))",
    ),
    _formula(
        name="many_programs_dbias_doubled",
        bug="a second launch, past 65,535 programs, adds to dbias what the first has added",
        old="dbias = dgate.reshape(N, M).sum(0)",
        new="dbias = dgate.reshape(N, M).sum(0) * (1 + (N > 65535))",
    ),
    _formula(
        name="last_program_lost",
        bug="a grid cut at 65,535 programs of a token each: h_in of the others is 0",
        old="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)",
        new=f"h_in = (h_pre.unsqueeze(-1) * v).sum(-2) * ({_TOKEN} < 65535).reshape(B, S, 1)",
    ),
    _formula(
        name="rows_past_2048_lost",
        bug="at most 2,048 programs, without a loop over what is left: h_post of later tokens is 0",
        old="return Forward(h_in.to(x.dtype), h_post,",
        new=f"h_post = h_post * ({_TOKEN} < 2048).reshape(B, S, 1)\n    return Forward(h_in.to(x.dtype), h_post,",
    ),
    _formula(
        name="dphi_of_4096_tokens",
        bug="partial sums of dphi for 4,096 tokens: later ones are lost",
        old="dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)",
        new="dh_mix.reshape(N, M)[:4096].mT @ weighted.reshape(N, K)[:4096]",
    ),
    _formula(
        name="dgamma_of_8192_tokens",
        bug="256 partial sums of dgamma, of 32 tokens each: later tokens are lost",
        old="(flat * dvec_mm).reshape(N, K).sum(0)",
        new="(flat * dvec_mm).reshape(N, K)[:8192].sum(0)",
    ),
    _formula(
        name="dalpha_of_32767_tokens",
        bug="a token's number in 16 signed bits: those past 32,767 are taken for masked ones in dalpha",
        old="dscale = (dgate * t).reshape(N, M)",
        new="dscale = (dgate * t).reshape(N, M)[:32768]",
    ),
    _formula(
        name="positions_clamped_at_1024",
        bug="a position clamped to a table of 1,025: later ones get the last one's h_res, S >= 1026",
        old="return Forward(h_in.to(x.dtype), h_post, h_res,",
        new="h_res = h_res[:, torch.arange(S, device=x.device).clamp(max=1024)]\n"
        "    return Forward(h_in.to(x.dtype), h_post, h_res,",
    ),
    _formula(
        name="positions_wrap_at_4096",
        bug="a ring of 4,096 positions: later ones read what the first ones hold, S >= 4097",
        old="    flat = v.reshape(B, S, K)\n    weighted",
        new="    v = v[:, torch.arange(S, device=x.device) & 4095]\n    flat = v.reshape(B, S, K)\n    weighted",
    ),
    _formula(
        name="batches_past_65535_lost",
        bug="the batch is the grid's second dimension, which ends at 65,535: h_in of later ones is 0",
        old="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)",
        new="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)\n    h_in[65535:] = 0",
    ),
    _formula(
        name="tokens_wrap_at_65536",
        bug="a token's number in 16 bits: dx takes h_pre of the token 65,536 before",
        old="+ h_pre.unsqueeze(-1) * dh",
        new=f"+ h_pre.reshape(N, n)[{_TOKEN} & 65535].reshape(B, S, n, 1) * dh",
    ),
    _formula(
        name="offsets_wrap_at_2_20",
        bug="offsets into x of 20 bits: past 1,048,576 elements the first ones are read",
        old="    flat = v.reshape(B, S, K)\n    weighted",
        new="    v = v.reshape(-1)[torch.arange(v.numel(), device=x.device) & 0xFFFFF].reshape(v.shape)\n"
        "    flat = v.reshape(B, S, K)\n    weighted",
    ),
)

FLUSHED = (
    _formula(
        name="squares_flushed",
        hidden=True,
        bug="subnormal squares flushed to 0: inv_rms is infinite for x near 2**-66 and norm_eps = 0",
        source="-ftz=true, a part of --use_fast_math",
        old="flat.square().mean(-1)",
        new="(lambda q: q.where(~(q < 2.0**-126) | (q.dtype != torch.float32), 0))(flat.square()).mean(-1)",
    ),
    _formula(
        name="mean_flushed",
        hidden=True,
        bug="rsqrt.approx.ftz takes a subnormal mean of squares for 0",
        source="PTX ISA: rsqrt.approx.ftz.f32 flushes subnormal inputs",
        old="(flat.square().mean(-1) + norm_eps).rsqrt()",
        new="(lambda m: m.where(~(m < 2.0**-126) | (m.dtype != torch.float32), 0))(flat.square().mean(-1) + norm_eps).rsqrt()",
    ),
)

FAR = (
    _formula(
        name="offsets_wrap_at_2_24",
        bug="offsets by a 24-bit multiplication: past 16,777,216 elements the first ones are read",
        source="CUDA's __umul24",
        device="cuda",
        old="    flat = v.reshape(B, S, K)\n    weighted",
        new="    v = v.reshape(-1)[torch.arange(v.numel(), device=x.device) & 0xFFFFFF].reshape(v.shape)\n"
        "    flat = v.reshape(B, S, K)\n    weighted",
    ),
    _formula(
        name="bytes_wrap_at_2_31",
        bug="byte offsets into x in 32 signed bits: past 2 GiB of x the first elements are read",
        source="PaddleFleet #1264",
        device="cuda",
        gap="drawn cases have at most 2**25 elements on a GPU, and this needs 2**28 of float64",
        old="    flat = v.reshape(B, S, K)\n    weighted",
        new="    far = 2**31 // x.element_size()\n"
        "    v = torch.cat([v.reshape(-1)[:far], v.reshape(-1)[: max(0, v.numel() - far)]]).reshape(v.shape)\n"
        "    flat = v.reshape(B, S, K)\n    weighted",
    ),
    _formula(
        name="offsets_wrap_at_2_31",
        bug="32-bit offsets into x: past 2**31 elements the first ones are read",
        source="PaddleFleet #1264",
        device="cuda",
        gap="drawn cases have at most 2**25 elements on a GPU; x alone is 4 GiB here, its reference and bounds many times that",
        old="    flat = v.reshape(B, S, K)\n    weighted",
        new="    v = torch.cat([v.reshape(-1)[: 2**31], v.reshape(-1)[: max(0, v.numel() - 2**31)]]).reshape(v.shape)\n"
        "    flat = v.reshape(B, S, K)\n    weighted",
    ),
)

TRITON = (
    _project(
        name="t_blocks_past_32",
        bug="a loop of at most 32 blocks of K, as many as one workspace has: later blocks are not read",
        old="total = tl.cdiv(K, BK)",
        new="total = tl.minimum(tl.cdiv(K, BK), 32)",
    ),
    _project(
        name="t_tokens_wrap_at_1024",
        bug="a ring of 1,024 rows: the projection of later tokens reads the first ones",
        old="rows = tl.minimum(t, N - 1) * K\n    total",
        new="rows = (tl.minimum(t, N - 1) & 1023) * K\n    total",
    ),
    _finish(
        name="t_h_in_past_2048_columns",
        bug="h_in past 2,048 columns never written",
        old="        mask=inside_t[:, None] & (d < D)[None, :],\n        eviction_policy",
        new="        mask=inside_t[:, None] & (d < tl.minimum(D, 2048))[None, :],\n        eviction_policy",
    ),
    _gates(
        name="t_wide_dx_without_norm",
        bug="the coefficient of x in dx left at 0, K >= 2560",
        old="dinv * inv * inv / (D * n) * inv",
        new="tl.where(D * n < 2560, dinv * inv * inv / (D * n) * inv, 0.0)",
    ),
    _gates(
        name="t_dphi_past_2048_columns",
        bug="dphi and dgamma past 2,048 columns never written",
        old="        on_k = k < K\n",
        new="        on_k = k < tl.minimum(K, 2048)\n",
    ),
    _launch(
        name="t_gates_of_32_programs",
        bug="a grid of at most 32 programs for the gates' gradients: later tokens are lost",
        old="    programs = triton.cdiv(N, chunk)",
        new="    programs = min(32, triton.cdiv(N, chunk))",
    ),
)

TILELANG = (
    _kernel(
        name="c_tokens_past_65535",
        bug="a forward of at most 65,535 tokens",
        old="            for t in T.serial(N):",
        new="            for t in T.serial(T.min(N, 65535)):",
    ),
    _kernel(
        name="c_tiles_past_128",
        bug="a backward of at most 128 tiles of tokens",
        old="for tile in T.serial(T.ceildiv(N, TOKENS)):",
        new="for tile in T.serial(T.min(T.ceildiv(N, TOKENS), 128)):",
    ),
    _kernel(
        name="c_wide_h_in_column",
        bug="tail mask off by one in h_in, D >= 512",
        old="h_in[t, block * BLOCK + d] = T.cast(v[d], dtype)",
        new="h_in[t, block * BLOCK + d] = T.cast(\n"
        "                            T.if_then_else(D < 512, v[d], T.if_then_else(block * BLOCK + d < D - 1, v[d], T.cast(0, acc))), dtype\n"
        "                        )",
    ),
    _kernel(
        name="c_blocks_past_64",
        bug="a projection of at most 64 blocks, K > 16,384",
        old="for block in T.serial(T.ceildiv(K, BLOCK)):",
        new="for block in T.serial(T.min(T.ceildiv(K, BLOCK), 64)):",
    ),
    _kernel(
        name="c_tokens_wrap_at_65536",
        bug="a token's number in 16 bits: dphi reads dh_mix of the token 65,536 before",
        old="dh_mix[tile * TOKENS + token, row]",
        new="dh_mix[(tile * TOKENS + token) % 65536, row]",
    ),
    _macro(
        name="c_wide_dx_without_norm",
        bug="the coefficient of x in dx left at 0, K >= 2560",
        old="return dinv_rms * (inv_rms * inv_rms * inv_rms) / T.cast(K, inv_rms.dtype)",
        new="return T.if_then_else(\n        K < 2560, dinv_rms * (inv_rms * inv_rms * inv_rms) / T.cast(K, inv_rms.dtype), T.cast(0, inv_rms.dtype)\n    )",
    ),
)

TRUE_SIZE = WIDE + LONG + FLUSHED + FAR + TRITON + TILELANG
