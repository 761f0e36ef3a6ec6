"""LigerRope: wrong results and accesses out of bounds for one position, batch > 1, and q contiguous as (B, H, 1, D).

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
B, H, S, D = 3, 2, 1, 4
q, k, cos, sin = (torch.randn(shape, device=DEVICE) for shape in ((B, H, S, D), (B, H, S, D), (1, S, D), (1, S, D)))
first, second = q.chunk(2, -1)
c, s = cos[:, None, :, : D // 2], sin[:, None, :, : D // 2]
right = torch.cat([first * c - second * s, second * c + first * s], -1)
rotated, _ = LigerRopeFunction.apply(q.clone(), k.clone(), cos, sin)
expected, actual = right[1, 0, 0].tolist(), rotated[1, 0, 0].tolist()
wrong = not torch.allclose(rotated, right, atol=1e-5)

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
