"""Mutants of the formula in plain PyTorch: the mathematics wrong, and the contract broken on the way in and out."""

from functools import partial

from oracles.mutants.record import Mutant

_formula = partial(Mutant, base="manual", file="formula")
_golden = partial(Mutant, base="manual", file="golden")
_entry = partial(Mutant, base="manual", file="reference_impls")

FORWARD = (
    _formula(
        name="eps_outside_the_root",
        bug="eps on the wrong side of the root",
        hidden=True,
        old="(flat.square().mean(-1) + norm_eps).rsqrt()",
        new="1 / (flat.square().mean(-1).sqrt() + norm_eps)",
    ),
    _formula(
        name="eps_as_a_floor",
        bug="mean clamped to eps instead of eps added",
        hidden=True,
        old="(flat.square().mean(-1) + norm_eps).rsqrt()",
        new="flat.square().mean(-1).clamp(min=norm_eps).rsqrt()",
    ),
    _formula(
        name="eps_fixed",
        bug="norm_eps ignored, its default compiled in",
        hidden=True,
        old="mean(-1) + norm_eps)",
        new="mean(-1) + 1e-6)",
    ),
    _formula(
        name="rms_of_weighted_x",
        bug="rms of x*gamma",
        source="a public CANN test",
        old="(flat.square().mean(-1)",
        new="(weighted.square().mean(-1)",
    ),
    _formula(
        name="half_the_squares",
        bug="half-reduced sum of squares: h_in sqrt(2) too large",
        source="vLLM #56342",
        old="flat.square().mean(-1) + norm_eps",
        new="flat[..., : (K + 1) // 2].square().sum(-1) / K + norm_eps",
    ),
    _formula(
        name="bf16_squares",
        bug="rms from bfloat16 squares",
        hidden=True,
        old="flat.square().mean(-1)",
        new="flat.square().to(torch.bfloat16).to(flat.dtype).mean(-1)",
    ),
    _formula(
        name="squares_of_the_neighbour",
        bug="a race on the sum of squares: a token reads its neighbour's last share",
        source="aiter #3033, seen only with per-row scaled input",
        hidden=True,
        emulated="the last eighth of K is always the neighbour's",
        old="flat.square().mean(-1)",
        new="torch.cat([flat[..., : K - K // 8], flat.roll(1, 1)[..., K - K // 8 :]], -1).square().mean(-1)",
    ),
    _formula(
        name="zero_rows_as_one",
        bug="an all-zero token gets inv_rms 1",
        source="TileOPs #712",
        hidden=True,
        old="norm_eps).rsqrt()",
        new="norm_eps).rsqrt().where((flat != 0).any(-1), 1)",
    ),
    _formula(
        name="post_without_its_2",
        bug="h_post without the 2",
        source="TileLang's own test, post_mult 1.0",
        old=".sigmoid() * 2",
        new=".sigmoid()",
    ),
    _formula(
        name="alpha_of_the_next_gate",
        bug="alpha's entries swapped in the forward",
        old="alpha[1] * t[..., n : 2 * n]",
        new="alpha[2] * t[..., n : 2 * n]",
    ),
    _formula(
        name="res_transposed",
        bug="h_res transposed",
        old="bias[2 * n :]).reshape(B, S, n, n)",
        new="bias[2 * n :]).reshape(B, S, n, n).mT",
    ),
    _formula(
        name="gamma_ignored",
        bug="gamma ignored",
        old="flat * gamma.reshape(K)\n\n",
        new="flat\n\n",
    ),
    _formula(
        name="gamma_twice",
        bug="gamma applied twice",
        old="flat * gamma.reshape(K)\n\n",
        new="flat * gamma.reshape(K) * gamma.reshape(K)\n\n",
    ),
    _formula(
        name="gamma_column_major",
        bug="gamma flattened column-major",
        old="flat * gamma.reshape(K)\n\n",
        new="flat * gamma.mT.reshape(K)\n\n",
    ),
    _formula(
        name="pre_without_hc_eps",
        bug="hc_eps forgotten in h_pre",
        hidden=True,
        old=".sigmoid() + hc_eps",
        new=".sigmoid()",
    ),
    _formula(
        name="h_mix_normalised",
        bug="h_mix saved after inv_rms instead of raw",
        old="h_res, inv_rms, h_mix, h_pre)",
        new="h_res, inv_rms, t, h_pre)",
    ),
    _formula(
        name="h_in_summed_in_storage",
        bug="h_in summed in x's dtype, not in float32",
        hidden=True,
        old="(h_pre.unsqueeze(-1) * v).sum(-2)",
        new="(h_pre.unsqueeze(-1) * v).to(x.dtype).sum(-2)",
    ),
    _formula(
        name="gates_in_storage",
        bug="h_pre rounded to x's dtype before it meets x",
        hidden=True,
        old="(h_pre.unsqueeze(-1) * v)",
        new="(h_pre.unsqueeze(-1).to(x.dtype).to(v.dtype) * v)",
    ),
    _formula(
        name="tf32_projection",
        bug="TF32 where float32 is promised",
        source="triton #10176; TileLang's own example",
        hidden=True,
        emulated="phi is cut to ten bits",
        old="weighted @ phi.mT",
        new="weighted @ (phi.float().contiguous().view(torch.int32) & -8192).view(torch.float32).to(phi.dtype).mT",
    ),
    _formula(
        name="bf16_projection",
        bug="phi rounded to bfloat16",
        source="Liger's bf16 path",
        hidden=True,
        old="weighted @ phi.mT",
        new="weighted @ phi.to(torch.bfloat16).to(phi.dtype).mT",
    ),
    _formula(
        name="scaled_by_the_tile",
        bug="a NaN in one token leaks through a scale that the tile shares",
        hidden=True,
        old="    h_mix = weighted @ phi.mT",
        new="    peak = 2 ** flat.abs().amax().clamp(1, 2).log2().floor() if flat.numel() else 1\n"
        "    h_mix = (weighted / peak) @ phi.mT * peak",
    ),
    _formula(
        name="nan_to_zero",
        bug="NaN swallowed: replaced by 0 on the way in",
        hidden=True,
        old="v = x.to(accumulation_dtype(x.dtype))  # [B, S, n, D]\n    flat",
        new="v = x.to(accumulation_dtype(x.dtype)).nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)\n    flat",
    ),
    _formula(
        name="subnormals_flushed",
        bug="subnormal x flushed to zero",
        hidden=True,
        old="v = x.to(accumulation_dtype(x.dtype))  # [B, S, n, D]\n    flat",
        new="v = x.where(x.abs() >= torch.finfo(x.dtype).tiny, x * 0).to(accumulation_dtype(x.dtype))\n    flat",
    ),
)

