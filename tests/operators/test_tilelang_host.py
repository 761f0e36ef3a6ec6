"""The host side of CUDA programs, against a driver that only says what it was asked for. Needs nvcc, and no GPU."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mhc.operators.mhc_pre.tilelang.compile.dependencies import compiler_path, missing
from mhc.operators.mhc_pre.tilelang.compile.host import cpu_source, device_source, host_source
from tests.support.helpers import ROOT

KERNELS = """
import tilelang.language as T

def two(*, n):
    N = T.dynamic("N")

    @T.prim_func
    def main(a: T.Tensor((N, n), "float32"), s: T.float32, b: T.Tensor((N, n), "float32")):
        with T.Kernel(N, threads=32) as t:
            for j in T.Parallel(n):
                b[t, j] = a[t, j] * s
        with T.Kernel(T.ceildiv(N, 4), threads=64) as t:
            rows = T.alloc_shared((4, n), "float32")
            T.copy(b[t * 4, 0], rows)
            for i, j in T.Parallel(4, n):
                b[t * 4 + i, j] = rows[i, j] + T.float32(1)

    return main
"""
DRIVER = r"""
#include <cuda.h>
#include <stdio.h>
#include <string.h>
#define API extern "C" CUresult
static const char* names[8];
API cuGetErrorName(CUresult, const char** text) { *text = "CUDA_ERROR"; return CUDA_SUCCESS; }
API cuGetErrorString(CUresult, const char** text) { *text = "something failed"; return CUDA_SUCCESS; }
API cuCtxGetDevice(CUdevice* device) { *device = 3; return CUDA_SUCCESS; }
static CUcontext current = nullptr;
API cuCtxGetCurrent(CUcontext* context) { *context = current; return CUDA_SUCCESS; }
API cuDeviceGet(CUdevice* device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  printf("context of %d\n", device);
  *context = (CUcontext)7;
  return CUDA_SUCCESS;
}
API cuCtxSetCurrent(CUcontext context) { current = context; return CUDA_SUCCESS; }
API cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) { return CUDA_SUCCESS; }
API cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                          unsigned) {
  FILE* file = fopen(path, "rb");
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  fclose(file);
  printf("load %s\n", strrchr(path, '/') + 1);
  *library = (CUlibrary)1;
  return CUDA_SUCCESS;
}
API cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  static size_t count = 0;
  names[++count] = name;
  *kernel = (CUkernel)count;
  return CUDA_SUCCESS;
}
API cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** arguments, void**) {
  printf("%zu %s grid %u block %u stream %p first %p\n", (size_t)f, names[(size_t)f], c->gridDimX, c->blockDimX,
         (void*)c->hStream, *(void**)arguments[0]);
  return c->gridDimX > 100 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
API cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                           const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill) { return CUDA_SUCCESS; }
"""
SCRIPT = textwrap.dedent("""
    import ctypes, json, sys
    from pathlib import Path
    from mhc.operators.mhc_pre.tilelang.compile.cache import Program, _files, _layout
    recipe = json.loads(sys.stdin.read())
    library, record = _files(recipe)
    ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
    two = ctypes.CDLL(str(library))
    two.get_last_error.restype = ctypes.c_char_p
    arguments = json.loads(record.read_text())["arguments"]
    prefix = str(library.with_suffix("")).encode()
    assert two.load(prefix + b"-") != 0 and b"failed" in two.get_last_error()
    assert two.load(prefix) == 0 and two.load(prefix) == 0 and two.init() == 0
    program = Program("two", tuple(arguments), two, _layout(arguments))
    values = {"a": 0xA0, "s": 2.0, "b": 0xB0, "N": 9, "stream": 0x57}
    program(*(values[name] for name, _ in arguments))
    said = ""
    try:
        program(*({**values, "N": 400}[name] for name, _ in arguments))
    except Exception as error:
        said = str(error)
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    print(said)
    print([name for name, _ in arguments], sorted(path.name.partition(".")[2] for path in library.parent.iterdir()))
