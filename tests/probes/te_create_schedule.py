"""te.create_schedule, and te.create_prim_func with a TIR schedule in its place."""
# mypy: ignore-errors

import tilelang
import torch
import tvm
from tvm import te
from tvm.tir import transform

# what a TIR schedule leaves and TileLang's own passes do not take
lower = tvm.transform.Sequential(
    [
        transform.LowerInitBlock(),
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(),
        transform.CompactBufferAllocation(),
        transform.LowerOpaqueBlock(),
    ]
)


def norms(N, D):
    A = te.placeholder((N, D), name="A")
    k = te.reduce_axis((0, D), name="k")
    B = te.compute((N,), lambda i: te.sum(A[i, k] * A[i, k], axis=k), name="B")
    C = te.compute((N,), lambda i: te.sqrt(B[i]), name="C")
    return A, B, C


def the_call():
    _, _, C = norms(4, 8)
    return te.create_schedule(C.op)


def create_prim_func_straight_to_tilelang():
    A, _, C = norms(4, 8)
    kernel = te.create_prim_func([A, C]).with_attr("global_symbol", "main")
    return tilelang.compile(kernel, target="c", execution_backend="cython")


def a_dynamic_stage_that_is_no_parameter():
    A, _, C = norms(te.var("N"), te.var("D"))
    kernel = lower(tvm.IRModule({"main": te.create_prim_func([A, C])}))["main"].with_attr("global_symbol", "main")
    return tilelang.compile(kernel, target="c", execution_backend="cython")


def instead_on_c():
    schedule = tvm.tir.Schedule(te.create_prim_func(norms(te.var("N"), te.var("D"))))  # B is a workspace: N is dynamic
    block = schedule.get_block("B")
    row, _ = schedule.get_loops(block)
    schedule.split(row, [None, 2])
    kernel = lower(schedule.mod)["main"].with_attr("global_symbol", "main")
    kernel = tilelang.compile(kernel, target="c", execution_backend="cython")
    for rows, columns in ((4, 8), (5, 3)):
        a, b, c = torch.randn(rows, columns), torch.empty(rows), torch.empty(rows)
        kernel(a, b, c)
        if not torch.allclose(c, a.norm(dim=1), rtol=1e-6):
            return rows, columns, c, a.norm(dim=1)
    return True


def instead_for_cuda():
    A, _, C = norms(64, 8)
    schedule = tvm.tir.Schedule(te.create_prim_func([A, C]))
    (row,) = schedule.get_loops(schedule.get_block("C"))
    block, thread = schedule.split(row, [None, 32])
    schedule.compute_at(schedule.get_block("B"), thread)
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    schedule.set_scope(schedule.get_block("B"), 0, "local")
    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        kernel = lower(schedule.mod)["main"].with_attr("global_symbol", "main")
        source = tilelang.lower(kernel, target=target).kernel_source
    return "__launch_bounds__(32, 1) main_kernel" in source, "float B_local[1];" in source


if __name__ == "__main__":
    from runner import show

    show(globals())
