"""mhc_pre: the second call with the same fn raises under torch.no_grad(), if fn requires no gradient.

Run it as `python repro.py CHECKOUT`. Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong.
Without a GPU it calls what mhc_pre calls for fn, since mhc_pre itself needs one.
"""

import importlib.util
import os
import sys

import torch


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


module = load("src/flag_gems/fused/mhc/mhc_pre.py")
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
x = torch.randn(64, 4, 1024, device=device, dtype=torch.bfloat16)
fn = torch.randn(24, 4096, device=device) / 64
scale, base = torch.ones(3, device=device), torch.zeros(24, device=device)


def call():
    if device == "cpu":
        return module._get_fn_bf16_cached(fn)
    return module.mhc_pre(x, fn, scale, base, 1e-6, 1e-6, 1e-6, 2.0, 20)


wrong = False
with torch.no_grad():
    call()
    print("first call: returned")
    try:
        call()
        print("second call: returned")
    except RuntimeError as error:
        if "ambiguous" not in str(error):
            raise
        print(f"second call: RuntimeError: {error}")
        wrong = True
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
