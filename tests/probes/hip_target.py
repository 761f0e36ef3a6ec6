"""The HIP target."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import tvm

n = 128


@T.prim_func
def twice(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
    with T.Kernel(1, threads=n) as _:
        for i in T.Parallel(n):
            y[i] = x[i] * 2.0


def lower_for_it():
    target = tvm.target.Target("hip -mcpu=gfx942")
    with target:
        return tilelang.lower(twice, target=target)


def instead_ask_first():
    return tvm.get_global_func("target.build.tilelang_hip_without_compile", allow_missing=True) is not None


if __name__ == "__main__":
    from runner import show

    show(globals())
