"""A descriptor stores a block at an offset below 0. Exits with 1: reproduced, 0: not. Needs a GPU of sm_90 or newer."""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def f(y, begin):
    described = tl.make_tensor_descriptor(y, shape=[8], strides=[1], block_shape=[32])
    described.store([begin], tl.arange(0, 32).to(tl.int16))


triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
print(f"Triton {triton.__version__}, {torch.cuda.get_device_name()}")
y = torch.zeros(64, dtype=torch.int16, device="cuda")
f[(1,)](y, 8)
torch.cuda.synchronize()
print("at 8:", y.tolist()[:9])
try:
    f[(1,)](y, -8)
    torch.cuda.synchronize()
except Exception as error:
    print("at -8:", str(error).splitlines()[0])
    sys.exit(1)
print("at -8:", y.tolist()[:9])
