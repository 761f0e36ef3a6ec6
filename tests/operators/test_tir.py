"""`tir`: the script as plain loops on the CPU, and its CUDA kernel, whose threads run here as threads of the CPU."""

import ctypes
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import Implementation
from mhc.case import with_tensor
from mhc.fuzz.check.check import check
from mhc.operator import STORAGE_DTYPES
from mhc.operators.mhc_pre.shapes import MAX_N
from mhc.operators.mhc_pre.tilelang.compile.cache import Counts, kernel_source
from mhc.operators.mhc_pre.tilelang.cpu import PASSES, weight
from mhc.operators.mhc_pre.tir.forward import PLAIN, TILES, TILES_FLOAT64
from mhc.operators.mhc_pre.tir.implementations import TIR
from mhc.oracles.verdict import Status
from tests.support.helpers import bits, failing, judged, observed, scaled_case, with_layout
from tests.support.needs import needs_tilelang

pytestmark = needs_tilelang

SHAPES = {
    "one": {"S": 1, "n": 1, "D": 1},
    "odd": {"S": 5, "n": 3, "D": 7},
    "a chunk": {"S": 2, "n": 2, "D": PLAIN["chunk"] // 2},
    "over a chunk": {"S": 2, "n": 1, "D": PLAIN["chunk"] + 1},
    "over a chunk and a block's tokens on a GPU": {"S": TILES["tokens"] + 1, "n": 3, "D": TILES["chunk"] // 3 + 1},
    "all streams": {"S": 3, "n": MAX_N, "D": 5},
}
GAMMA = {"gamma": frozenset[str](), "nogamma": frozenset({"gamma"})}
CUDA = ("cuda -arch=sm_80", "cuda -arch=sm_90", "cuda -arch=sm_100")


def assert_right(implementation: Implementation, **fields: Any) -> None:
    observation, _, verdicts = judged(implementation, scaled_case(B=1, **fields))
    assert not failing(verdicts), verdicts
    assert {one.subject for one in verdicts if one.oracle == "bound" and one.status is Status.PASS} == {*observation.outputs}


@pytest.mark.parametrize("gamma", GAMMA)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", STORAGE_DTYPES)
def test_plain_loops(dtype: str, shape: str, gamma: str) -> None:
    assert_right(TIR, dtype=dtype, absent=GAMMA[gamma], **SHAPES[shape])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", STORAGE_DTYPES)
def test_on_a_gpu(dtype: str, shape: str) -> None:
    verdicts = check(TIR, scaled_case(B=1, dtype=dtype, **SHAPES[shape]), "cuda").verdicts
    assert not failing(verdicts)
    assert {"h_in", "h_res"} <= {verdict.subject for verdict in verdicts if verdict.status is Status.PASS}


@pytest.mark.parametrize(("n", "D"), [(1, 65536), (4, 16384)])
def test_long_sums_of_equal_terms_stay_inside_the_bound(n: int, D: int) -> None:
    """A plain loop is at 2.5 times the bound for 4,096 terms (docs/tolerances.md)."""
    case = scaled_case(B=1, S=1, n=n, D=D, dtype="float32")
    for spec in case.table.drawn:
        case = with_tensor(case, spec.name, kind="constant", scale=0.1)
    _, _, verdicts = judged(TIR, case)
    assert not failing(verdicts), verdicts
    ratios = {one.subject: one.ratio for one in verdicts if one.oracle == "bound"}
    assert all((ratios[name] or 1) < 0.5 for name in ("h_mix", "inv_rms")), ratios


def test_views_repetition_and_a_nan_in_one_token() -> None:
    """Bit for bit: the copy's result, the first run's, and the other tokens' without the NaN."""
    case = scaled_case(B=2, S=5, n=3, D=8)
    strided = with_layout(with_layout(case, "x", order=(3, 2, 1, 0), step=2, offset=1), "phi", order=(1, 0))
    spoilt = with_tensor(case, "x", literals=(((1, 2, 1, 4), float("nan")),))
    others = torch.ones(2, 5, dtype=torch.bool)
    others[1, 2] = False
    once, again, moved, dirty = (observed(TIR, one).outputs for one in (case, case, strided, spoilt))
    for name, value in once.items():
        damaged = dirty[name]
        assert value is not None
        assert damaged is not None
        assert bits(value) == bits(again[name]) == bits(moved[name]), name
        assert bits(value[others]) == bits(damaged[others]), name
        assert damaged[~others].isnan().any(), name
    assert not failing(judged(TIR, spoilt)[2])


def test_one_program_for_all_shapes() -> None:
    """B, S, n, D and gamma compile nothing; bfloat16 has the program of float32."""
    observed(TIR, scaled_case(B=1, S=1, n=1, D=1, dtype="float32"))
    before = Counts.compiled + Counts.loaded
    for shape in SHAPES.values():
        for absent in GAMMA.values():
            observed(TIR, scaled_case(B=2, dtype="bfloat16", absent=absent, **shape))
    assert Counts.compiled + Counts.loaded == before


def cuda_source(target: str, dtype: str, tiles: Mapping[str, int]) -> str:
    constants: dict[str, str | int] = {"dtype": dtype, "max_n": MAX_N, **tiles}
    return kernel_source("mhc.operators.mhc_pre.tir.kernels:forward", target, constants, PASSES)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "dtype"), [*((target, "bfloat16") for target in CUDA), (CUDA[0], "float64")])
