"""mhc_bwd: the gradient is wrong for small upstream gradients; it is not linear in them.

Run it as `python repro.py CHECKOUT`. Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong.
Without a GPU it runs in Triton's interpreter.
"""

import importlib.util
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


def load(path):
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), os.path.join(sys.argv[1], path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mhc = load("src/flag_gems/fused/mhc/mhc_bwd.py")
torch.manual_seed(0)
logits = (4 * torch.rand(64, 4, 4, dtype=torch.float64)).requires_grad_()
mixing, _ = mhc.sinkhorn_forward(logits, 100)
upstream = torch.randn_like(mixing)
(right,) = torch.autograd.grad(mixing, logits, upstream)
expected, actual = "a largest error of 1e-5 for each scale", {}
for scale in (1.0, 1e-2, 1e-4, 1e-6):
    found = mhc.mhc_bwd(mixing.detach().float().to(DEVICE), (scale * upstream).float().to(DEVICE))
    actual[scale] = f"{((found.double().cpu() / scale - right).abs().max() / right.abs().max()).item():.1e}"
wrong = float(actual[1e-6]) > 1e-2

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
