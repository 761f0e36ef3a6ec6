import torch
import triton
import triton.language as tl

from mhc import Implementation, operator

@operator(x="[T, D] storage", weight="[D] storage", tokens="T", D=(1, 8192), eps=(1e-6, 1e-5, 0.0))
def rms_norm(x, weight, *, eps):  # the reference: what is computed in float32 is promised at that level
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight

@triton.jit
def kernel(x, weight, y, D, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * D + at, mask=at < D, other=0.0).to(tl.float32)
    u = (v * tl.rsqrt(tl.sum(v * v) / D + eps)).to(x.dtype.element_ty)
    tl.store(y + row * D + at, u * tl.load(weight + at, mask=at < D), mask=at < D)

def forward(x, weight, *, eps):
    (T, D), y = x.shape, torch.empty_like(x, memory_format=torch.contiguous_format)
    kernel[(T,)](x.contiguous(), weight.contiguous(), y, D, eps, BLOCK=triton.next_power_of_2(D))
    return y

IMPL = Implementation(name="mine", operator=rms_norm, forward=forward, env={"TRITON_INTERPRET": "1"},
                      dtypes=("float32", "float16"))  # the interpreter's bfloat16 is inexact
