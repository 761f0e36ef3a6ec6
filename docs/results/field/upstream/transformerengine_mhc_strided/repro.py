"""mHC: alpha and norm_weight that are not contiguous are read as if they were: wrong results, accesses out of bounds.

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


def stand_in(name, **names):
    sys.modules[name] = type(sys)(name)
    vars(sys.modules[name]).update(names)


kernels = load("transformer_engine/common/triton/mhc.py")
stand_in("transformer_engine.common.triton.mhc", **vars(kernels))
stand_in("transformer_engine.pytorch.cpp_extensions.gemm", general_gemm=None)  # not called with a norm_weight
mhc = load("transformer_engine/pytorch/triton/mhc.py")
if not CUDA:
    for one in vars(kernels).values():  # the interpreter cannot time configs
        if hasattr(one, "configs"):
            one.configs = one.configs[:1]
            one.early_config_prune = None
torch.manual_seed(0)
h, ms = torch.randn(2, 32, device=DEVICE), torch.ones(2, device=DEVICE)
beta = torch.zeros(1, 24, device=DEVICE)
gates = torch.tensor([[0.5, 10.0], [0.25, 10.0], [0.125, 10.0]], device=DEVICE)
alpha = gates[:, 0]  # 0.5, 0.25, 0.125, with a stride of 2
expected = mhc.mhc_fused_scale(h, alpha.contiguous(), beta, ms, 4)[2][0, :3].tolist()
actual = mhc.mhc_fused_scale(h, alpha, beta, ms, 4)[2][0, :3].tolist()
wrong = expected != actual

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
