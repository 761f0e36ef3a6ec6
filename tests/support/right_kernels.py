"""Right kernels of the built-in operators, written as kernels in the field are: blocks, online sums, fused backwards.

They compute in float32 and round once, or where the operator does; their order of operations is not the reference's. A
failure of one is a false alarm.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mhc.implementation import Implementation

BLOCK = 16
DTYPES = ("bfloat16", "float16", "float32")


def _blocks(size: int, block: int = BLOCK) -> Iterator[slice]:
    for at in range(0, size, block):
        yield slice(at, min(at + block, size))


def _tree_sum(parts: list[Tensor]) -> Tensor:
    """Return the sum of partial sums, in pairs."""
    while len(parts) > 1:
        parts = [sum(parts[at : at + 2], torch.zeros(())) for at in range(0, len(parts), 2)]
    return parts[0]


def _sum(value: Tensor) -> Tensor:
    """Return the sum over the last axis, by blocks and then as a tree."""
    return _tree_sum([value[..., one].sum(-1, keepdim=True) for one in _blocks(value.shape[-1])])


def _over_tokens(value: Tensor) -> Tensor:
    """Return the sum over all axes but the last, by blocks of rows."""
    rows = value.reshape(-1, value.shape[-1])
    return _tree_sum([rows[one].sum(0) for one in _blocks(rows.shape[0])] or [rows.sum(0)])


# ---- norms


def _rms_forward(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    v = x.float()
    rstd = torch.rsqrt(_sum(v * v) / v.shape[-1] + eps)
    return ((v * rstd).to(x.dtype).float() * weight.float()).to(x.dtype)


def _rms_backward(x: Tensor, weight: Tensor, dy: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    """Return dx = rstd (g - xhat mean(g xhat)) with g = dy weight, and dweight = sum of dy xhat."""
    v, w, up = x.float(), weight.float(), dy.float()
    rstd = torch.rsqrt(_sum(v * v) / v.shape[-1] + eps)
    xhat, g = v * rstd, up * w
    dx = rstd * (g - xhat * (_sum(g * xhat) / v.shape[-1]))
    return dx.to(x.dtype), _over_tokens(up * xhat).to(weight.dtype)


def _welford(v: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance over the last axis, joined block by block (Chan, Golub and LeVeque 1983, eq. 1.5)."""
    count, mean, squares = 0, torch.zeros(*v.shape[:-1], 1), torch.zeros(*v.shape[:-1], 1)
    for one in _blocks(v.shape[-1]):
        part = v[..., one]
        many = part.shape[-1]
        own = part.mean(-1, keepdim=True)
        away, both = own - mean, count + many
        squares = squares + (part - own).square().sum(-1, keepdim=True) + away.square() * (count * many / both)
        mean, count = mean + away * (many / both), both
    return mean, squares / count


