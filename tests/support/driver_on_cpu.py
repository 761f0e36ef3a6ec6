"""CUDA's driver on the CPU, for kernels of `mhc.programs`: a "cubin" is a library that g++ makes of the same source."""

import re
import subprocess
from pathlib import Path

from tests.support.cuda_on_cpu import HEADER

_DRIVER = r"""
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int cuInit(unsigned f) { return 0; }
int cuDeviceGet(int *d, int n) { *d = 0; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = d == 0 ? (void *)1 : 0; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuMemAlloc_v2(uint64_t *p, size_t n) { *p = (uint64_t)aligned_alloc(256, (n + 255) / 256 * 256); return 0; }
int cuMemFree_v2(uint64_t p) { free((void *)p); return 0; }
int cuMemcpyHtoD_v2(uint64_t p, const void *h, size_t n) { memcpy((void *)p, h, n); return 0; }
int cuMemcpyDtoH_v2(void *h, uint64_t p, size_t n) { memcpy(h, (void *)p, n); return 0; }
int cuModuleLoadData(void **m, const char *path) { *m = dlopen(path, RTLD_NOW); return *m ? 0 : 1; }
int cuModuleUnload(void *m) { return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) {
  char entry[64];
  snprintf(entry, sizeof entry, "enter_%s", name);
  *f = dlsym(m, entry);
  return *f ? 0 : 500;
}
int cuFuncSetAttribute(void *f, int a, int v) { return a != 8; }
int cuGetErrorString(int s, const char **t) { *t = "an error"; return 0; }
int cuLaunchKernel(int (*f)(unsigned *, unsigned, void **), unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **given, void *more) {
  unsigned sizes[6] = {gx, gy, gz, bx, by, bz};
  return f(sizes, shared, given) ? 700 : 0;
}
"""


def driver(folder: Path) -> Path:
    """Return the library that stands for CUDA's driver."""
    path = folder / "driver.c"
    path.write_text(_DRIVER, encoding="utf-8")
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", str(path), "-o", str(path.with_suffix(".so"))], check=True)
    return path.with_suffix(".so")


def compiled(text: str, path: Path, arch: str) -> str:
    """Take the place of `tilelang_cuda._nvcc`."""
    body = re.sub(r"^#.*$", "", text, flags=re.MULTILINE).replace('extern "C" __global__', "__global__")
    shared = r"\1* \2 = (\1*)(((uintptr_t)cpu.shared.data() + 15) / 16 * 16);"
    body = re.sub(r"extern __shared__ __align__\(\d+\) (\w+) (\w+)\[\];", shared, body)
    body = re.sub(r"__shared__ __align__\(\d+\)", "static", body)
    entries = []
    for number, name, parameters in re.findall(
        r"namespace program_(\d+) \{.*?__global__ void (\w+)\((.*?)\);", body, re.DOTALL
    ):
        types = [one.replace("__restrict__", "").rsplit(maxsplit=1)[0] for one in parameters.split(", ") if one]
        given = "".join(f", *({one}*)given[{place}]" for place, one in enumerate(types))
        entries.append(
            f'extern "C" int enter_{name}(unsigned *s, unsigned shared, void **given) {{ return launch_plainly('
            f"program_{number}::{name}, dim3(s[0], s[1], s[2]), dim3(s[3], s[4], s[5]), shared, nullptr{given}); }}"
        )
    source = path.with_suffix(".cpp")
    head = f"{HEADER.read_text(encoding='utf-8')}\n#define __restrict__\ntypedef _Float16 half_t;\n"
    source.write_text(head + body + "\n".join(entries), encoding="utf-8")
    library = path.with_suffix(".so")
    options = ["-std=c++17", "-O0", "-w", "-shared", "-fPIC"]
    done = subprocess.run(["g++", *options, str(source), "-o", str(library)], capture_output=True, text=True, check=False)
    path.with_suffix(".cubin").write_bytes(str(library).encode() + b"\0")
    return done.stderr
