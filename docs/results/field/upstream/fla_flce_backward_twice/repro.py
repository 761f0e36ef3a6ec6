"""fused_linear_cross_entropy_loss: a second backward over the same graph is multiplied by the upstream gradient once more.

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

from fla.modules.fused_linear_cross_entropy import fused_linear_cross_entropy_loss  # noqa: E402

torch.manual_seed(0)
hidden = torch.randn(4, 3, device=DEVICE, requires_grad=True)
weight = torch.randn(5, 3, device=DEVICE, requires_grad=True)
loss = 3.0 * fused_linear_cross_entropy_loss(hidden, torch.tensor([0, 1, 2, 3], device=DEVICE), weight)
first = torch.autograd.grad(loss, hidden, retain_graph=True)[0].clone()
second = torch.autograd.grad(loss, hidden)[0]
expected, actual = "second / first = 1", f"second / first = {(second / first)[0, 0].item():.4f}"
wrong = not torch.allclose(second, first)

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
