"""A reduction inside an expression of te.compute."""
# mypy: ignore-errors

import tilelang
import torch
import tvm
from tvm import te
from tvm.tir import transform

lower = tvm.transform.Sequential(
    [
        transform.LowerInitBlock(),
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(),
        transform.CompactBufferAllocation(),
        transform.LowerOpaqueBlock(),
    ]
)


def compiled(A, B):
    module = lower(tvm.IRModule({"main": te.create_prim_func([A, B]).with_attr("global_symbol", "main")}))
    return tilelang.compile(module["main"], target="c", execution_backend="cython")


def in_an_expression():
    A = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    return te.compute((4,), lambda i: te.sqrt(te.sum(A[i, k], axis=k)), name="B")


def in_a_reduction_is_accepted():
    A = te.placeholder((4, 8), name="A")
    k, j = te.reduce_axis((0, 8), name="k"), te.reduce_axis((0, 8), name="j")
    B = te.compute((4,), lambda i: te.sum(te.sum(A[i, k], axis=k) * A[i, j], axis=j), name="B")
    return "T.reduce" in te.create_prim_func([A, B]).script()


def in_a_reduction_compiled():
    A = te.placeholder((4, 8), name="A")
    k, j = te.reduce_axis((0, 8), name="k"), te.reduce_axis((0, 8), name="j")
    B = te.compute((4,), lambda i: te.sum(te.sum(A[i, k], axis=k) * A[i, j], axis=j), name="B")
    return compiled(A, B)


def instead_two_stages():
    A = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    B = te.compute((4,), lambda i: te.sum(A[i, k] * A[i, k], axis=k), name="B")
    C = te.compute((4,), lambda i: te.sqrt(B[i]), name="C")
    kernel = compiled(A, C)
    a, c = torch.randn(4, 8), torch.empty(4)
    kernel(a, c)
    return torch.allclose(c, a.norm(dim=1), rtol=1e-6)


if __name__ == "__main__":
    from runner import show

    show(globals())
