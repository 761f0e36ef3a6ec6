"""Mutants of the serial TileLang kernels, their macros and their launches, compiled for the `c` target."""

from functools import partial

from mhc.oracles.mutants.record import Mutant

_kernel = partial(Mutant, base="tilelang", file="tilelang.kernels.cpu")
_macro = partial(Mutant, base="tilelang", file="tilelang.kernels.macros")
_host = partial(Mutant, base="tilelang", file="tilelang.cpu")

MACROS = (
    _macro(
        name="c_eps_outside_the_root",
        bug="eps on the wrong side of the root",
        hidden=True,
        old="T.rsqrt(squares / T.cast(K, squares.dtype) + norm_eps)",
        new="1.0 / (T.sqrt(squares / T.cast(K, squares.dtype)) + norm_eps)",
    ),
    _macro(
        name="c_exp_overflows",
        bug="exp overflow: inf / inf for a saturated gate",
        hidden=True,
        old="return 1.0 / (1.0 + T.exp(-z))",
        new="return T.exp(z) / (1.0 + T.exp(z))",
    ),
    _macro(
        name="c_nan_clamped",
        bug="NaN swallowed by a max",
        hidden=True,
        old="return 1.0 / (1.0 + T.exp(-z))",
        new="return 1.0 / (1.0 + T.exp(-T.max(z, T.cast(-10000.0, z.dtype))))",
    ),
    _macro(
        name="c_post_without_its_2",
        bug="h_post without the 2",
        old="return 2.0 * sigmoid(z)",
        new="return sigmoid(z)",
    ),
    _macro(
        name="c_slope_with_hc_eps",
        bug="hc_eps left in the derivative",
        hidden=True,
        old="    s = h_pre - hc_eps",
        new="    s = h_pre",
    ),
    _macro(
        name="c_slope_of_post",
        bug="h_post without its 2 in the derivative",
        old="(1.0 - h_post / 2.0)",
        new="(1.0 - h_post)",
    ),
    _macro(
        name="c_coefficient_of_one_less",
        bug="an inv_rms too few in the coefficient of x",
        hidden=True,
        old="dinv_rms * (inv_rms * inv_rms * inv_rms)",
        new="dinv_rms * (inv_rms * inv_rms)",
    ),
    _macro(
        name="c_dx_without_gamma",
        bug="gamma forgotten in dx",
        old="return dvec * gamma - coefficient * x",
        new="return dvec - coefficient * x",
    ),
    _macro(
        name="c_res_transposed",
        bug="h_res transposed, forward and backward alike",
        old="return 2 * n + i * n + j",
        new="return 2 * n + j * n + i",
    ),
    _macro(
        name="c_gate_boundary",
        bug="mask off by one at 2n: the first res row gets alpha_post",
        old="T.if_then_else(row < 2 * n, post, res)",
        new="T.if_then_else(row <= 2 * n, post, res)",
    ),
    _macro(
        name="c_columns_rotated",
        bug="a stream's columns begin at another one: wrong, and past its end",
        old="return i * D + d",
        new="return i * D + (d + i) % D",
    ),
)

