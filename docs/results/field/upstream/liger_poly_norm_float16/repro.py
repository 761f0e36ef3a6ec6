"""LigerPolyNorm in float16: the cubic term is lost above |x| = 6.4, NaN above 40.

Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong. Without a GPU it runs in Triton's interpreter.
"""

import os
import sys

import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other

if not CUDA:  # Triton 3.7.1's interpreter leaves a Python float a Python float, and libdevice is stubs there
    import numpy as np
    import triton.language as tl
    import triton.runtime.interpreter as interpreter

    convert = interpreter._implicit_cvt

    def scalar(value):
        return tl.tensor(interpreter.TensorHandle(np.array([value], np.float32), tl.float32), tl.float32)

    def rsqrt(x):
        return tl.tensor(interpreter.TensorHandle(1 / np.sqrt(x.handle.data), x.handle.dtype), x.type)

    interpreter._implicit_cvt = lambda value: scalar(value) if type(value) is float else convert(value)

from liger_kernel.ops import poly_norm  # noqa: E402

if not CUDA:
    poly_norm.rsqrt = rsqrt
x = torch.tensor([[20.0, 1.0, -1.0, 2.0]], dtype=torch.float16, device=DEVICE)
weight = torch.full((3,), 1 / 3, dtype=torch.float16, device=DEVICE)
y = poly_norm.LigerPolyNormFunction.apply(x, weight, torch.zeros((), dtype=torch.float16, device=DEVICE), 1e-6, False)
v = x.double()
right = sum(v**p / ((v**p).square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight[0].double() for p in (3, 2, 1))
expected, actual = right[0, 0].item(), y[0, 0].item()
wrong = not abs(actual - expected) < 1e-2 * abs(expected)

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
