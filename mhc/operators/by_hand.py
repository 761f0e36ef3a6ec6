"""Backwards written by hand, in plain PyTorch: those of mHC's post and Sinkhorn."""

from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES


def _post_forward(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> tuple[Tensor, ...]:
    mixed = (h_res.unsqueeze(-1) * x.to(h_res.dtype).unsqueeze(-3)).sum(-2)  # [*B, n, C], from [*B, n, n, C]
    return ((mixed + h_post.unsqueeze(-1) * f.to(h_post.dtype).unsqueeze(-2)).to(x.dtype),)


def _post_backward(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    """Return dx[i] = sum_o h_res[o, i] g[o], df = sum_o h_post[o] g[o], and the sums over C of g[o] f and g[o] x[i]."""
    wide = g.to(h_res.dtype)
    dx = (h_res.unsqueeze(-1) * wide.unsqueeze(-2)).sum(-3)
    df = (h_post.unsqueeze(-1) * wide).sum(-2)
    dh_post = (wide * f.to(h_post.dtype).unsqueeze(-2)).sum(-1)
    dh_res = wide @ x.to(h_res.dtype).mT
    return dx.to(x.dtype), df.to(f.dtype), dh_post, dh_res


def _sinkhorn_steps(logits: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor, int]]]:
    """Return M0 = exp(logits), and of each division its result, the sums and the axis that they are over."""
    m = start = logits.exp()
    steps = []
    for dim in (-2, -1) * 20:
        total = m.sum(dim, keepdim=True)
        m = m / total
        steps.append((m, total, dim))
    return start, steps


def _sinkhorn_forward(logits: Tensor) -> tuple[Tensor, ...]:
    return (_sinkhorn_steps(logits)[1][-1][0],)


def _sinkhorn_backward(logits: Tensor, dm: Tensor) -> tuple[Tensor, ...]:
    """Return dlogits; a step m = a / s with s = sum(a) has da = (dm - sum(dm m)) / s."""
    start, steps = _sinkhorn_steps(logits)
    for m, total, dim in reversed(steps):
        dm = (dm - (dm * m).sum(dim, keepdim=True)) / total
    return (dm * start,)


_BOTH = ("cpu", "cuda")
MHC_POST = Implementation(
    name="mhc_post.manual",
    operator="mhc_post",
    forward=_post_forward,
    backward=_post_backward,
    devices=_BOTH,
    dtypes=tuple(STORAGE_DTYPES),
)
MHC_SINKHORN = Implementation(
    name="mhc_sinkhorn.manual",
    operator="mhc_sinkhorn",
    forward=_sinkhorn_forward,
    backward=_sinkhorn_backward,
    devices=_BOTH,
    dtypes=tuple(STORAGE_DTYPES),
)
IMPLEMENTATIONS = (MHC_POST, MHC_SINKHORN)
