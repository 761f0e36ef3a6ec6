"""LigerGroupNorm: NaN or wrong by 20 times where the mean is large beside the deviation.

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

from liger_kernel.ops import group_norm  # noqa: E402

if not CUDA:
    group_norm.rsqrt = rsqrt
x = torch.full((1, 2, 64), 1000.0, device=DEVICE)
x[..., 0] += 0.5  # variance 0.0038, which eps 1e-5 does not hide
weight, bias = torch.ones(2, device=DEVICE), torch.zeros(2, device=DEVICE)
y = group_norm.LigerGroupNormFunction.apply(x, weight, bias, 2, 1, 1e-5)
expected = torch.nn.functional.group_norm(x, 1, weight, bias, 1e-5)[0, 0, 0].item()
actual = y[0, 0, 0].item()
wrong = not abs(actual - expected) < 1e-2 * abs(expected)

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