BACKWARD = (
    _formula(
        name="dinv_with_inv_rms_squared",
        bug="an extra inv_rms**2 in dinv_rms",
        source="the common wrong form; 0.2 % off at x ~ N(0, 1)",
        hidden=True,
        old="inv_rms**3 / K",
        new="inv_rms**5 / K",
    ),
    _formula(
        name="dinv_from_dh_mix",
        bug="dh_mix for dt in dinv_rms",
        hidden=True,
        old="(dt * h_mix).sum(-1)",
        new="(dh_mix * h_mix).sum(-1)",
    ),
    _formula(
        name="dgamma_without_inv_rms",
        bug="a missing inv_rms in dgamma",
        hidden=True,
        old="(flat * dvec_mm).reshape(N, K)",
        new="(flat * (dt @ phi)).reshape(N, K)",
    ),
    _formula(
        name="dphi_without_inv_rms",
        bug="a missing inv_rms in dphi",
        hidden=True,
        old="dh_mix.reshape(N, M).mT",
        new="dt.reshape(N, M).mT",
    ),
    _formula(
        name="slope_with_hc_eps",
        bug="hc_eps left in the derivative",
        hidden=True,
        old="s = h_pre - hc_eps",
        new="s = h_pre",
    ),
    _formula(
        name="slope_of_post_without_its_2",
        bug="h_post without its 2 in the derivative",
        old="(1 - h_post / 2)",
        new="(1 - h_post)",
    ),
    _formula(
        name="alpha_swapped_in_backward",
        bug="alpha's entries swapped in the backward",
        old="alpha[1] * dh_post2, alpha[2] * dh_res2",
        new="alpha[2] * dh_post2, alpha[1] * dh_res2",
    ),
    _formula(
        name="dx_without_gamma",
        bug="gamma forgotten in dx",
        source="the public golden pair: gamma in one direction only",
        old="dvec = dvec_mm if gamma is None else dvec_mm * gamma.reshape(K)",
        new="dvec = dvec_mm",
    ),
    _formula(
        name="dgamma_with_gamma",
        bug="gamma in its own gradient",
        hidden=True,
        old="(flat * dvec_mm).reshape(N, K)",
        new="(flat * dvec).reshape(N, K)",
    ),
    _formula(
        name="dgamma_column_major",
        bug="dgamma written column-major",
        old="reshape(N, K).sum(0).reshape(n, D)\n",
        new="reshape(N, K).sum(0).reshape(D, n).mT\n",
    ),
    _formula(
        name="dbias_of_post_twice",
        bug="dbias accumulated twice in a nested loop",
        old="dbias = dgate.reshape(N, M).sum(0)",
        new="dbias = torch.cat([dh_pre2, dh_post2 * 2, dh_res2], -1).reshape(N, M).sum(0)",
    ),
    _formula(
        name="dbias_averaged",
        bug="parameter gradient averaged over the tokens instead of summed",
        old="dbias = dgate.reshape(N, M).sum(0)",
        new="dbias = dgate.reshape(N, M).sum(0) / max(N, 1)",
    ),
    _formula(
        name="dbias_added_to_garbage",
        bug="atomics into a buffer that was not zeroed",
        emulated="the sum is added to fresh memory",
        old="dbias = dgate.reshape(N, M).sum(0)",
        new="dbias = torch.empty_like(dgate.reshape(N, M).sum(0)).add_(dgate.reshape(N, M).sum(0))",
    ),
    _formula(
        name="dphi_without_the_last_token",
        bug="tail of N off by one in dphi",
        hidden=True,
        old="dphi = dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)",
        new="dphi = dh_mix.reshape(N, M)[: max(N - 1, 1)].mT @ weighted.reshape(N, K)[: max(N - 1, 1)]",
    ),
    _formula(
        name="bf16_dh_mix",
        bug="bfloat16 intermediate gradients",
        source="Megatron-LM #6172",
        hidden=True,
        old="dh_mix = dt * inv_rms.unsqueeze(-1)",
        new="dh_mix = (dt * inv_rms.unsqueeze(-1)).to(torch.bfloat16).to(acc)",
    ),
    _formula(
        name="bf16_sum_over_D",
        bug="reduction over D in bfloat16",
        hidden=True,
        old="(dh * v).sum(-1)",
        new="(dh * v).to(torch.bfloat16).sum(-1).to(acc)",
    ),
    _formula(
        name="dx_all_zero",
        bug="dx all zero",
        source="passes Liger-Kernel's test under .mean()",
        old="return Backward(dx.to(x.dtype),",
        new="return Backward(torch.zeros_like(dx).to(x.dtype),",
    ),
    _formula(
        name="dx_in_two_roundings",
        bug="dx rounded to x's dtype before its last term is added",
        hidden=True,
        old="(dvec - dnorm).reshape(B, S, n, D) + h_pre",
        new="(dvec - dnorm).reshape(B, S, n, D).to(x.dtype).to(acc) + h_pre",
    ),
    _formula(
        name="dres_transposed",
        bug="dh_res read transposed",
        old="dh_res2 = dh_res.reshape(B, S, n * n)",
        new="dh_res2 = dh_res.mT.reshape(B, S, n * n)",
    ),
    _formula(
        name="dgamma_where_gamma_is_none",
        bug="a gradient for an argument that is absent",
        old="dgamma = None if gamma is None else (flat",
        new="dgamma = (flat",
    ),
)

