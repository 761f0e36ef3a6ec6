"""Mutants of SwiGLU, GEGLU and RoPE."""

from functools import partial

from mhc.oracles.mutants.plain.edit import edit

_swiglu = partial(edit, "swiglu", "gated")
_geglu = partial(edit, "geglu", "gated")
_rope = partial(edit, "rope", "rope")

_SILU, _SILU_DA = "return (w * w.sigmoid()).to(a.dtype)", "(s * (1 + w * (1 - s)))"
SWIGLU = (
    _swiglu(
        "swiglu_gate_and_up_swapped",
        "SiLU of b in place of a",
        "_blocks(lambda a, b: _silu(a) * b, a, b)",
        "_blocks(lambda a, b: _silu(b) * a, a, b)",
    ),
    _swiglu("swiglu_sigmoid_twice", "sigmoid of SiLU's sigmoid", _SILU, "return (w * w.sigmoid().sigmoid()).to(a.dtype)"),
    _swiglu("swiglu_slope_without_its_second_term", "da as if the gate were constant", _SILU_DA, "s"),
    _swiglu(
        "swiglu_da_without_b",
        "da without the factor b",
        "_blocks(lambda a, b, g: _silu_slope(a, g * b), a, b, dy)",
        "_blocks(lambda a, b, g: _silu_slope(a, g), a, b, dy)",
    ),
    _swiglu(
        "swiglu_exp_overflows",
        "x e^x / (1 + e^x): inf / inf from 89 on",
        _SILU,
        "e = w.exp()\n    return (w * (e / (1 + e))).to(a.dtype)",
        hidden=True,
    ),
    _swiglu(
        "swiglu_last_block_lost",
        "elements beyond the last whole block are not written",
        "    for block in tiles(out.numel(), BLOCK):",
        "    for block in tiles(out.numel() // BLOCK * BLOCK if out.numel() > BLOCK else out.numel(), BLOCK):",
    ),
    _swiglu(
        "swiglu_db_of_the_rounded_sigmoid",
        "the gate in bfloat16 in db",
        "_blocks(lambda a, g: g * _silu(a), a, dy)",
        "_blocks(lambda a, g: g * (a * a.sigmoid().bfloat16()).to(g.dtype), a, dy)",
        hidden=True,
    ),
)

_GELU = "return (0.5 * w * (1 + inner.tanh())).to(a.dtype)"
GEGLU = (
    _geglu(
        "geglu_erf",
        "GELU by erf in place of tanh",
        _GELU,
        "return (0.5 * w * (1 + (w * 0.7071067811865476).erf())).to(a.dtype)",
        hidden=True,
    ),
    _geglu(
        "geglu_square_for_cube",
        "a^2 in place of a^3",
        "inner = math.sqrt(2 / math.pi) * (w + 0.044715 * w * w * w)",
        "inner = math.sqrt(2 / math.pi) * (w + 0.044715 * w * w)",
    ),
    _geglu(
        "geglu_constant_of_three_digits",
        "sqrt(2 / pi) as 0.798",
        "    inner = math.sqrt(2 / math.pi) *",
        "    inner = 0.798 *",
        hidden=True,
    ),
    _geglu(
        "geglu_slope_without_the_3",
        "the derivative of a^3 without its 3",
        "(1 + 3 * 0.044715 * w * w)",
        "(1 + 0.044715 * w * w)",
    ),
    _geglu(
        "geglu_slope_without_tanh",
        "da without the derivative of tanh",
        "0.5 * (1 + t) + 0.5 * w * ((1 - t * t) * dinner)",
        "0.5 * (1 + t)",
    ),
    _geglu(
        "geglu_db_without_gelu",
        "db with a in place of GELU(a)",
        "_blocks(lambda a, g: _gelu(a) * g, a, dy)",
        "_blocks(lambda a, g: a * g, a, dy)",
    ),
    _geglu(
        "geglu_float16_inside",
        "the polynomial in float16",
        _GELU,
        "return (0.5 * w * (1 + inner.half().to(w.dtype).tanh())).to(a.dtype)",
        hidden=True,
    ),
)

_ROPE_FIRST = "(w[..., :R] * c - w[..., R:] * s)"
ROPE = (
    _rope("rope_sign", "rotates the other way", _ROPE_FIRST, "(w[..., :R] * c + w[..., R:] * s)"),
    _rope(
        "rope_interleaved", "pairs of neighbours in place of halves", _ROPE_FIRST, "(w[..., 0::2] * c - w[..., 1::2] * s)"
    ),
    _rope(
        "rope_tables_of_the_first_tile",
        "cos and sin of the first tile for every tile",
        "cos[tile, None], sin[tile, None]",
        "cos[: x[:, tile].shape[1], None], sin[: x[:, tile].shape[1], None]",
        hidden=True,
    ),
    _rope(
        "rope_last_position_lost",
        "positions beyond the last whole tile are not rotated",
        "    for tile in tiles(x.shape[1], TOKENS):",
        "    y.copy_(x)\n    for tile in tiles(x.shape[1] // TOKENS * TOKENS if x.shape[1] > TOKENS else x.shape[1], TOKENS):",
        hidden=True,
    ),
    _rope("rope_in_place", "y is x, overwritten", "torch.empty_like(x, memory_format=torch.contiguous_format)", "x"),
    _rope(
        "rope_tables_rounded",
        "cos and sin rounded to x's dtype",
        "cos[tile, None], sin[tile, None]",
        "cos[tile, None].to(x.dtype), sin[tile, None].to(x.dtype)",
        hidden=True,
    ),
    _rope(
        "rope_backward_not_transposed",
        "the backward rotates as the forward does",
        "g[..., :R] * c + g[..., R:] * s, g[..., R:] * c - g[..., :R] * s",
        "g[..., :R] * c - g[..., R:] * s, g[..., R:] * c + g[..., :R] * s",
    ),
    _rope(
        "rope_dcos_of_one_head",
        "dcos of the first head alone",
        "(g[..., :R] * w[..., :R]).sum((0, 2))",
        "(g[..., :1, :R] * w[..., :1, :R]).sum((0, 2))",
    ),
)

ELEMENTS = SWIGLU + GEGLU + ROPE