FORWARD = (
    _kernel(
        name="c_tail_lanes_dropped",
        bug="terms after the last whole vector dropped",
        old="T.serial(T.ceildiv(size, LANES))",
        new="T.serial(T.max(size // LANES, 1))",
    ),
    _kernel(
        name="c_half_the_lanes",
        bug="half-reduced sum: the tree ends one level early",
        source="vLLM #56342",
        old="for level in T.unroll(5):",
        new="for level in T.unroll(4):",
    ),
    _kernel(
        name="c_nan_stays",
        bug="a NaN in one token leaks: it stays in the accumulator of the tokens after it",
        hidden=True,
        old="                squares[0] = 0.0\n",
        new="                squares[0] = T.if_then_else(t == 0, 0.0, T.if_then_else(squares[0] >= 0.0, 0.0, squares[0]))\n",
    ),
    _kernel(
        name="c_last_block_of_squares",
        bug="BLOCK_K smaller than K with only the last block kept",
        old="squares[0] += lanes[0]",
        new="squares[0] = lanes[0]",
    ),
    _kernel(
        name="c_last_block_of_mix",
        bug="only the last block of the projection kept",
        old="mix[row] += lanes[0]",
        new="mix[row] = lanes[0]",
    ),
    _kernel(
        name="c_squares_of_weighted",
        bug="rms of x*gamma",
        old="lambda k: v[k] * v[k])",
        new="lambda k: weighted[k] * weighted[k])",
    ),
    _kernel(
        name="c_half_squares",
        bug="squares rounded to float16",
        hidden=True,
        old="lambda k: v[k] * v[k])",
        new='lambda k: T.cast(T.cast(v[k] * v[k], "float16"), acc))',
    ),
    _kernel(
        name="c_tail_of_D",
        bug="h_in after the last whole block of D never written",
        hidden=True,
        old="                for block in T.serial(T.ceildiv(D, BLOCK)):\n                    size = T.min(BLOCK, D - block * BLOCK)\n",
        new="                for block in T.serial(T.max(D // BLOCK, 1)):\n                    size = T.min(BLOCK, D - block * BLOCK)\n",
    ),
    _kernel(
        name="c_one_token_too_many",
        bug="writes past the end by one row",
        hidden=True,
        old="                h_res[t, i * n + j] = pre.gate_argument(alpha[2], mix[row_res], inv_rms[t], bias[row_res])",
        new="                h_res[t, i * n + j] = pre.gate_argument(alpha[2], mix[row_res], inv_rms[t], bias[row_res])\n"
        "                    if t == N - 1:\n"
        "                        h_res[t + 1, i * n + j] = h_res[t, i * n + j]",
    ),
    _kernel(
        name="c_last_token_unwritten",
        bug="tail of N off by one",
        old="            for t in T.serial(N):",
        new="            for t in T.serial(T.max(N - 1, 1)):",
    ),
    _kernel(
        name="c_offset_wraps",
        bug="int32 offset overflow",
        source="PaddleFleet #1264",
        emulated="offsets into x wrap at 2**11 instead of 2**31",
        hidden=True,
        old="v[k] = T.cast(x[t, block * BLOCK + k], acc)",
        new="v[k] = T.cast(x[(t * K + block * BLOCK + k) % 2048 // K, (t * K + block * BLOCK + k) % 2048 % K], acc)",
    ),
    _kernel(
        name="c_h_in_without_hc_eps",
        bug="h_in from the sigmoid without hc_eps",
        hidden=True,
        old="v[d] += h_pre[t, i] * T.cast(x",
        new="v[d] += (h_pre[t, i] - T.cast(hc_eps, acc)) * T.cast(x",
    ),
    _kernel(
        name="c_eps_in_float32",
        bug="a constant rounded to float32 in the float64 program",
        hidden=True,
        old="inv_rms[t] = pre.inverse_rms(squares[0], K, T.cast(norm_eps, acc))",
        new='inv_rms[t] = pre.inverse_rms(squares[0], K, T.cast(T.cast(norm_eps, "float32"), acc))',
    ),
    _kernel(
        name="c_phi_folded_in_place",
        bug="writes into an input: gamma folded into the caller's phi",
        hidden=True,
        old="block_sum(lanes, size, lambda k: weighted[k] * phi[row, block * BLOCK + k])",
        new="for k in T.serial(size):\n"
        "                            phi[row, block * BLOCK + k] = T.if_then_else(\n"
        "                                t == 0, phi[row, block * BLOCK + k] * gamma[block * BLOCK + k],\n"
        "                                phi[row, block * BLOCK + k])\n"
        "                        block_sum(lanes, size, lambda k: v[k] * phi[row, block * BLOCK + k])",
    ),
)

