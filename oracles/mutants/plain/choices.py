"""Mutants of cross-entropy, top-k of a softmax, and quantisation to float8."""

from functools import partial

from mhc.oracles.mutants.plain.edit import edit

_ce = partial(edit, "cross_entropy", "cross_entropy")
_linear = partial(edit, "linear_cross_entropy", "cross_entropy")
_topk = partial(edit, "topk_softmax", "topk_softmax")
_fp8 = partial(edit, "fp8_block_quant", "fp8_block_quant")

CROSS_ENTROPY = (
    _ce(
        "ce_ignored_token_counted",
        "a token whose target is -100 has the loss of class 0",
        "return torch.where(kept, loss[:, 0], 0.0)",
        "return loss[:, 0]",
    ),
    _ce(
        "ce_maximum_of_the_first_tile",
        "the maximum of the first tile of classes alone",
        "for tile in tiles(v.shape[1]):",
        "for tile in list(tiles(v.shape[1]))[:1]:",
        hidden=True,
    ),
    _ce("ce_log_of_base_2", "log2 in place of log", "(torch.exp(v - most)).log()", "(torch.exp(v - most)).log2()"),
    _ce(
        "ce_gradient_of_an_ignored_token",
        "a token whose target is -100 has the gradient of class 0",
        "device=v.device) == target.unsqueeze(1)",
        "device=v.device) == target.clamp(min=0).unsqueeze(1)",
    ),
    _ce("ce_gradient_without_the_target", "dx without 1 at the target", "return g - torch.exp", "return -torch.exp"),
    _ce(
        "ce_logits_rounded",
        "logits in bfloat16",
        "return (_losses(rows(x), target),)",
        "return (_losses(rows(x.bfloat16()).to(rows(x).dtype), target),)",
        hidden=True,
    ),
)
LINEAR_CROSS_ENTROPY = (
    _linear(
        "linear_ce_logits_in_x_s_dtype",
        "logits rounded to x's dtype",
        "_losses(x.to(wide) @ weight.to(wide).T, target)",
        "_losses((x @ weight.T).to(wide), target)",
        hidden=True,
    ),
    _linear(
        "linear_ce_upstream_as_a_mean",
        "the backward takes dy of the first token for every token",
        "g = _slopes(v @ w.T, target, dy)",
        "g = _slopes(v @ w.T, target, dy[:1].expand(len(dy)))",
        source="Liger-Kernel #968",
    ),
    _linear(
        "linear_ce_dweight_of_one_tile",
        "dweight of the first 32 tokens alone",
        "(g.T @ v).to(weight.dtype)",
        "(g[:32].T @ v[:32]).to(weight.dtype)",
        hidden=True,
    ),
    _linear(
        "linear_ce_dx_without_the_last_class",
        "dx without the last class where V is no multiple of a tile",
        "(g @ w).to(x.dtype)",
        "(g[:, : len(w) // 16 * 16 or len(w)] @ w[: len(w) // 16 * 16 or len(w)]).to(x.dtype)",
        hidden=True,
    ),
    _linear(
        "linear_ce_softmax_rounded",
        "the gradient of the logits in bfloat16",
        "    g = _slopes(v @ w.T, target, dy)",
        "    g = _slopes(v @ w.T, target, dy).bfloat16().to(v.dtype)",
        hidden=True,
    ),
)
TOPK_SOFTMAX = (
    _topk(
        "topk_expert_chosen_twice",
        "an expert that was chosen stays among the others",
        "left = left.scatter(1, at, -1.0)",
        "pass",
    ),
    _topk("topk_ascending", "the smallest first", "return weights, indices", "return weights.flip(1), indices.flip(1)"),
    _topk(
        "topk_index_of_the_next_expert",
        "indices count from 1",
        "indices[:, k : k + 1] = at",
        "indices[:, k : k + 1] = at + 1",
    ),
    _topk(
        "topk_renormalised",
        "weights divided by their sum",
        "return weights, indices",
        "return weights / weights.sum(1, keepdim=True), indices",
    ),
    _topk(
        "topk_last_expert_never_chosen",
        "the last expert is left out",
        "left = p.nan_to_num(nan=0.0)",
        "left = p.nan_to_num(nan=0.0)\n    left[:, -1] = -0.5 if p.shape[1] > K else left[:, -1]",
    ),
    _topk(
        "topk_of_rounded_logits",
        "experts chosen by logits in bfloat16",
        "left = p.nan_to_num(nan=0.0)",
        "left = p.bfloat16().to(p.dtype).nan_to_num(nan=0.0)",
        hidden=True,
    ),
    _topk(
        "topk_nan_row_without_experts",
        "the index in a row with a NaN is E",
        "indices[:, k : k + 1] = at",
        "indices[:, k : k + 1] = torch.where(p.isnan().any(1, keepdim=True), p.shape[1], at)",
        hidden=True,
    ),
)
FP8_BLOCK_QUANT = (
    _fp8(
        "fp8_zero_block_divides_by_0",
        "no floor: a block of zeros is NaN",
        ".amax(1).clamp(min=1e-4)",
        ".amax(1)",
        source="kernels-community 681",
        hidden=True,
    ),
    _fp8("fp8_maximum_without_abs", "the maximum of x in place of |x|", "v[:, block].abs().amax(1)", "v[:, block].amax(1)"),
    _fp8(
        "fp8_truncated",
        "codes towards 0 in place of the nearest",
        "(v[:, block] / scale[:, at, None]).to(torch.float8_e4m3fn)",
        "(v[:, block] / scale[:, at, None] * (1 - 2**-5)).to(torch.float8_e4m3fn)",
    ),
    _fp8(
        "fp8_not_rounded",
        "quotients in place of codes",
        "codes = (v[:, block] / scale[:, at, None]).to(torch.float8_e4m3fn)",
        "codes = v[:, block] / scale[:, at, None]",
    ),
    _fp8("fp8_other_format", "codes of float8_e5m2", "to(torch.float8_e4m3fn)", "to(torch.float8_e5m2)"),
    _fp8(
        "fp8_scale_of_the_first_block",
        "the scale of the first block for every block",
        "/ scale[:, at, None]",
        "/ scale[:, :1]",
    ),
    _fp8(
        "fp8_scale_a_power_of_two",
        "the scale rounded up to a power of two, as in UE8M0",
        "scale[:, at] = most / 448",
        "scale[:, at] = (most / 448).log2().ceil().exp2()",
    ),
    _fp8(
        "fp8_rounded_twice",
        "quotients rounded to bfloat16 first",
        "(v[:, block] / scale[:, at, None]).to(",
        "(v[:, block] / scale[:, at, None]).bfloat16().to(",
        hidden=True,
    ),
)

CHOICES = CROSS_ENTROPY + LINEAR_CROSS_ENTROPY + TOPK_SOFTMAX + FP8_BLOCK_QUANT