def _layer_forward(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    mean, variance = _welford(x.float())
    return ((x.float() - mean) * torch.rsqrt(variance + eps) * weight.float() + bias.float()).to(x.dtype)


def _layer_backward(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, *, eps: float) -> tuple[Tensor, ...]:
    """Return dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy weight, and the sums of dy xhat and dy."""
    mean, variance = _welford(x.float())
    rstd, up = torch.rsqrt(variance + eps), dy.float()
    xhat, g = (x.float() - mean) * rstd, up * weight.float()
    size = x.shape[-1]
    dx = rstd * (g - _sum(g) / size - xhat * (_sum(g * xhat) / size))
    return dx.to(x.dtype), _over_tokens(up * xhat).to(weight.dtype), _over_tokens(up).to(bias.dtype)


# ---- softmax and losses


def _online(v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest element of each row, and the sum of exp(v - it), in one pass over blocks."""
    most, total = torch.full((*v.shape[:-1], 1), -math.inf), torch.zeros(*v.shape[:-1], 1)
    for one in _blocks(v.shape[-1]):
        part = v[..., one]
        now = torch.maximum(most, part.amax(-1, keepdim=True))
        kept = torch.where(most == -math.inf, 0.0, torch.exp(most - now))
        terms = torch.where(part == -math.inf, 0.0, torch.exp(part - now))
        most, total = now, total * kept + terms.sum(-1, keepdim=True)
    return most, torch.where(most == -math.inf, torch.nan, total)


def _softmax_forward(x: Tensor) -> Tensor:
    most, total = _online(x.float())
    return (torch.exp(x.float() - most) / total).to(x.dtype)


def _softmax_backward(x: Tensor, dy: Tensor) -> Tensor:
    most, total = _online(x.float())
    y, up = torch.exp(x.float() - most) / total, dy.float()
    return (y * (up - _sum(y * up))).to(x.dtype)


def _loss(logits: Tensor, target: Tensor) -> Tensor:
    most, total = _online(logits)
    taken = logits.gather(-1, target.clamp(min=0).unsqueeze(-1))
    return torch.where(target == -100, 0.0, (most - taken + total.log())[..., 0])


def _dlogits(logits: Tensor, target: Tensor, dy: Tensor) -> Tensor:
    most, total = _online(logits)
    p = torch.exp(logits - most) / total
    p.scatter_add_(-1, target.clamp(min=0).unsqueeze(-1), torch.full((*target.shape, 1), -1.0))
    return torch.where((target == -100).unsqueeze(-1), 0.0, p * dy.unsqueeze(-1))


def _cross_entropy_forward(x: Tensor, target: Tensor) -> Tensor:
    return _loss(x.float(), target)


def _cross_entropy_backward(x: Tensor, target: Tensor, dy: Tensor) -> Tensor:
    return _dlogits(x.float(), target, dy).to(x.dtype)


def _linear_forward(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    parts = [_loss(x[one].float() @ weight.float().T, target[one]) for one in _blocks(x.shape[0])]
    return torch.cat(parts) if parts else torch.zeros(0)


def _linear_backward(x: Tensor, weight: Tensor, target: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Return dx and dweight, from the logits of a block of tokens at a time."""
    dx, dweight = torch.zeros(x.shape), torch.zeros(weight.shape)
    for one in _blocks(x.shape[0]):
        d = _dlogits(x[one].float() @ weight.float().T, target[one], dy[one])
        dx[one] = d @ weight.float()
        dweight += d.T @ x[one].float()
    return dx.to(x.dtype), dweight.to(weight.dtype)


# ---- gates and rotation


def _swiglu_forward(a: Tensor, b: Tensor) -> Tensor:
    v = a.float()
    return ((v / (1 + torch.exp(-v))).to(a.dtype).float() * b.float()).to(a.dtype)


def _swiglu_backward(a: Tensor, b: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    v, up, s = a.float(), dy.float(), torch.sigmoid(a.float())
    da = up * (s * (1 + v * (1 - s))) * b.float()
    return da.to(a.dtype), (up * (v * s)).to(b.dtype)


def _geglu_forward(a: Tensor, b: Tensor) -> Tensor:
    v = a.float()
    t = torch.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v))
    return ((0.5 * v * (1 + t)).to(a.dtype).float() * b.float()).to(a.dtype)


def _geglu_backward(a: Tensor, b: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    v, up, root = a.float(), dy.float(), math.sqrt(2 / math.pi)
    t = torch.tanh(root * (v + 0.044715 * v * v * v))
    slope = 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * (root * (1 + 3 * 0.044715 * v * v))
    return (up * b.float() * slope).to(a.dtype), (up * (0.5 * v * (1 + t))).to(b.dtype)


def _rope_forward(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    R = cos.shape[-1]
    y = torch.empty(x.shape)
    for h in range(x.shape[2]):
        one, two = x[:, :, h, :R].float(), x[:, :, h, R:].float()
        y[:, :, h, :R] = one * cos - two * sin
        y[:, :, h, R:] = one * sin + two * cos
    return y.to(x.dtype)


def _rope_backward(x: Tensor, cos: Tensor, sin: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    """Return dx, which is dy rotated back, and dcos and dsin, which are sums over batch and heads."""
    (one, two), (up, down) = x.float().chunk(2, -1), dy.float().chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    dx = torch.cat([up * c + down * s, down * c - up * s], -1)
    dcos, dsin = up * one + down * two, down * one - up * two
    return dx.to(x.dtype), dcos.sum(2).sum(0), dsin.sum(2).sum(0)


# ---- attention


def _scores(q: Tensor, k: Tensor, bias: Tensor | None, rows: slice, columns: slice) -> Tensor:
    """Return a tile of the masked scores, for all heads."""
    s = q[:, :, rows].float() @ k[:, :, columns].float().mT / math.sqrt(q.shape[-1])
    if bias is not None:
        s = s + bias[:, :, rows, columns]
    later = torch.arange(columns.start, columns.stop) > torch.arange(rows.start, rows.stop)[:, None]
    return s.masked_fill(later, -math.inf)


def _heads(tensor: Tensor, H: int) -> Tensor:
    return tensor.repeat_interleave(H // tensor.shape[1], 1)


def _tiles(rows: slice) -> Iterator[slice]:
    """Yield the tiles of keys that some query of these rows sees; those beyond the diagonal are left out."""
    return _blocks(rows.stop)


def _attention_forward(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Return o in one pass over tiles, as FlashAttention does (arXiv 2307.08691, algorithm 1)."""
    k, v = _heads(k, q.shape[1]), _heads(v, q.shape[1])
    o = torch.empty(q.shape)
    for rows in _blocks(q.shape[2]):
        most = torch.full((*q.shape[:2], rows.stop - rows.start, 1), -math.inf)
        total, sums = torch.zeros_like(most), torch.zeros(q[:, :, rows].shape)
        for columns in _tiles(rows):
            s = _scores(q, k, bias, rows, columns)
            now = torch.maximum(most, s.amax(-1, keepdim=True))
            kept = torch.where(most == -math.inf, 0.0, torch.exp(most - now))
            p = torch.where(s == -math.inf, 0.0, torch.exp(s - now))
            sums = sums * kept + p.to(q.dtype).float() @ v[:, :, columns].float()
            most, total = now, total * kept + p.sum(-1, keepdim=True)
        o[:, :, rows] = sums / torch.where(most == -math.inf, torch.nan, total)
    return o.to(q.dtype)


def _attention_backward(q: Tensor, k: Tensor, v: Tensor, do: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    """Return dq, dk and dv by rows of tiles, with the weights computed again."""
    wide_k, wide_v, up = _heads(k, q.shape[1]), _heads(v, q.shape[1]), do.float()
    dq, dk, dv = (torch.zeros(q.shape) for _ in range(3))
    for rows in _blocks(q.shape[2]):
        seen = slice(0, rows.stop)
        p = _softmax_of(torch.cat([_scores(q, wide_k, bias, rows, columns) for columns in _tiles(rows)], -1))
        dp = up[:, :, rows] @ wide_v[:, :, seen].float().mT
        dp = torch.where(torch.arange(rows.stop) > torch.arange(rows.start, rows.stop)[:, None], 0.0, dp)
        ds = torch.where(p == 0, 0.0, p * (dp - _sum(p * dp))) / math.sqrt(q.shape[-1])
        dq[:, :, rows] = ds @ wide_k[:, :, seen].float()
        dk[:, :, seen] += ds.mT @ q[:, :, rows].float()
        dv[:, :, seen] += p.to(q.dtype).float().mT @ up[:, :, rows]

    def grouped(tensor: Tensor) -> Tensor:
        B, H, S, D = tensor.shape
        return tensor.reshape(B, k.shape[1], H // k.shape[1], S, D).sum(2).to(k.dtype)

    return dq.to(q.dtype), grouped(dk), grouped(dv)


def _softmax_of(s: Tensor) -> Tensor:
    most, total = _online(s)
    return torch.exp(s - most) / total


# ---- choices and codes


def _topk(logits: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
    v, K = logits.float(), buffer.shape[-1]
    most, total = _online(v)
    p = torch.exp(v - most) / total
    order = torch.sort(p.nan_to_num(nan=2.0), dim=-1, descending=True, stable=True).indices[..., :K]
    return p.gather(-1, order), order


def _fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes and scales, a block of 128 at a time, with one division for each block."""
    codes, scales = torch.empty(x.shape), []
    for one in _blocks(x.shape[-1], 128):
        v = x[:, one].float()
        most = torch.where(v.isnan().any(-1, keepdim=True), torch.nan, v.abs().amax(-1, keepdim=True)).clamp(min=1e-4)
        scales.append(most / 448.0)
        codes[:, one] = (v / scales[-1]).to(torch.float8_e4m3fn).float()
    return codes, torch.cat(scales, -1)


def _sinkhorn_by_factors(logits: Tensor) -> Tensor:
    """Return diag(r) M diag(c), where only the factors of rows and columns are iterated, after the largest is taken out."""
    m = torch.exp(logits - logits.amax((-1, -2), keepdim=True))
    r = torch.ones_like(m[..., :1])
    for _ in range(20):
        c = 1 / (m * r).sum(-2, keepdim=True)
        r = 1 / (m * c).sum(-1, keepdim=True)
    return r * m * c


def _post_forward(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Tensor:
    """Begin each accumulator with what the reference adds last."""
    out = h_post.unsqueeze(-1) * f.to(h_post.dtype).unsqueeze(-2)
    for i in range(x.shape[-2]):
        out = out + h_res[..., i, None] * x[..., i, :].to(h_res.dtype).unsqueeze(-2)
    return out.to(x.dtype)


def _post_backward(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    up = dy.to(h_res.dtype)
    df = (h_post.unsqueeze(-1) * up).sum(-2).to(f.dtype)
    dh_post = _sum(up * f.to(up.dtype).unsqueeze(-2)).squeeze(-1)
    return (h_res.mT @ up).to(x.dtype), df, dh_post, up @ x.to(up.dtype).mT


def _right(
    operator: str, forward: Callable[..., object], backward: Callable[..., object] | None = None, **rest: object
) -> Implementation:
    return Implementation(
        name=f"{operator}.right",
        operator=operator,
        forward=forward,
        backward=backward,
        dtypes=DTYPES,
        recomputes_forward=True,
        **rest,  # type: ignore[arg-type]
    )


RIGHT = {
    one.table.name: one
    for one in (
        _right("rms_norm", _rms_forward, _rms_backward),
        _right("layer_norm", _layer_forward, _layer_backward),
        _right("softmax", _softmax_forward, _softmax_backward),
        _right("cross_entropy", _cross_entropy_forward, _cross_entropy_backward),
        _right("linear_cross_entropy", _linear_forward, _linear_backward),
        _right("swiglu", _swiglu_forward, _swiglu_backward),
        _right("geglu", _geglu_forward, _geglu_backward),
        _right("rope", _rope_forward, _rope_backward),
        _right("attention", _attention_forward, _attention_backward),
        _right("topk_softmax", _topk),
        _right("fp8_block_quant", _fp8),
        _right("mhc_post", _post_forward, _post_backward),
    )
}
