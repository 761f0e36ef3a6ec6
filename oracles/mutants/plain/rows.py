"""Mutants of RMSNorm, LayerNorm and softmax."""

from functools import partial

from mhc.oracles.mutants.plain.edit import edit

_rms = partial(edit, "rms_norm", "rms_norm")
_rms_tiles = partial(edit, "rms_norm", "tiles")
_layer = partial(edit, "layer_norm", "layer_norm")
_layer_tiles = partial(edit, "layer_norm", "tiles")
_softmax = partial(edit, "softmax", "softmax")

_RMS_Y = "y = (v * rstd).to(x.dtype) * weight"
_RMS_FORWARD = f"    rstd = torch.rsqrt(row_sum(v * v) / D + eps)\n    {_RMS_Y}"
_RMS_DX = "dx = dn * rstd + dsquares * (2 * v)"
RMS_NORM = (
    _rms(
        "rms_eps_outside_the_root",
        "eps added outside of the root",
        _RMS_FORWARD,
        f"    rstd = 1 / ((row_sum(v * v) / D).sqrt() + eps)\n    {_RMS_Y}",
        hidden=True,
    ),
    _rms(
        "rms_mean_over_the_padded_width",
        "mean over D rounded up to a tile",
        _RMS_FORWARD,
        f"    rstd = torch.rsqrt(row_sum(v * v) / (-(-D // 16) * 16) + eps)\n    {_RMS_Y}",
    ),
    _rms(
        "rms_float16_squares",
        "squares added up in float16",
        _RMS_FORWARD,
        f"    rstd = torch.rsqrt((v.half() * v.half()).sum(1, keepdim=True).to(v.dtype) / D + eps)\n    {_RMS_Y}",
        hidden=True,
    ),
    _rms(
        "rms_width_of_the_first_call",
        "wrong at a second width: D is kept from the first call",
        _RMS_FORWARD,
        f"    D = globals().setdefault('_KEPT', D)\n{_RMS_FORWARD}",
    ),
    _rms(
        "rms_nan_to_0", "NaN becomes 0", _RMS_Y, _RMS_Y.replace("(v * rstd)", "(v * rstd).nan_to_num(nan=0.0)"), hidden=True
    ),
    _rms("rms_writes_x", "doubles its input in place", _RMS_FORWARD, f"    x.mul_(2)\n{_RMS_FORWARD}"),
    _rms(
        "rms_reads_a_view_as_contiguous",
        "strides ignored",
        "    v, D = rows(x), x.shape[-1]\n    rstd = torch.rsqrt(row_sum(v * v) / D + eps)\n    y",
        "    x = x.as_strided(x.shape, torch.empty(x.shape).stride()) if 0 not in x.stride() and x.numel() else x\n    v, D = rows(x), x.shape[-1]\n    rstd = torch.rsqrt(row_sum(v * v) / D + eps)\n    y",
        hidden=True,
    ),
    _rms("rms_dx_without_the_mean", "the gradient through the mean is left out", _RMS_DX, "dx = dn * rstd"),
    _rms(
        "rms_dweight_of_one_tile",
        "dweight of the first tile of tokens alone",
        "token_sum((dy * (v * rstd).to(x.dtype)).to(v.dtype))",
        "token_sum((dy * (v * rstd).to(x.dtype)).to(v.dtype)[:32])",
        hidden=True,
    ),
    _rms_tiles(
        "rms_tail_columns_dropped",
        "columns beyond the last whole tile are dropped",
        "for tile in tiles(v.shape[1]):",
        "for tile in tiles(v.shape[1] // COLUMNS * COLUMNS or v.shape[1]):",
    ),
)

