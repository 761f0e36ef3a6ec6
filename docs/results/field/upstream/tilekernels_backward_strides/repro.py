"""TileKernels: the backward of mHC's Sinkhorn and of its collapse raises on a gradient that is not contiguous, as of a sum.

Run it as `python repro.py CHECKOUT`, on sm_90 or sm_100, with TileLang 0.1.9 or newer.
Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong (without a GPU, say).
"""

import importlib
import os
import sys

import torch


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other

for name in ("tile_kernels", "tile_kernels.modeling"):  # whose __init__.py import more than is needed
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [os.path.join(sys.argv[1], name.replace(".", "/"))]
mhc = importlib.import_module("tile_kernels.modeling.mhc.functional")
torch.manual_seed(0)
logits = torch.randn(8, 4, 4, device="cuda", requires_grad=True)
x = torch.randn(8, 4, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
mix = torch.rand(8, 4, 1, device="cuda", requires_grad=True)
failed = []
for name, compute in (
    ("sinkhorn_normalize", lambda: mhc.sinkhorn_normalize(logits, 10, 1e-6)),
    ("mhc_pre_apply_mix", lambda: mhc.mhc_pre_apply_mix(x, mix)),
):
    y = compute()
    y.backward(torch.ones_like(y))  # runs
    try:
        compute().sum().backward()
    except RuntimeError as error:
        failed.append(name)
        print(f"{name}(...).sum().backward(): expected no exception, actual RuntimeError: {error}")

print("REPRODUCED" if failed else "NOT REPRODUCED")
sys.exit(bool(failed))
