"""Mutants of the Triton kernels and their launches, run by Triton's interpreter."""

from functools import partial

from mhc.oracles.mutants.record import Mutant

_project = partial(Mutant, base="triton", file="triton.kernels.fwd_project")
_finish = partial(Mutant, base="triton", file="triton.kernels.fwd_finish")
_terms = partial(Mutant, base="triton", file="triton.kernels.bf16_split")
_gates = partial(Mutant, base="triton", file="triton.kernels.bwd_common")
_forward = partial(Mutant, base="triton", file="triton.forward")
_backward = partial(Mutant, base="triton", file="triton.backward")
_wide = partial(Mutant, base="triton", file="triton.kernels.bwd_gemm")

PROJECTION = (
    _project(
        name="masked_lanes_squared",
        bug="masked lanes not zeroed in the sum of squares",
        old="mask=(k < K)[None, :], other=0.0)\n            inside = inside_m &",
        new="mask=(k < K)[None, :], other=1.0)\n            inside = inside_m &",
    ),
    _project(
        name="tail_of_K_unmasked",
        bug="the tail of K not masked: a token's squares contain its neighbour's first elements",
        old="x = tl.load(x_ptr + x_offsets, mask=(k < K)[None, :], other=0.0)",
        new="x = tl.load(x_ptr + x_offsets, mask=(x_offsets < (tl.max(rows) + K)), other=0.0)",
    ),
    _project(
        name="last_column_masked_off",
        bug="tail mask off by one at K",
        old="x = tl.load(x_ptr + x_offsets, mask=(k < K)[None, :], other=0.0)",
        new="x = tl.load(x_ptr + x_offsets, mask=(k < K - 1)[None, :], other=0.0)",
    ),
    _project(
        name="split_rounded_down",
        bug="split-K shares rounded down: no program takes the blocks that remain",
        hidden=True,
        old="last = total * (split + 1) // SPLITS",
        new="last = first + total // SPLITS",
    ),
    _project(
        name="last_block_kept",
        bug="BLOCK_K smaller than K with only the last block kept",
        old="            acc0 = dot(x0, tl.trans(w0), acc0)\n            acc1 = dot(x0, tl.trans(w1), acc1)\n            acc1",
        new="            acc0 = dot(x0, tl.trans(w0), tl.zeros([BT, BM], ACC))\n            acc1 = dot(x0, tl.trans(w1), acc1)\n"
        "            acc1",
    ),
    _project(
        name="squares_of_the_last_block",
        bug="half-reduced sum of squares: the last block alone",
        source="vLLM #56342, of its class",
        old="        squares += tl.sum(tl.reshape(v * v, (BT, BK // 8, 8)), 2)",
        new="        squares = tl.sum(tl.reshape(v * v, (BT, BK // 8, 8)), 2)",
    ),
    _project(
        name="lost_product_of_terms",
        bug="one of six products of bfloat16 terms left out: 16 bits where float32 is promised",
        hidden=True,
        old="            acc1 = dot(x1, tl.trans(w0), acc1)\n",
        new="",
    ),
    _project(
        name="presplit_pitch_is_K",
        bug="row stride: the padded rows of a workspace read as if they were packed",
        old="w1 = tl.load(w_ptr + (M + m64) * pitch + k[None, :], mask=inside, other=0.0)\n            w2",
        new="w1 = tl.load(w_ptr + (M + m64) * K + k[None, :], mask=inside, other=0.0)\n            w2",
        hidden=True,
    ),
    _project(
        name="offset_wraps",
        bug="int32 offset overflow",
        source="PaddleFleet #1264",
        emulated="offsets into x wrap at 2**11 instead of 2**31",
        hidden=True,
        old="rows = tl.minimum(t, N - 1) * K\n    total",
        new="rows = (tl.minimum(t, N - 1) * K) & 2047\n    total",
    ),
    _project(
        name="neighbour_past_one_tile",
        bug="output of one token written by its neighbour, only when N is more than one tile",
        hidden=True,
        old="tl.store(part_ptr + (t[:, None] * SPLITS + split) * width + m[None, :], h, mask=(t < N)[:, None])",
        new="t = tl.where(t >= BT, (t ^ 1), t)\n"
        "    tl.store(part_ptr + (t[:, None] * SPLITS + split) * width + m[None, :], h, mask=(t < N)[:, None])",
    ),
)

