"""LigerMultiTokenAttention does not compile for sequences longer than 1,024.

Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong.
"""

import os
import sys


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from liger_kernel.ops.multi_token_attention import _mask_fwd_kernel  # noqa: E402
from liger_kernel.ops.utils import calculate_settings  # noqa: E402

L = 2048
block, warps = calculate_settings(L)  # as `_mask_inf_forward` chooses them
signature = {one: "*fp32" for one in ("scores_ptr", "out_ptr")}
signature |= {one: "i32" for one in ("stride_b", "stride_m", "stride_n", "L")}
signature |= {one: "constexpr" for one in ("mask_val", "BLOCK", "num_warps")}
source = ASTSource(_mask_fwd_kernel, signature, {"mask_val": -1e9, "BLOCK": block, "num_warps": warps})
expected = "compiles for sm_90 (no GPU is needed for it)"
try:
    triton.compile(source, target=GPUTarget("cuda", 90, 32))
    actual, wrong = "compiles", False
except triton.CompilationError as error:
    actual, wrong = str(error.__cause__ or error).strip().splitlines()[-1], True

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
