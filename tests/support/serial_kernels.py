"""Small serial kernels of TileLang, for tests."""
# mypy: ignore-errors

import tilelang.language as T  # noqa: N812


def rows_that_are_normed(rows: int, columns: int) -> object:
    @T.prim_func
    def kernel(x: T.Tensor((rows, columns), "float32"), y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(1, is_cpu=True):
            total = T.alloc_local((1,), "float32")
            for r in T.serial(rows):
                total[0] = 0.0
                for c in T.serial(columns):
                    total[0] += x[r, c] * x[r, c]
                for c in T.serial(columns):
                    y[r, c] = T.if_then_else(c % 2 == 0, x[r, c] * T.rsqrt(total[0]), T.exp(-x[r, c]))

    return kernel


def read_before_it_is_written(rows: int, columns: int) -> object:
    @T.prim_func
    def kernel(x: T.Tensor((rows, columns), "float32"), y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(1, is_cpu=True):
            total = T.alloc_local((1,), "float32")
            for c in T.serial(columns):
                total[0] += x[0, c]
            y[0, 0] = total[0]

    return kernel


def beside_its_memory(rows: int, columns: int) -> object:
    @T.prim_func
    def kernel(x: T.Tensor((rows, columns), "float32"), y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(1, is_cpu=True):
            for c in T.serial(columns + 1):
                y[rows - 1, c] = x[0, 0]

    return kernel


def of_what_it_does_not_know(rows: int, columns: int) -> object:
    @T.prim_func
    def kernel(x: T.Tensor((rows, columns), "float32"), y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(1, is_cpu=True):
            for c in T.serial(columns - columns):
                y[0, c] = T.sin(x[0, c])

    return kernel


def with_a_copy(rows: int, columns: int) -> object:
    @T.prim_func
    def kernel(x: T.Tensor((rows, columns), "float32"), y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(1, is_cpu=True):
            local = T.alloc_local((columns,), "float32")
            T.copy(x[0, 0:columns], local)
            T.copy(local, y[0, 0:columns])

    return kernel