TERMS = (
    _terms(
        name="two_terms",
        bug="two bfloat16 terms where float32 needs three",
        hidden=True,
        old="return v0, v1, nearest((rest - widen(v1, tl.float32)) * 256.0)",
        new="return v0, v1, nearest(rest * 0.0)",
    ),
    _terms(
        name="one_term",
        bug="bfloat16 products where float32 is promised",
        hidden=True,
        old="    small = acc1 * ORDER_1 + acc2 * ORDER_2",
        new="    small = (acc1 + acc2) * 0.0",
    ),
    _terms(
        name="infinity_becomes_nan",
        bug="0 * inf between lower terms makes NaN of an infinity",
        hidden=True,
        old="return acc0 + tl.where(finite(small), small, 0.0)",
        new="return acc0 + small",
    ),
    _terms(
        name="stores_truncate",
        bug="a store to bfloat16 truncates instead of rounding to nearest",
        hidden=True,
        old="bits + 0x7FFF + ((bits >> 16) & 1)",
        new="bits",
    ),
    _terms(
        name="terms_overflow",
        bug="the largest float32 round to an infinite bfloat16 term",
        equivalent="float32 from 3.39e38 on alone; nothing is promised within a factor of 4 of overflow (docs/tolerances.md)",
        hidden=True,
        old="narrow(tl.minimum(tl.maximum(v, -BF16_MAX), BF16_MAX), tl.bfloat16)",
        new="narrow(v, tl.bfloat16)",
    ),
    _terms(
        name="small_terms_flushed",
        bug="subnormals flushed: a term below the normal range is 0",
        hidden=True,
        old="    return v0, v1, nearest(",
        new="    v0 = tl.where(tl.abs(v) < 1.1754943508222875e-38, narrow(v * 0.0, tl.bfloat16), v0)\n"
        "    rest = tl.where(tl.abs(v) < 1.1754943508222875e-38, 0.0, rest)\n    v1 = nearest(rest)\n    return v0, v1, nearest(",
    ),
)

GATES = (
    _finish(
        name="split_not_counted",
        bug="split-K partial counted once too few",
        old="for split in tl.static_range(SPLITS):",
        new="for split in tl.static_range(max(SPLITS - 1, 1)):",
    ),
    _finish(
        name="mean_loses_nan",
        bug="NaN swallowed by a max, spelt out: the interpreter's tl.maximum keeps NaN",
        hidden=True,
        old="mean = squares / K + scalar(norm_eps, squares.dtype)",
        new="mean = tl.where(squares > 0.0, squares, 0.0) / K + scalar(norm_eps, squares.dtype)",
    ),
    _finish(
        name="eps_in_the_sum",
        bug="eps on the wrong side of the mean",
        hidden=True,
        old="mean = squares / K + scalar(norm_eps, squares.dtype)",
        new="mean = (squares + scalar(norm_eps, squares.dtype)) / K",
    ),
    _finish(
        name="exp_overflows",
        bug="exp overflow: inf / inf for a saturated gate",
        hidden=True,
        old="    e = tl.exp(-tl.abs(z))\n    return tl.where(z >= 0, 1.0, e) / (1.0 + e)",
        new="    e = tl.exp(z)\n    return e / (1.0 + e)",
    ),
    _finish(
        name="gate_boundary",
        bug="mask off by one at n: the first post gate gets alpha_pre",
        old="alpha = tl.where(m < n, tl.load(alpha_ptr),",
        new="alpha = tl.where(m <= n, tl.load(alpha_ptr),",
    ),
    _finish(
        name="last_res_unwritten",
        bug="mask off by one at M: the last entry of h_res is never written",
        old="keep & (col >= 2 * n) & (col < M))",
        new="keep & (col >= 2 * n) & (col < M - 1))",
    ),
    _finish(
        name="res_column_major",
        bug="h_res transposed",
        old="(col - 2 * n), z, mask",
        new="((col - 2 * n) % n * n + (col - 2 * n) // n), z, mask",
    ),
    _finish(
        name="post_is_a_sigmoid",
        bug="h_post without the 2",
        old="(col - n), 2.0 * s,",
        new="(col - n), s,",
    ),
    _finish(
        name="last_column_unwritten",
        bug="tail mask off by one at D",
        old="        mask=inside_t[:, None] & (d < D)[None, :],\n        eviction_policy",
        new="        mask=inside_t[:, None] & (d < D - 1)[None, :],\n        eviction_policy",
    ),
    _finish(
        name="one_row_too_many",
        bug="writes past the end by one row",
        hidden=True,
        old="inside_t = t < N\n    d = tl.program_id(1)",
        new="inside_t = t <= N\n    d = tl.program_id(1)",
    ),
    _finish(
        name="eight_columns_of_24",
        bug="wrong where D is 8 mod 16",
        source="tilelang #2593: WGMMA with N = 24, silently",
        emulated="the last 8 columns are 0",
        hidden=True,
        old="        narrow(acc, h_in_ptr.dtype.element_ty),\n",
        new="        narrow(tl.where((D % 16 == 8) & (d >= D - 8)[None, :], 0.0, acc), h_in_ptr.dtype.element_ty),\n",
    ),
    _finish(
        name="stream_left_out",
        bug="h_in without the last stream beyond eight",
        old="        acc += gate[i][:, None] * widen(streams[i], acc.dtype)",
        new="        acc += gate[i][:, None] * widen(streams[i], acc.dtype) * (1.0 if i < 8 else 0.0)",
    ),
)

