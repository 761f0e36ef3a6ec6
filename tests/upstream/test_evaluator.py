"""TileLang's serial kernels without a compiler: the numbers that the source says, and where it reads what nobody wrote."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.exports import repro
from tests.support.needs import WITHOUT_TILELANG

if WITHOUT_TILELANG:
    pytest.skip(WITHOUT_TILELANG, allow_module_level=True)

from mhc.upstream.diagnose.attribution import EVALUATED, attribute
from mhc.upstream.diagnose.evaluator import Evaluated
from tests.support import serial_kernels as kernels


def evaluated(body: Callable[[int, int], object], rows: int = 2, columns: int = 3) -> tuple[Tensor, Tensor]:
    x = torch.arange(1.0, 1.0 + rows * columns).reshape(rows, columns) / 3
    y = torch.zeros(rows, columns)
    Evaluated(body(rows, columns))(x, y)
    return x, y


def test_each_operation_rounds_once_to_its_dtype() -> None:
    x, y = evaluated(kernels.rows_that_are_normed)
    given = x.numpy()
    total = np.zeros(2, np.float32)
    for column in range(3):
        total += given[:, column] * given[:, column]
    wanted = np.exp(-given.astype(np.float64)).astype(np.float32)
    wanted[:, ::2] = given[:, ::2] * (1 / np.sqrt(total.astype(np.float64))).astype(np.float32)[:, None]
    assert torch.equal(y, torch.from_numpy(wanted))


def test_what_nobody_wrote_is_nan() -> None:
    _, y = evaluated(kernels.read_before_it_is_written)
    assert y[0, 0].isnan()
    assert (y.flatten()[1:] == 0).all()


def test_what_is_not_known_raises() -> None:
    with pytest.raises(IndexError, match=r"y: element 6 of 6"):
        evaluated(kernels.beside_its_memory)
    with pytest.raises(NotImplementedError, match=r"no Call: T\.sin"):
        Evaluated(kernels.of_what_it_does_not_know(2, 3))
    with pytest.raises(NotImplementedError, match=r"no Call: T\.region"):
        Evaluated(kernels.with_a_copy(2, 3))
    with pytest.raises(NotImplementedError, match="no strides: x"):
        Evaluated(kernels.rows_that_are_normed(2, 3))(torch.zeros(3, 2).T, torch.zeros(2, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("local", "heals"), [("if x[0] > 2.0:\n                a[0] = 1.0", ()), ("a[0] = 1.0", (EVALUATED.name,))]
)
def test_a_program_that_reads_what_nobody_wrote_is_not_put_down_to_the_compiler(
    local: str, heals: tuple[str, ...], tmp_path: Path
) -> None:
    """As a compiler's fault it is planted: what is compiled always gives 3."""
    text = f"""
    import sys
    import tilelang
    import tilelang.language as T
    import torch

    @T.prim_func
    def kernel(x: T.Tensor((1,), "float32"), y: T.Tensor((1,), "float32")):
        with T.Kernel(1, is_cpu=True):
            a = T.alloc_local((1,), "float32")
            {local}
            y[0] = a[0]

    x, y = torch.ones(1), torch.zeros(1)
    made = tilelang.compile(kernel, target="c", execution_backend="cython")
    made(x, y)
    if isinstance(made, tilelang.JITKernel):
        y[0] = 3.0
    print(f"y[0]: expected 1.0, actual {{y[0].item()}}")
    print("NOT REPRODUCED" if y[0].item() == 1.0 else "REPRODUCED")
    sys.exit(y[0].item() != 1.0)
    """
    assert attribute(repro(tmp_path, text), [EVALUATED]).heals == heals