""")


@pytest.mark.slow
@pytest.mark.skipif(missing("cuda") is not None, reason="compiles with nvcc: it is not here")
def test_a_program_of_two_kernels(tmp_path: Path) -> None:
    """Compiled as `prebuild` does, a process for each kernel; launched in order, on the stream, up to the first error."""
    (tmp_path / "two.py").write_text(KERNELS)
    (tmp_path / "driver.cpp").write_text(DRIVER)
    environment = {
        **os.environ,
        "MHC_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
    }
    recipe = json.dumps({
        "factory": "two:two", "target": "cuda -arch=sm_90a", "constants": {"n": 32}, "pass_configs": {}, "flags": [],
    })  # fmt: skip
    nvcc = [str(compiler_path("cuda")), "-shared", "-cudart", "none", "-Xcompiler", "-fPIC", "driver.cpp", "-o", "driver.so"]
    driver = subprocess.Popen(nvcc, cwd=tmp_path)
    subprocess.run(
        [sys.executable, "-m", "mhc.operators.mhc_pre.tilelang.compile.cache"],
        input=recipe,
        env=environment,
        cwd=tmp_path,
        text=True,
        check=True,
    )
    assert driver.wait() == 0
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "driver.so")]
    done = subprocess.run(
        command, input=recipe, env=environment, cwd=tmp_path, text=True, check=True, stdout=subprocess.PIPE
    ).stdout.splitlines()
    assert [line.partition(".")[2] for line in done[:2]] == ["0.cubin", "1.cubin"]
    assert done[2] == "context of 0"  # the thread had none
    first, second, third, error, names = done[3:]
    assert first.startswith("1 main_kernel grid 9 block 32 stream 0x57 first 0x")
    # with a warp group that loads
    assert second.startswith("2 main_kernel grid 3 block 192 stream 0x57 first 0xb0")
    assert third.startswith("1 main_kernel grid 400 ")
    assert error == "two: main_kernel: CUDA_ERROR - something failed"
    assert names == "['a', 's', 'b', 'N', 'stream'] ['0.cubin', '1.cubin', 'json', 'lock', 'so']"


def test_headers_that_are_not_needed_are_left_out() -> None:
    header = "#include <tl_templates/cuda/gemm.h>\n"
    assert "gemm.h" not in device_source(f"{header}__global__ void main_kernel() {{}}")
    for call in ("gemm_ss<64>(a, b, c)", "wait_wgmma<0>()"):
        assert "gemm.h" in device_source(f"{header}tl::{call};")


def test_launches_become_calls() -> None:
    kernels = 'extern "C" __global__ void k(float* a, int N);\nextern "C" __global__ void k(float* a, int N) {\n}\n'
    host = 'extern "C" int call(float* __restrict__ a, int N, cudaStream_t stream=cudaStreamDefault) {\n'
    source = host_source([(kernels, host + "\tk<<<dim3((N + 3) / 4, 1, 1), dim3(64, 1, 1), 0, stream>>>(a, N);\n}\n")])
    assert "launch_plainly(k, dim3((N + 3) / 4, 1, 1), dim3(64, 1, 1), 0, stream, a, N);" in source
    assert "part_0::call(given->a, given->N, given->stream)" in source
    assert "float* __restrict__ a; int N; cudaStream_t stream;" in source
    assert '{(void*)part_0::k, "k", 0, nullptr}' in source


def test_c_without_float16_is_compiled_without_tilelangs_headers() -> None:
    headers = "#include <tl_templates/cpp/common.h>\n#include <tl_templates/cpp/gemm.h>\n"
    plain = "void f(float* x) { for (int i = 0; i < 5; ++i) x[i] = expf(x[i]); }\n"
    assert "tl_templates" not in cpu_source(headers + plain)
    assert plain in cpu_source(headers + plain)
    for use in ("void f(half* x) {}", "half v = x[0];", "y[0] = ((half*)p)[0];", "half4 v;"):
        assert cpu_source(headers + use) == headers + use