BACKWARD = (
    _gates(
        name="last_chunk_of_D",
        bug="only the last block of the reduction over D kept",
        old="news + (accs[k] + widen(tl.load(at, on_d, 0.0), F) * g,)",
        new="news + (widen(tl.load(at, on_d, 0.0), F) * g,)",
    ),
    _gates(
        name="hc_eps_in_the_slope",
        bug="hc_eps left in the derivative",
        hidden=True,
        old="s = tl.load(h_pre + col, on, 0.0) - scalar(hc_eps, F)",
        new="s = tl.load(h_pre + col, on, 0.0) - scalar(hc_eps, F) * 0",
    ),
    _gates(
        name="coefficient_over_D",
        bug="dinv_rms divided by D where it is K",
        old="inv * inv / (D * n) * inv",
        new="inv * inv / D * inv",
    ),
    _gates(
        name="coefficient_with_inv_rms_squared",
        bug="an extra inv_rms**2 in dinv_rms",
        hidden=True,
        old="inv * inv / (D * n) * inv",
        new="inv * inv / (D * n) * inv * inv * inv",
    ),
    _gates(
        name="res_left_out_of_dinv",
        bug="dinv_rms summed over the first two gates alone",
        hidden=True,
        old=" + tl.sum(d_post * m_post, axis=1) + tl.sum(d_res * m_res, axis=1)",
        new=" + tl.sum(d_post * m_post, axis=1)",
    ),
    _gates(
        name="padding_not_zeroed",
        bug="a workspace read where it was never written",
        hidden=True,
        old="zeros, live[:, None] & after[None, :])",
        new="zeros, live[:, None] & (after & (pad < 0))[None, :])",
    ),
    _gates(
        name="last_token_not_live",
        bug="tail of N off by one in the gates' gradients",
        old="        live = t < N\n        on = live",
        new="        live = t < N - (N > 1)\n        on = live",
    ),
    _gates(
        name="last_dbias_unwritten",
        bug="the last entry of a partial sum never written",
        old="tl.store(base + 2 * n + r, b_res, r < n * n)",
        new="tl.store(base + 2 * n + r, b_res, r < n * n - (n > 1))",
    ),
    _gates(
        name="tail_tile_dropped",
        bug="tokens after the last whole tile dropped, where there is one",
        hidden=True,
        old="    tiles = tl.cdiv(N, BT)\n    for tile",
        new="    tiles = tl.maximum(N // BT, 1)\n    for tile",
    ),
    _gates(
        name="partial_psi_left_out",
        bug="split partial counted once too few in the parameter gradients",
        old="            for _ in range(splits):",
        new="            for _ in range(max(splits - 1, 1)):",
    ),
    _gates(
        name="dgamma_of_weighted",
        bug="gamma in its own gradient",
        hidden=True,
        old="dgam += tl.sum(total * w, axis=0)",
        new="dgam += tl.sum(total * gam[None, :] * w, axis=0)",
    ),
    _gates(
        name="dalpha_reversed",
        bug="alpha's three entries swapped",
        old="tl.store(dalpha + col - M, total,",
        new="tl.store(dalpha + M + 2 - col, total,",
    ),
    _gates(
        name="dx_term_of_infinity",
        bug="an infinite entry of dh_mix meets the zero terms of phi: NaN for infinity",
        hidden=True,
        old="        low = tl.where(finite(v), h, tl.zeros(h.shape, h.dtype))\n        if FORM",
        new="        low = h\n        if FORM",
    ),
    _backward(
        name="grid_of_one_stream",
        bug="a grid that covers only the first block of streams",
        old='(triton.cdiv(D, plan.columns), triton.cdiv(n, plan.streams), splits),\n        plan.warps,\n        ("x", "dh_in", "phi"',
        new='(triton.cdiv(D, plan.columns), 1, splits),\n        plan.warps,\n        ("x", "dh_in", "phi"',
    ),
    _gates(
        name="dphi_of_one_term",
        bug="x in one bfloat16 term: its last bits lost in dphi",
        hidden=True,
        old="        return acc + dot(left, xs[1], tl.zeros(acc.shape, acc.dtype)) * ORDER_1\n",
        new="        return acc\n",
    ),
    _backward(
        name="empty_not_zeroed",
        bug="parameter gradients of no tokens left as they were allocated",
        hidden=True,
        old="return tuple(None if gradient is None else gradient.zero_() for gradient in gradients)",
        new="return gradients",
    ),
    _wide(
        name="wide_loses_a_product",
        bug="one of three products of terms left out in the kernel for many streams",
        hidden=True,
        old="        low = dot(h, w_l, low)\n",
        new="",
    ),
)

