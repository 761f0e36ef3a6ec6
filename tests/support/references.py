"""Plain PyTorch functions that tests read for their error bounds, with arguments to call them on."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Reference:
    """A function, and its tensors from a generator and a dtype."""

    function: Function
    arguments: Callable[[torch.Generator, torch.dtype], tuple[Tensor, ...]]


def normal(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def _tensors(*shapes: tuple[int, ...], scale: float = 1.0) -> Callable[[torch.Generator, torch.dtype], tuple[Tensor, ...]]:
    return lambda generator, dtype: tuple(normal(generator, *shape, dtype=dtype, scale=scale) for shape in shapes)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float(), 1e-5).to(x.dtype)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q.float() @ k.float().mT / q.shape[-1] ** 0.5
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    output: Tensor = scores.masked_fill(~allowed, float("-inf")).softmax(-1) @ v.float()
    return output.to(q.dtype)


def scaled_dot_product(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True).to(q.dtype)


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def mhc_post(x: Tensor, y: Tensor, h_post: Tensor, h_res: Tensor) -> Tensor:
    mixed = torch.einsum("toi,tic->toc", h_res.float(), x.float())
    return (mixed + h_post.float().unsqueeze(-1) * y.float().unsqueeze(-2)).to(x.dtype)


def sinkhorn(x: Tensor, iterations: int = 20) -> Tensor:
    m = torch.softmax(x.float(), -1) + 1e-6
    m = m / (m.sum(-2, keepdim=True) + 1e-6)
    for _ in range(iterations - 1):
        m = m / (m.sum(-1, keepdim=True) + 1e-6)
        m = m / (m.sum(-2, keepdim=True) + 1e-6)
    return m


def quantised(x: Tensor) -> Tensor:
    v = x.float()
    return v / v.abs().amax(-1, keepdim=True).clamp(min=1e-4)


def written_in_place(x: Tensor, y: Tensor) -> Tensor:
    total = x.float() * 2
    total += y.float()
    total.mul_(0.3)
    return total.to(x.dtype)


def _classes(generator: torch.Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    logits = normal(generator, 48, 130, dtype=dtype, scale=3.0)
    return logits, torch.randint(0, 130, (48,), generator=generator)


def _linear_classes(generator: torch.Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    x, weight = normal(generator, 48, 64, dtype=dtype), normal(generator, 130, 64, dtype=dtype)
    return x, weight, torch.randint(0, 130, (48,), generator=generator)


def _rows(generator: torch.Generator, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return torch.randint(0, 9, (100,), generator=generator), normal(generator, 9, 33, dtype=dtype)


_HEADS = (1, 2, 40, 16)
REFERENCES: dict[str, Reference] = {
    "rms_norm": Reference(rms_norm, _tensors((40, 300), (300,))),
    "layer_norm": Reference(layer_norm, _tensors((40, 300), (300,), (300,))),
    "softmax": Reference(lambda x: F.softmax(x.float(), -1).to(x.dtype), _tensors((40, 300), scale=4.0)),
    "log_softmax": Reference(lambda x: F.log_softmax(x.float(), -1), _tensors((40, 300), scale=4.0)),
    "logsumexp": Reference(lambda x: torch.logsumexp(x.float(), -1), _tensors((40, 300), scale=4.0)),
    "swiglu": Reference(lambda a, b: F.silu(a) * b, _tensors((40, 300), (40, 300), scale=3.0)),
    "geglu": Reference(lambda a, b: F.gelu(a, approximate="tanh") * b, _tensors((40, 300), (40, 300), scale=3.0)),
    "gelu": Reference(lambda a: F.gelu(a.float()).to(a.dtype), _tensors((40, 300), scale=3.0)),
    "rope": Reference(rope, _tensors((2, 8, 64), (8, 64), (8, 64))),
    "cross_entropy": Reference(lambda x, target: F.cross_entropy(x.float(), target), _classes),
    "linear_cross_entropy": Reference(
        lambda x, weight, target: F.cross_entropy(x.float() @ weight.float().T, target), _linear_classes
    ),
    "attention": Reference(causal_attention, _tensors(_HEADS, _HEADS, _HEADS)),
    "scaled_dot_product": Reference(scaled_dot_product, _tensors(_HEADS, _HEADS, _HEADS)),
    "mhc_post": Reference(mhc_post, _tensors((40, 4, 60), (40, 60), (40, 4), (40, 4, 4))),
    "linear": Reference(F.linear, _tensors((3, 5, 64), (32, 64), (32,))),
    "embedding": Reference(lambda index, weight: F.embedding(index, weight) * 2, _rows),
    "relu": Reference(lambda x: F.relu(x - 0.1) * x, _tensors((40, 300))),
    "clamped": Reference(lambda x: x.clamp(-1.0, 0.5).exp().log1p(), _tensors((40, 300))),
    "mean squared error": Reference(lambda a, b: F.mse_loss(a.float(), b.float()), _tensors((40, 30), (40, 30))),
    "scaled by its maximum": Reference(quantised, _tensors((40, 64))),
    "cumulative sum": Reference(lambda x: x.float().cumsum(-1), _tensors((8, 300))),
    "variance": Reference(lambda x: x.float().var(-1).sqrt(), _tensors((8, 300))),
    "written in place": Reference(written_in_place, _tensors((8, 30), (8, 30))),
    "powers": Reference(lambda x: (x.float().abs() + 0.5) ** 1.7 - 2.0 / (x.float().square() + 1), _tensors((40, 30))),
}