BACKWARD = (
    _kernel(
        name="c_dphi_not_zeroed",
        bug="atomics into a buffer that was not zeroed",
        old="dphi[row, k] = 0.0",
        new="dphi[row, k] = dphi[row, k]",
    ),
    _kernel(
        name="c_dbias_per_tile_not_zeroed",
        bug="dbias accumulated twice: a tile's share keeps the last tile's",
        hidden=True,
        old="                    dbias_part[row] = 0.0",
        new="                    dbias_part[row] = T.if_then_else(tile == 0, 0.0, dbias_part[row])",
    ),
    _kernel(
        name="c_dphi_of_the_last_tile",
        bug="only the last tile of tokens kept",
        hidden=True,
        old="dphi[row, first + c] += lanes[c]",
        new="dphi[row, first + c] = lanes[c]",
    ),
    _kernel(
        name="c_dinv_from_dh_mix",
        bug="dh_mix for dt in dinv_rms",
        hidden=True,
        old="group[0] += dt * h_mix[t, row]",
        new="group[0] += dh_mix[t, row] * h_mix[t, row]",
    ),
    _kernel(
        name="c_alpha_swapped",
        bug="alpha's entries swapped",
        old="pre.by_gate(row, n, alpha[0], alpha[1], alpha[2])",
        new="pre.by_gate(row, n, alpha[1], alpha[0], alpha[2])",
    ),
    _kernel(
        name="c_dalpha_of_the_wrong_gate",
        bug="a gate's gradient added to its neighbour's",
        old="dalpha_part[T.min(g, 2)]",
        new="dalpha_part[T.min(g // 2, 2)]",
    ),
    _kernel(
        name="c_dphi_without_gamma",
        bug="gamma forgotten in dphi",
        old="weighted[token, c] = v * gamma[first + c]",
        new="weighted[token, c] = v",
    ),
    _kernel(
        name="c_dgamma_without_inv_rms",
        bug="a missing inv_rms in dgamma",
        hidden=True,
        old="dgamma_part[c] += v * total[c]",
        new="dgamma_part[c] += v * total[c] / inv_rms[t]",
    ),
    _kernel(
        name="c_dgamma_of_the_first_stream",
        bug="a grid that covers only stream 0",
        old="dgamma[first + c] += dgamma_part[c]",
        new="dgamma[chunk * LANES + c] += dgamma_part[c]",
    ),
    _kernel(
        name="c_half_intermediates",
        bug="gradients kept in float16 between two passes",
        source="Megatron-LM #6172, in bfloat16",
        hidden=True,
        old="dh_mix[t, row] = dt * inv_rms[t]",
        new='dh_mix[t, row] = T.cast(T.cast(dt * inv_rms[t], "float16"), acc)',
    ),
    _kernel(
        name="c_h_pre_of_the_neighbour",
        bug="a token reads its neighbour's gate from the second tile on",
        hidden=True,
        old="coefficient[t], v, h_pre[t, i], dh)",
        new="coefficient[t], v, h_pre[T.if_then_else(t < TOKENS, t, t - 1), i], dh)",
    ),
)

HOST = (
    _host(
        name="c_stack_of_8_streams",
        bug="a buffer sized for 8 streams: writes past its end for more",
        old="MAX_N}",
        new="8}",
    ),
    _host(
        name="c_strides_ignored",
        bug="row stride taken for a contiguous one",
        source="aiter #4432",
        hidden=True,
        old="tensor.dtype).contiguous()",
        new="tensor.dtype)",
    ),
    _host(
        name="c_gamma_of_the_last_call",
        bug="a stale workspace: gamma kept from the first call of its size",
        hidden=True,
        old="phi.new_ones(phi.shape[1]) if gamma is None else gamma.contiguous()",
        new="globals().setdefault('_KEPT', {}).setdefault(\n        (phi.shape[1], phi.dtype), phi.new_ones(phi.shape[1]) if gamma is None else gamma.clone().contiguous()\n    )",
    ),
    _host(
        name="c_saved_tensor_as_scratch",
        bug="writes into an input: a saved tensor used as scratch",
        hidden=True,
        old='"coefficient": empty(N)',
        new='"coefficient": tensors["inv_rms"].reshape(-1)',
    ),
    _host(
        name="c_h_in_through_float16",
        bug="bfloat16 outputs rounded through float16",
        hidden=True,
        old='outputs["h_in"].to(x.dtype)',
        new='(outputs["h_in"].half() if x.dtype == torch.bfloat16 else outputs["h_in"]).to(x.dtype)',
    ),
    _host(
        name="c_empty_not_zeroed",
        bug="parameter gradients of no tokens left as they were allocated",
        hidden=True,
        old="phi.new_empty if N > 0 else phi.new_zeros",
        new="phi.new_empty",
    ),
    _host(
        name="c_hangs_without_tokens",
        bug="hangs for S = 0",
        old="    if x.numel() > 0:",
        new="    while x.shape[1] == 0:\n        pass\n    if x.numel() > 0:",
    ),
    _host(
        name="c_fast_math",
        bug="compiled with -ffast-math: no NaN, no infinity, subnormals flushed",
        hidden=True,
        old='FLAGS = ("-O3",)',
        new='FLAGS = ("-O3", "-ffast-math")',
    ),
    _host(
        name="c_raises_for_ragged_widths",
        bug="raises for D not a multiple of 16",
        old="    N, K, M = B * S, n * D, n * n + 2 * n\n",
        new="    if D % 16:\n        raise NotImplementedError(f'D = {D} is not a multiple of 16')\n"
        "    N, K, M = B * S, n * D, n * n + 2 * n\n",
    ),
)

TILELANG = MACROS + FORWARD + BACKWARD + HOST