def test_lowers_for_gpus_that_are_not_here(target: str, dtype: str) -> None:
    tiles = TILES_FLOAT64 if dtype == "float64" else TILES
    source = cuda_source(target, dtype, tiles)
    assert f"__launch_bounds__({tiles['threads']}, 1)" in source
    shared = re.findall(r"__shared__ __align__\(\d+\) (float|double) \w+\[(\d+)\]", source)
    assert len(shared) == 6
    assert sum({"float": 4, "double": 8}[kind] * int(count) for kind, count in shared) <= 48 << 10
    assert "blockIdx.x" in source
    signature = source[source.rindex("tir_forward_kernel(") :].partition("{")[0]
    assert set(re.findall(r"int64_t (\w+)", signature)) == {"N", "K", "M", "n", "D"}
    names = set(re.findall(r"\* __restrict__ (\w+)", signature))
    assert names == {"x", "phi", "alpha", "bias", "gamma", "h_in", "h_post", "h_res", "inv_rms", "h_mix", "h_pre"}


# A fourth of the threads of a block on a GPU: a barrier of 256 takes long on few cores.
FEW: Mapping[str, int] = {**TILES, "threads": 64, "tokens": 8, "rows": 16}
# A block at a time; its threads are OpenMP's, and so is its barrier.
ON_CPU_THREADS = """
#include <math.h>
#include <omp.h>
#include <stdint.h>
struct Index { int x; };
struct float4 { float x, y, z, w; };
static Index blockIdx;
static thread_local Index threadIdx;
static float rsqrtf(float v) { return 1 / sqrtf(v); }
#define __global__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n)
#define __syncthreads() _Pragma("omp barrier")
%s
extern "C" void call(%s) {
  for (int64_t block = 0; block < (N + %d) / %d; ++block) {
    blockIdx.x = block;
    #pragma omp parallel num_threads(%d)
    {
      threadIdx.x = omp_get_thread_num();
      tir_forward_kernel(%s);
    }
  }
}
"""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """The forward whose kernel is the CUDA source."""
    kernel = re.sub(r"^#(?!pragma unroll).*$", "", cuda_source("cuda -arch=sm_90", "float32", FEW), flags=re.MULTILINE)
    kernel = kernel.replace("#pragma unroll", "")
    signature = re.search(r"tir_forward_kernel\((.*?)\);", kernel)
    assert signature is not None
    parameters = re.findall(r"([^,]*?)(\w+)(?:,|$)", signature[1])
    folder: Path = tmp_path_factory.mktemp("tir")
    names, tokens = [name for _, name in parameters], FEW["tokens"]
    (folder / "tir.cpp").write_text(
        ON_CPU_THREADS % (kernel, signature[1], tokens - 1, tokens, FEW["threads"], ", ".join(names))
    )
    command = ["g++", "-std=c++17", "-O1", "-fopenmp", "-shared", "-fPIC", "-o", "tir.so", "tir.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "tir.so"))
    library.call.argtypes = [
        ctypes.c_void_p if "*" in kind else ctypes.c_float if "float" in kind else ctypes.c_int64 for kind, _ in parameters
    ]

    def forward(
        x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
    ) -> tuple[Tensor, ...]:
        B, S, n, D = x.shape
        M = n * n + 2 * n
        shapes = {"h_in": (D,), "h_post": (n,), "h_res": (n, n), "inv_rms": (), "h_mix": (M,), "h_pre": (n,)}
        outputs = {name: torch.full((B, S, *shape), float("nan")) for name, shape in shapes.items()}
        values: dict[str, Any] = {
            "x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": weight(gamma, phi), **outputs,
            "norm_eps": norm_eps, "hc_eps": hc_eps, "N": B * S, "K": n * D, "M": M, "n": n, "D": D,
        }  # fmt: skip
        given = (values[name] for name in names)
        library.call(*(value.data_ptr() if isinstance(value, Tensor) else value for value in given))
        return tuple(outputs.values())

    return forward


@pytest.mark.parametrize(
    ("S", "n", "D"),
    [(3, 1, 1), (2, 3, 43), (FEW["tokens"] + 3, 4, 33), (2, 2, FEW["chunk"]), (1, 1, 2053), (2, 5, 9), (1, 11, 9)],
)
def test_the_cuda_kernel_on_threads_of_the_cpu(emulated: Callable[..., Any], S: int, n: int, D: int) -> None:
    """Around a thread's, a warp's and a chunk's worth of columns; n = 5 and 11 take more rows than a block has at a time."""
    implementation = Implementation(name="tir-emulated", forward=emulated, dtypes=("float32",))
    assert_right(implementation, S=S, n=n, D=D, dtype="float32")