CONTRACT = (
    _golden(
        name="strides_ignored",
        bug="row stride taken for a contiguous one",
        source="aiter #4432",
        hidden=True,
        old="[None if tensor is None else dense(tensor)[0] for tensor in arguments.values()]",
        new="[\n        None if tensor is None\n        else torch.empty_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)\n"
        "        if 0 in tensor.stride() or not tensor.numel()\n"
        "        else tensor.as_strided(tensor.shape, torch.empty(tensor.shape).stride())\n"
        "        for tensor in arguments.values()\n    ]",
    ),
    _golden(
        name="storage_offset_ignored",
        bug="the storage offset of a view dropped",
        hidden=True,
        old="dense(tensor)[0] for tensor",
        new="dense(tensor.as_strided(tensor.shape, tensor.stride(), 0))[0] for tensor",
    ),
    _formula(
        name="phi_folded_in_place",
        bug="writes into an input: gamma folded into the caller's phi",
        hidden=True,
        old="weighted @ phi.mT",
        new="(weighted @ phi.mT if gamma is None else flat @ phi.mul_(gamma.reshape(K)).mT)",
    ),
    _formula(
        name="zeros_for_5_streams",
        bug="refuses nothing but returns zeros for n = 5",
        old="return Forward(h_in.to(x.dtype), h_post,",
        new="return Forward(h_in.to(x.dtype) * (n != 5), h_post,",
    ),
    _golden(
        name="raises_for_odd_widths",
        bug="raises for D not a multiple of 16",
        old="    with float32_matmuls(x.device.type):\n",
        new="    if x.shape[3] % 16:\n        raise ValueError('D must be a multiple of 16')\n    with float32_matmuls(x.device.type):\n",
    ),
    _golden(
        name="raises_for_few_tokens",
        bug="backward fails below 128 tokens unless they are a power of two",
        source="Megatron-LM #7524",
        old="    with float32_matmuls(x.device.type), torch.no_grad():",
        new="    N = x.shape[0] * x.shape[1]\n    assert N >= 128 or N & (N - 1) == 0, 'arange must be a power of two'\n"
        "    with float32_matmuls(x.device.type), torch.no_grad():",
    ),
    _golden(
        name="hangs_without_tokens",
        bug="hangs for S = 0",
        old="    with float32_matmuls(x.device.type):\n",
        new="    while x.shape[1] == 0:\n        pass\n    with float32_matmuls(x.device.type):\n",
    ),
    _golden(
        name="crashes_for_many_streams",
        bug="illegal address for n > 8",
        old="    with float32_matmuls(x.device.type):\n",
        new="    if x.shape[2] > 8:\n        __import__('ctypes').string_at(0)\n    with float32_matmuls(x.device.type):\n",
    ),
    _golden(
        name="exits_for_wide_rows",
        bug="the process ends for D > 256, with status 0",
        old="    with float32_matmuls(x.device.type), torch.no_grad():",
        new="    if x.shape[3] > 256:\n        __import__('os')._exit(0)\n    with float32_matmuls(x.device.type), torch.no_grad():",
    ),
    _entry(
        name="sum_order_drawn_anew",
        bug="a sum whose order changes from run to run, as with atomics; every result is inside the bound",
        hidden=True,
        emulated="K is permuted at random before the projection",
        old="        return mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)",
        new="        order = torch.randperm(x.shape[3])\n"
        "        B, S, n, D = x.shape\n"
        "        phi = phi.reshape(-1, n, D)[:, :, order].reshape(phi.shape)\n"
        "        gamma = None if gamma is None else gamma[:, order]\n"
        "        h_in, *rest = mhc_forward_pre(\n"
        "            x[..., order], phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps\n"
        "        )\n"
        "        return (h_in[..., order.argsort()], *rest)",
    ),
    _entry(
        name="output_of_the_last_call_reused",
        bug="the result is a workspace that the next call overwrites",
        hidden=True,
        old="        return mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)",
        new="        h_in, *rest = mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)\n"
        "        kept = globals().setdefault('_KEPT', {}).setdefault((h_in.shape, h_in.dtype), torch.empty_like(h_in))\n"
        "        return (kept.copy_(h_in), *rest)",
    ),
    _entry(
        name="wrong_now_and_then",
        bug="a race between two writers: one run in four is wrong by one token",
        emulated="a coin decides",
        old="        return mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)",
        new="        h_in, *rest = mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)\n"
        "        return (h_in.roll(1, 1) if torch.rand(()) < 0.25 else h_in, *rest)",
    ),
)

MANUAL = FORWARD + BACKWARD + CONTRACT
