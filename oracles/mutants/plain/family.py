"""Mutants of mHC's transposed post and of a layer with mHC."""

from functools import partial

from mhc.oracles.mutants.plain.edit import edit

_post = partial(edit, "mhc_post_transposed", "mhc_family")
_layer = partial(edit, "mhc_layer", "mhc_family")

_MIXED = "(h_res.unsqueeze(-1) * x.to(h_res.dtype).unsqueeze(-2)).sum(-3)"
MHC_POST_TRANSPOSED = (
    _post("transposed_post_not_transposed", "h_res[o, i] in place of h_res[i, o]", _MIXED, "h_res @ x.to(h_res.dtype)"),
    _post(
        "transposed_post_mixed_in_x_s_dtype",
        "h_res rounded to x's dtype",
        _MIXED,
        "(h_res.to(x.dtype).mT @ x).to(h_res.dtype)",
        hidden=True,
    ),
    _post(
        "transposed_post_of_one_stream",
        "the layer's output is added to the first stream alone",
        "return (mixed + added).to(x.dtype)",
        "return torch.cat([mixed[..., :1, :] + added[..., :1, :], mixed[..., 1:, :]], -2).to(x.dtype)",
    ),
    _post(
        "transposed_post_h_post_detached",
        "no gradient of h_post",
        "added = h_post.unsqueeze(-1)",
        "added = (h_post.detach() + 0 * h_post).unsqueeze(-1)",
    ),
    _post(
        "transposed_post_last_column_lost",
        "the output is not added to the last column where C is no multiple of a tile",
        "return (mixed + added).to(x.dtype)",
        "cut = torch.arange(x.shape[-1]) < (x.shape[-1] // 16 * 16 or x.shape[-1])\n    return (mixed + added * cut).to(x.dtype)",
        hidden=True,
    ),
)

MHC_LAYER = (
    _layer("layer_mixes_transposed", "H[i, o] in place of H[o, i]", "out = m @ v", "out = m.mT @ v"),
    _layer("layer_h_post_without_the_2", "h_post without its factor 2", "h_post = 2 *", "h_post ="),
    _layer(
        "layer_without_hc_eps",
        "h_pre without hc_eps",
        ".sigmoid() + hc_eps",
        ".sigmoid()",
        hidden=True,
    ),
    _layer(
        "layer_gates_not_normalised",
        "the gates' projection without the RMS norm",
        "t = flat @ phi.T * torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm_eps)",
        "t = flat @ phi.T",
    ),
    _layer("layer_res_not_doubly_stochastic", "no Sinkhorn after exp", "for dim in (-2, -1) * 20:", "for dim in ():"),
    _layer("layer_rows_first", "rows first, columns last", "for dim in (-2, -1) * 20:", "for dim in (-1, -2) * 20:"),
    _layer(
        "layer_alpha_of_post_for_pre",
        "alpha[1] in h_pre",
        "(alpha[0] * pre + bias[:n])",
        "(alpha[1] * pre + bias[:n])",
    ),
    _layer(
        "layer_out_from_rounded_mixing",
        "the mixed streams rounded to x's dtype before the output is added",
        "out = m @ v +",
        "out = (m @ v).to(x.dtype).to(v.dtype) +",
        hidden=True,
    ),
)

FAMILY = MHC_POST_TRANSPOSED + MHC_LAYER
