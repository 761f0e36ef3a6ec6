"""What needs TileLang imported: lowering a prim_func, and compiling it into a shared library. `tilelang_build` calls it.

It uses the parts of TileLang's "cython" backend (the generated host function; for the CPU also the compiler's command line),
not its adapter, which would load the library and look for a device.

For CUDA the kernels and the host function are compiled apart, at the same time: kernels by nvcc into a cubin, the host
function as plain C++ against `tilelang_host.h`. As one source, nvcc took five times as long: it reads CUTLASS's headers
(14 MB) three times, once for each side and once more to put them together.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tilelang
from tilelang import tvm
from tilelang.contrib.nvcc import get_target_arch, get_target_compute_version
from tilelang.engine.lower import lower as lower_to_source
from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH
from tilelang.jit.adapter.libgen import LibraryGenerator
from tilelang.jit.adapter.wrapper import TLWrapper

from mhc.implementation import Refused
from mhc.pre.tilelang_depends import HOST_HEADER, compiler_path

_BUILD_FUNCTIONS = {"cuda": "target.build.tilelang_cuda", "hip": "target.build.tilelang_hip", "metal": "target.build.metal"}


@contextmanager
def _on(target: str, pass_configs: dict[str, Any]) -> Iterator[Any]:
    kind = target.split(maxsplit=1)[0]
    function = _BUILD_FUNCTIONS.get(kind)
    if function is not None and tvm.ffi.get_global_func(function, allow_missing=True) is None:
        raise Refused(
            f"TileLang {tilelang.__version__} as installed was built without {kind}: it needs a {kind} build of TileLang"
        )
    configs = {str(getattr(key, "value", key)): value for key, value in pass_configs.items()}
    with tvm.transform.PassContext(opt_level=3, config=configs), tvm.target.Target(target) as entered:
        yield entered


def lower(function: Any, target: str, pass_configs: dict[str, Any]) -> Any:
    """TileLang's CompiledArtifact: source, host and device modules. No device and no compiler of the target is needed.

    Raises:
        Refused: the installed TileLang was built without that target.
    """
    with _on(target, pass_configs) as entered:
        return lower_to_source(function, target=entered)


def sources(function: Any, target: str, pass_configs: dict[str, Any]) -> tuple[str, str]:
    """The kernels, and the C function `call` that launches them."""
    with _on(target, pass_configs) as entered:
        artifact = lower_to_source(function, target=entered)
        wrapper = TLWrapper(entered)
        wrapper.assign_optimized_module(tvm.IRModule({function.attrs["global_symbol"]: function}))
        wrapper.assign_pass_configs(pass_configs)
        wrapper.assign_host_module(artifact.host_mod)
        wrapper.assign_device_module(artifact.device_mod)
        kernels: str = artifact.kernel_source
        return kernels, wrapper.wrap(kernels).removeprefix(kernels)


def build(
    function: Any, target: str, pass_configs: dict[str, Any], flags: list[str]
) -> tuple[list[tuple[str, str]], dict[str, bytes]]:
    """Compile: the (name, type) of what the library's `call` takes, and the files of the program by their suffix.

    For CUDA the library has a function `load` too: it takes the cubin's path, and is called before `init`.
    """
    kernels, host = sources(function, target, pass_configs)
    with _on(target, pass_configs) as entered:
        if target.startswith("cuda"):
            arch = get_target_arch(get_target_compute_version(entered))
            return [*_arguments(function), ("stream", "handle")], _compiled(
                device_source(kernels), host_source(kernels, host), arch, flags
            )
        generator = LibraryGenerator(entered)
        generator.assign_pass_configs(pass_configs)
        generator.assign_compile_flags(flags)
        generator.update_lib_code(kernels + host)
        generator.compile_lib()
    library, source = Path(generator.libpath), Path(generator.srcpath)
    content = library.read_bytes()
    library.unlink()
    source.unlink()
    return _arguments(function), {".so": content}


def device_source(kernels: str) -> str:
    """The kernels without the headers that they do not need: half of the time of nvcc is reading them."""
    if "tl::gemm_" in kernels:
        return kernels
    return kernels.replace("#include <tl_templates/cuda/gemm.h>", "#include <tl_templates/cuda/intrin.h>")


def host_source(kernels: str, host: str) -> str:
    """TileLang's host code as plain C++: functions that stand for the kernels, and launches without <<< >>>."""
    declared = re.findall(r'^extern "C" (__global__ void (\w+)\(.*\));$', kernels, flags=re.MULTILINE)
    stubs = "".join(f"{declaration} {{}}\n" for declaration, _ in declared)
    table = ", ".join(f'{{(void*){name}, "{name}", nullptr}}' for _, name in declared)
    launches = re.sub(r"(\w+)<<<(.*), stream>>>\((.*)\);", r"launch_plainly(\1, \2, stream, \3);", host)
    return f"""{HOST_HEADER.read_text(encoding="utf-8")}
{stubs}
Kernel kernels[] = {{{table}}};
const int kernels_count = {len(declared)};
{launches}
extern "C" int load(const char* path) {{
  TILELANG_CHECK(load_kernels(path));
  return 0;
}}
"""


def _compiled(device: str, host: str, arch: str, flags: list[str]) -> dict[str, bytes]:
    """The cubin and the library, made at the same time.

    Raises:
        RuntimeError: one does not compile; with the compiler's first error.
    """
    nvcc = str(compiler_path("cuda"))
    headers = [f"-I{CUTLASS_INCLUDE_DIR}", f"-I{TILELANG_TEMPLATE_PATH}"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernels.cu").write_text(device, encoding="utf-8")
        (folder / "host.cpp").write_text(host, encoding="utf-8")
        commands = (
            [
                nvcc,
                "-std=c++17",
                "-w",
                "-lineinfo",
                "-cubin",
                *headers,
                *flags,
                "-gencode",
                f"arch=compute_{arch},code=sm_{arch}",
                "kernels.cu",
                "-o",
                "program.cubin",
            ],
            [
                nvcc,
                "-std=c++17",
                "-w",
                "-O1",
                "-shared",
                "-cudart",
                "none",
                "-Xcompiler",
                "-fPIC",
                "host.cpp",
                "-o",
                "program.so",
            ],
        )
        started = [
            subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for command in commands
        ]
        for process, said in [(process, process.communicate()[0]) for process in started]:
            if process.returncode != 0:
                raise RuntimeError(next((line for line in said.splitlines() if "error" in line), said))
        return {suffix: (folder / f"program{suffix}").read_bytes() for suffix in (".cubin", ".so")}


def _arguments(function: Any) -> list[tuple[str, str]]:
    """In the order of `call`: the parameters, then the dynamic sizes as they first appear in shapes, then in strides."""
    arguments: dict[str, str] = {}
    buffers = []
    for parameter in function.params:
        if parameter in function.buffer_map:
            buffers.append(function.buffer_map[parameter])
            arguments[buffers[-1].data.name] = "handle"
        else:
            arguments[parameter.name] = str(parameter.dtype)
    for buffer in buffers:
        arguments |= {
            one.name: str(one.dtype) for one in buffer.shape if isinstance(one, tvm.tir.Var) and one.name not in arguments
        }
    for buffer in buffers:
        arguments |= {
            one.name: str(one.dtype) for one in buffer.strides if isinstance(one, tvm.tir.Var) and one.name not in arguments
        }
    return list(arguments.items())
