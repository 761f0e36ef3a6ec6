"""hc_head_fused_kernel: rows of the next token are added where there are 3 streams, or 1.

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


module = load("src/flag_gems/fused/mhc/hc_head_fused_kernel.py")
torch.manual_seed(0)
T, n, C = 8, 3, 64  # each tensor is followed by more rows of its kind: what is read there is known
x = torch.randn(T + 1, n, C, device=DEVICE).bfloat16()[:T]
fn = torch.cat([torch.randn(n, n * C) / 16, torch.zeros(2, n * C)]).to(DEVICE)[:n]
scale, base = torch.ones(1, device=DEVICE), torch.zeros(n + 1, device=DEVICE)[:n]
v = x.flatten(1).double()
mixes = v @ fn.double().T * torch.rsqrt(v.square().mean(-1, keepdim=True) + 1e-6)
right = ((mixes.sigmoid() + 1e-6).unsqueeze(-1) * x.double()).sum(1)
y = x.new_empty(T, C)
if CUDA:
    module.hc_head_fused_kernel(x, fn, scale, base, y, C, 1e-6, 1e-6, n)
else:  # the wrapper takes PyTorch on a CPU, and the interpreter cannot time configs
    module._hc_head_fused_kernel.configs = module._hc_head_fused_kernel.configs[:1]
    module._hc_head_fused_kernel[(T,)](x, fn, scale, base, y, T, C, 1e-6, 1e-6, n * C, n * C, C, HC=n)
expected, actual = right[0, :3].tolist(), y[0, :3].tolist()
wrong = not torch.allclose(y.double(), right, atol=0.1)

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
