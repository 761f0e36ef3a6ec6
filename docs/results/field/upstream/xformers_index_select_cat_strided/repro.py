"""index_select_cat: rows of the output are written with the strides of the source: wrong results, writes out of bounds.

Run it as `python repro.py CHECKOUT`. Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong.
Without a GPU it runs in Triton's interpreter.
"""

import importlib
import os
import sys
import types

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

for package in ("xformers", "xformers.ops", "xformers.ops._triton"):  # without their __init__.py
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [os.path.join(sys.argv[1], *package.split("."))]
kernels = importlib.import_module("xformers.ops._triton.k_index_select_cat")
if not CUDA:
    torch.Tensor.is_cuda = property(lambda _: True)  # it asks for tensors on a GPU

source = torch.arange(24.0, device=DEVICE).view(6, 4).T.contiguous().T  # column-major
index = torch.tensor([3, 0], device=DEVICE)
buffer = torch.full((64,), -1.0, device=DEVICE)  # the output is its first 8 elements
kernels.index_select_cat_fwd(buffer[:8].view(2, 4), source, index)
expected, actual = [*source[index].flatten().tolist(), -1.0], buffer[:9].tolist()
behind = int((buffer[8:] != -1).sum())
wrong = actual != expected or behind > 0

print(f"{behind} elements behind the output were written")
print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