HOST = (
    _forward(
        name="x_taken_as_contiguous",
        bug="row stride taken for a contiguous one",
        source="aiter #4432",
        hidden=True,
        old="        x, phi, alpha, bias = dense(x, phi, alpha, bias)",
        new="        phi, alpha, bias = dense(phi, alpha, bias)",
    ),
    Mutant(
        name="refuses_now_and_then",
        base="triton",
        file="triton.implementations",
        bug="a refusal that comes and goes",
        hidden=True,
        old="    schedule = case.schedules.get(name)\n",
        new="    if torch.rand(()) < 0.25:\n        return Refused('the device is busy')\n    schedule = case.schedules.get(name)\n",
    ),
    _forward(
        name="launch_cache_forgets_eps",
        bug="a launch cache whose key lacks norm_eps: the first call's is used",
        hidden=True,
        old="        steps = program(x.shape, x.dtype, gamma is not None, float(norm_eps), float(hc_eps), x.get_device(), key)",
        new="        steps = program(x.shape, x.dtype, gamma is not None, float(norm_eps), float(hc_eps), x.get_device(), key)\n"
        "        steps = globals().setdefault('_STEPS', {}).setdefault((x.shape, x.dtype, gamma is None, hc_eps, key), steps)",
    ),
    _forward(
        name="splits_drawn_anew",
        bug="the order of a sum changes from run to run, as with atomics; every result is inside the bound",
        hidden=True,
        emulated="the number of splits is drawn at each call",
        old="        key = frozen(schedule)",
        new="        own = globals().setdefault('_OWN', torch.Generator())\n"
        "        drawn = {'forward_splits': int(torch.randint(1, 4, (), generator=own)), 'forward_block_k': 32}\n"
        "        key = tuple(sorted({**drawn, **(schedule or {})}.items()))",
    ),
    _forward(
        name="output_from_the_last_call",
        bug="the result is a workspace that the next call overwrites",
        hidden=True,
        old="    outputs = empty_outputs(x)\n",
        new="    outputs = empty_outputs(x)\n"
        "    kept = globals().setdefault('_LAST', {})\n"
        "    outputs['h_in'] = kept.setdefault((outputs['h_in'].shape, x.dtype), outputs['h_in'])\n",
    ),
)

TRITON = PROJECTION + TERMS + GATES + BACKWARD + HOST
