"""linear_cross_entropy with softcap: columns of padding count in the logsumexp where the vocabulary is no multiple of 128.

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
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.is_bf16_supported = lambda *_: True


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other

for package in ("cut_cross_entropy",):  # without their __init__.py
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [os.path.join(sys.argv[1], *package.split("."))]

if not CUDA:  # the interpreter has no libdevice
    import triton
    import triton.language as tl

    @triton.jit
    def tanh(x):
        return 2 * tl.sigmoid(2 * x) - 1

    @triton.jit
    def log1p(x):
        return tl.log(1 + x)

    tl_utils = importlib.import_module("cut_cross_entropy.tl_utils")
    tl_utils.tl_libdevice = types.SimpleNamespace(tanh=tanh, log1p=log1p)

linear_cross_entropy = importlib.import_module("cut_cross_entropy.linear_cross_entropy").linear_cross_entropy

hidden, classifier = torch.ones(1, 16, device=DEVICE), torch.zeros(3, 16, device=DEVICE)  # three logits of 0
target = torch.tensor([0], device=DEVICE)
expected = torch.tensor(3.0).log().item()
actual = linear_cross_entropy(hidden, classifier, target, softcap=2.0, reduction="none", impl="cce_exact").item()
wrong = not abs(actual - expected) < 1e-4

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