_LAYER_DX = "dx = dc - row_sum(dc) / D"
LAYER_NORM = (
    _layer(
        "layer_one_pass_variance",
        "variance as the mean of squares less the square of the mean",
        "row_sum(c * c) / D + eps",
        "(row_sum(v * v) / D - mean * mean).clamp(min=0) + eps",
        hidden=True,
    ),
    _layer("layer_bessel", "variance divided by D - 1", "row_sum(c * c) / D + eps", "row_sum(c * c) / max(D - 1, 1) + eps"),
    _layer(
        "layer_variance_over_padding",
        "padding lanes, which hold -mean, count in the variance",
        "row_sum(c * c) / D + eps",
        "(row_sum(c * c) + -D % 16 * mean * mean) / D + eps",
        source="triton #9838",
    ),
    _layer(
        "layer_mean_over_the_padded_width",
        "mean over D rounded up to a power of two",
        "mean = row_sum(v) / D",
        "mean = row_sum(v) / (1 << (D - 1).bit_length())",
        source="Liger-Kernel #519",
    ),
    _layer(
        "layer_bias_before_the_scale",
        "bias is scaled by the weight",
        "c * rstd * weight.to(c.dtype) + bias.to(c.dtype)",
        "(c * rstd + bias.to(c.dtype)) * weight.to(c.dtype)",
    ),
    _layer(
        "layer_bfloat16_mean",
        "the mean is rounded to x's dtype",
        "mean = row_sum(v) / D",
        "mean = (row_sum(v) / D).to(x.dtype).to(v.dtype)",
        hidden=True,
    ),
    _layer("layer_dx_without_the_mean", "dx without the gradient through the mean", _LAYER_DX, "dx = dc"),
    _layer(
        "layer_dbias_of_one_tile",
        "dbias of the first tile of tokens alone",
        "token_sum(g)",
        "token_sum(g[:32])",
        hidden=True,
    ),
    _layer(
        "layer_dweight_rounded",
        "dweight from the normalised x rounded to bfloat16",
        "token_sum(g * (c * rstd))",
        "token_sum(g * (c * rstd).bfloat16().to(g.dtype))",
        hidden=True,
    ),
    _layer_tiles(
        "layer_last_tile_of_tokens_lost",
        "tokens beyond the last whole tile are lost",
        "for tile in tiles(len(v), TOKENS):",
        "for tile in tiles(len(v) // TOKENS * TOKENS or len(v), TOKENS):",
        hidden=True,
    ),
)

SOFTMAX = (
    _softmax(
        "softmax_without_the_maximum",
        "exp without the maximum overflows",
        "e = torch.exp(v - most)",
        "e = torch.exp(v)",
        hidden=True,
    ),
    _softmax(
        "softmax_maximum_of_the_first_tile",
        "the maximum of the first tile alone",
        "for tile in tiles(v.shape[1]):",
        "for tile in list(tiles(v.shape[1]))[:1]:",
        hidden=True,
    ),
    _softmax(
        "softmax_padding_counted",
        "padding lanes count as exp(-max)",
        "return e / row_sum(e)",
        "return e / (row_sum(e) + -v.shape[1] % 16 * torch.exp(-most))",
    ),
    _softmax(
        "softmax_float16",
        "exp and sum in float16",
        "e = torch.exp(v - most)",
        "e = torch.exp((v - most).half()).to(v.dtype)",
        hidden=True,
    ),
    _softmax(
        "softmax_nan_to_0",
        "NaN becomes 0",
        "return (_shares(x).to(x.dtype).reshape(x.shape),)",
        "return (_shares(x).nan_to_num(nan=0.0).to(x.dtype).reshape(x.shape),)",
        hidden=True,
    ),
    _softmax(
        "softmax_backward_of_rounded_y",
        "the backward takes y rounded to x's dtype",
        "y, g = _shares(x), rows(dy)",
        "y, g = rows(_shares(x).to(x.dtype)), rows(dy)",
        source="PyTorch on the CPU",
        hidden=True,
    ),
    _softmax(
        "softmax_dx_without_the_sum", "dx without the sum over the row", "dx = y * g - y * row_sum(y * g)", "dx = y * g"
    ),
    _softmax(
        "softmax_last_column_lost",
        "the last column is left out where V is no multiple of a tile",
        "return e / row_sum(e)",
        "return e / row_sum(e[:, : e.shape[1] - (e.shape[1] > 1 and e.shape[1] % 16 != 0)])",
        hidden=True,
    ),
)

ROWS = RMS_NORM + LAYER_NORM + SOFTMAX
