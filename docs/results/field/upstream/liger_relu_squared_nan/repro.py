"""LigerReLUSquared makes 0 of NaN on a GPU, in the output and in the gradient.

Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong (without a GPU, say).
"""

import os
import sys

import torch


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other

from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction

nan = float("nan")
x = torch.tensor([[nan, 1.0, -1.0, 2.0]], device="cuda", requires_grad=True)
expected = torch.relu(x).square()
(wanted,) = torch.autograd.grad(expected.sum(), x)
actual = LigerReLUSquaredFunction.apply(x)
(got,) = torch.autograd.grad(actual, x, torch.ones_like(x))

wrong = not torch.equal(expected.isnan(), actual.isnan()) or not torch.equal(wanted.isnan(), got.isnan())
print(f"output: expected {expected.tolist()}, actual {actual.tolist()}")
print(f"gradient: expected {wanted.tolist()}, actual {got.tolist()}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
