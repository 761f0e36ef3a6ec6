"""Mutants of attention, and of mHC's post and Sinkhorn."""

from functools import partial

from mhc.oracles.mutants.plain.edit import edit

_attention = partial(edit, "attention", "attention")
_post = partial(edit, "mhc_post", "by_hand")
_sinkhorn = partial(edit, "mhc_sinkhorn", "by_hand")

_P = "return e / e.sum(-1, keepdim=True)"
ATTENTION = (
    _attention(
        "attention_mask_off_by_one",
        "each query sees the key after it",
        "device=q.device).triu(1)\n    scores",
        "device=q.device).triu(2)\n    scores",
    ),
    _attention(
        "attention_not_causal_in_the_last_tile",
        "no mask from query 16 on",
        "    scores = scores.masked_fill",
        "    later[16:] = False\n    scores = scores.masked_fill",
        hidden=True,
    ),
    _attention(
        "attention_scale_forgotten_for_a_head",
        "the last head without 1 / sqrt(D)",
        "_weights(q[:, h], k[:, shared], bias, h).to(q.dtype)",
        "_weights(q[:, h] * (q.shape[-1] ** 0.5 if 0 < h == q.shape[1] - 1 else 1), k[:, shared], bias, h).to(q.dtype)",
    ),
    _attention(
        "attention_heads_interleaved",
        "query head h takes head h % Hkv",
        "shared = h // (q.shape[1] // k.shape[1])",
        "shared = h % k.shape[1]",
    ),
    _attention(
        "attention_without_the_maximum",
        "exp without the maximum overflows",
        "e = (scores - scores.amax(-1, keepdim=True)).exp()",
        "e = scores.exp()",
        hidden=True,
    ),
    _attention(
        "attention_scores_rounded",
        "scores in bfloat16",
        "e = (scores - scores.amax",
        "scores = scores.bfloat16().to(scores.dtype)\n    e = (scores - scores.amax",
        hidden=True,
    ),
    _attention(
        "attention_scale_of_the_padded_width",
        "1 / sqrt of D rounded up to 16",
        "    S, D = q.shape[1:]\n    scale = 1 / math.sqrt(D)",
        "    S, D = q.shape[1:]\n    scale = 1 / math.sqrt(-(-D // 16) * 16)",
    ),
    _attention(
        "attention_dk_overwritten",
        "query heads that share a head overwrite its dk",
        "dk[:, h // G] += ds",
        "dk[:, h // G] = ds",
        hidden=True,
    ),
    _attention(
        "attention_dq_without_the_scale", "dq without 1 / sqrt(D)", "k[:, h // G].to(wide) * scale", "k[:, h // G].to(wide)"
    ),
    _attention(
        "attention_dropped_last_key",
        "the last key is dropped where S is no multiple of a tile",
        _P,
        "e[..., -1] = e[..., -1] * (S % 16 == 0 or S == 1)\n    " + _P,
    ),
)

_POST = "((mixed + h_post.unsqueeze(-1) * f.to(h_post.dtype).unsqueeze(-2)).to(x.dtype),)"
MHC_POST = (
    _post(
        "post_transposed_mixing",
        "h_res[i, o] in place of h_res[o, i]",
        "mixed = (h_res.unsqueeze(-1) *",
        "mixed = (h_res.mT.unsqueeze(-1) *",
        source="Automodel 2154, Megatron-LM 4957, Primus 1040",
    ),
    _post(
        "post_without_h_post",
        "the layer's output is added as it is",
        _POST,
        "((mixed + f.to(h_post.dtype).unsqueeze(-2)).to(x.dtype),)",
    ),
    _post(
        "post_factor_2",
        "h_post doubled a second time",
        _POST,
        _POST.replace("h_post.unsqueeze(-1)", "2 * h_post.unsqueeze(-1)"),
    ),
    _post(
        "post_rounded_between",
        "the mixed streams rounded to x's dtype before the output is added",
        _POST,
        _POST.replace("mixed +", "mixed.to(x.dtype) +"),
        hidden=True,
    ),
    _post(
        "post_h_res_rounded",
        "h_res rounded to bfloat16",
        "mixed = (h_res.unsqueeze(-1)",
        "mixed = (h_res.bfloat16().to(h_res.dtype).unsqueeze(-1)",
        hidden=True,
    ),
    _post(
        "post_dx_not_transposed",
        "dx mixed as the forward mixes",
        "dx = (h_res.unsqueeze(-1) * wide.unsqueeze(-2)).sum(-3)",
        "dx = h_res @ wide",
    ),
    _post(
        "post_df_of_one_stream",
        "df of the first stream alone",
        "df = (h_post.unsqueeze(-1) * wide).sum(-2)",
        "df = h_post[..., :1] * wide[..., 0, :]",
    ),
    _post(
        "post_dh_post_last_column_lost",
        "dh_post without the last column where C is no multiple of a tile",
        "dh_post = (wide * f.to(h_post.dtype).unsqueeze(-2)).sum(-1)",
        "cut = f.shape[-1] - (f.shape[-1] % 16 != 0)\n    dh_post = (wide * f.to(h_post.dtype).unsqueeze(-2))[..., :cut].sum(-1)",
    ),
)

SINKHORN = (
    _sinkhorn(
        "sinkhorn_one_iteration_fewer",
        "19 iterations",
        "for dim in (-2, -1) * 20:",
        "for dim in (-2, -1) * 19:",
        hidden=True,
    ),
    _sinkhorn(
        "sinkhorn_rows_first",
        "rows first, columns last",
        "for dim in (-2, -1) * 20:",
        "for dim in (-1, -2) * 20:",
        source="TransformerEngine's order",
    ),
    _sinkhorn(
        "sinkhorn_eps_in_the_sums",
        "eps added to each sum",
        "total = m.sum(dim, keepdim=True)",
        "total = m.sum(dim, keepdim=True) + 1e-6",
        source="Liger-Kernel's formula",
        hidden=True,
    ),
    _sinkhorn("sinkhorn_rows_alone", "the rows' sums twice", "for dim in (-2, -1) * 20:", "for dim in (-1, -1) * 20:"),
    _sinkhorn(
        "sinkhorn_transposed",
        "the matrix transposed",
        "return (_sinkhorn_steps(logits)[1][-1][0],)",
        "return (_sinkhorn_steps(logits)[1][-1][0].mT.contiguous(),)",
    ),
    _sinkhorn(
        "sinkhorn_bfloat16_start",
        "exp in bfloat16",
        "m = start = logits.exp()",
        "m = start = logits.bfloat16().exp().to(logits.dtype)",
        hidden=True,
    ),
    _sinkhorn(
        "sinkhorn_backward_of_the_last_iteration",
        "the backward through the last iteration alone",
        "for m, total, dim in reversed(steps):",
        "for m, total, dim in reversed(steps[-2:]):",
        hidden=True,
    ),
    _sinkhorn(
        "sinkhorn_backward_without_exp", "dlogits without the factor exp(logits)", "return (dm * start,)", "return (dm,)"
    ),
)

MIXING = ATTENTION + MHC_POST + SINKHORN
