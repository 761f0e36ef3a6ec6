"""mlstm_recurrent_step__triton: wrong results and writes out of bounds for a head size of 3.

Run it as `python repro.py CHECKOUT`. Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong.
Without a GPU it runs in Triton's interpreter.
"""

import contextlib
import importlib
import os
import sys
import types

import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    torch.cuda.device = lambda *_: contextlib.nullcontext()


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other

for package in (
    "mlstm_kernels",
    "mlstm_kernels.torch",
    "mlstm_kernels.torch.recurrent",
    "mlstm_kernels.triton",
    "mlstm_kernels.triton.recurrent",
    "mlstm_kernels.utils",
):  # without their __init__.py
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [os.path.join(sys.argv[1], *package.split("."))]
module = importlib.import_module("mlstm_kernels.torch.recurrent.triton_step")

H, K, V = 2, 3, 4
buffer = torch.full((64,), -1.0, device=DEVICE)
torch.manual_seed(0)
q, k, v, n = (torch.randn(1, H, size, device=DEVICE) for size in (K, K, V, K))
i, f, m = (torch.zeros(1, H, 1, device=DEVICE) for _ in range(3))
c = torch.randn(1, H, K, V, device=DEVICE)
new = {"matC_new": torch.empty_like(c), "vecN_new": buffer[: H * K].view(1, H, K), "scaM_new": torch.empty_like(m)}
h, _ = module.mlstm_recurrent_step__triton_fw(c, n, m, q, k, v, i, f, **new)
c, n, scaled = 0.5 * c + k.unsqueeze(-1) * v.unsqueeze(-2), 0.5 * n + k, q * K**-0.5  # gates of 0: forget half, take all
right = (scaled.unsqueeze(-1) * c).sum(-2) / (scaled * n).sum(-1, keepdim=True).abs().clamp(min=1.0)
expected, actual = [*right.flatten().tolist(), -1.0], [*h.flatten().tolist(), buffer[H * K].item()]
wrong = not torch.allclose(torch.tensor(actual), torch.tensor(expected), atol=1e-4)

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
