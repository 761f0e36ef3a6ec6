"""LigerRope overwrites the upstream gradient: gradients of other branches are wrong.

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

from liger_kernel.ops.rope import LigerRopeFunction  # noqa: E402

torch.manual_seed(0)
B, H, S, D = 1, 1, 2, 4
q, cos, sin, g = (torch.randn(shape, device=DEVICE) for shape in ((B, S, H, D), (1, S, D), (1, S, D), (B, S, H, D)))
q.requires_grad_()
other_branch = torch.randn(B, S, H, D, device=DEVICE, requires_grad=True)
added = (2 * other_branch).transpose(1, 2)
rotated, _ = LigerRopeFunction.apply(q.clone().transpose(1, 2), q.clone().transpose(1, 2), cos, sin)
(rotated + added).transpose(1, 2).backward(g.clone())
expected, actual = (2 * g).flatten().tolist()[:2], other_branch.grad.flatten().tolist()[:2]
wrong = not torch.allclose(other_branch.grad, 2 * g)

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
