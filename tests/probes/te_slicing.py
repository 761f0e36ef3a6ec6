"""Slicing a tensor inside te.compute."""
# mypy: ignore-errors

import tilelang
import torch
import tvm
from tvm import te
from tvm.tir import transform


def a_slice_in_compute():
    A = te.placeholder((4, 8), name="A")
    return te.compute((4, 4), lambda i, j: A[i, 0:4][j], name="B")


def a_row_of_a_tensor():
    A = te.placeholder((4, 8), name="A")
    return te.compute((4,), lambda i: A[i], name="B")


def instead_index_each_element():
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 4), lambda i, j: A[i, 2 + j], name="B")
    module = tvm.IRModule({"main": te.create_prim_func([A, B]).with_attr("global_symbol", "main")})
    module = transform.LowerOpaqueBlock()(transform.ConvertBlocksToOpaque()(module))
    kernel = tilelang.compile(module["main"], target="c", execution_backend="cython")
    a, b = torch.randn(4, 8), torch.empty(4, 4)
    kernel(a, b)
    return torch.equal(b, a[:, 2:6])


if __name__ == "__main__":
    from runner import show

    show(globals())
