"""What needs TileLang imported: lowering a prim_func, and compiling it into a shared library. `cache` calls it.

It uses the parts of TileLang's "cython" backend (the generated host function; for the CPU also the compiler's command line),
not its adapter, which would load the library and look for a device.

For CUDA the kernels and the host function are compiled apart, at the same time: each kernel by nvcc into a cubin, the host
function as plain C++ against `host.h`. As one source, nvcc took five times as long: it reads CUTLASS's headers
(14 MB) three times, once for each side and once more to put them together.
"""

import multiprocessing
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tilelang
from tilelang import tvm
from tilelang.contrib.nvcc import get_target_arch, get_target_compute_version
from tilelang.engine.lower import lower as lower_to_source
from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH
from tilelang.intrinsics.wgmma_macro_generator import TensorCoreIntrinEmitter
from tilelang.jit.adapter.libgen import LibraryGenerator
from tilelang.jit.adapter.utils import is_cpu_target
from tilelang.jit.adapter.wrapper import TLCPUSourceWrapper, TLWrapper
from tvm_ffi import Map

from mhc.implementation import Refused
from mhc.operators.mhc_pre.tilelang.compile.dependencies import compiler_path
from mhc.operators.mhc_pre.tilelang.compile.host import cpu_source, device_source, host_source

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
    quick = patch.object(Map, "get", _get)
    wide = patch.object(TensorCoreIntrinEmitter, "_initialize_wgmma_prefix", _widest_product)
    with quick, wide, tvm.transform.PassContext(opt_level=3, config=configs), tvm.target.Target(target) as entered:
        yield entered


def _get(found: Any, key: Any, default: Any = None) -> Any:
    """`Map.get` that raises nothing inside: at its first error TVM reads the symbols of all libraries, which takes 0.7 s."""
    return found[key] if key in found else default  # noqa: SIM401 - it stands for `get`


def _widest_product(emitter: Any, n_dim: int = 16) -> None:
    """Give a warp group the fewest products: for its columns TileLang takes gcd(columns, 256), of 80 columns five of 16.

    Checked for right sides with K in rows; of others the width picks the swizzle too. The signature is TileLang's.
    """
    columns = emitter.warp_col_tiles
    assert columns % 8 == 0, f"wgmma has products of multiples of 8 columns, not {columns}"
    emitter.wgmma_inst_m = 64
    emitter.wgmma_inst_n = max(width for width in range(8, min(columns, 256) + 1, 8) if columns % width == 0)
    emitter.wgmma_prefix = f"m64n{emitter.wgmma_inst_n}k{256 // tvm.DataType(emitter.a_dtype).bits}"


def lower(function: Any, target: str, pass_configs: dict[str, Any]) -> Any:
    """TileLang's CompiledArtifact: source, host and device modules. No device and no compiler of the target is needed.

    Raises:
        Refused: the installed TileLang was built without that target.
    """
    with _on(target, pass_configs) as entered:
        return lower_to_source(function, target=entered)


class _CPUWrapper(TLCPUSourceWrapper):  # type: ignore[misc]  # TileLang has no types
    """Takes the kernels' names from what is lowered already; for them TileLang's own lowers all of it again."""

    def parse_source_information(self) -> None:
        self.function_names = [variable.name_hint for variable in self.device_mod.functions]


def sources(function: Any, target: str, pass_configs: dict[str, Any]) -> tuple[str, str]:
    """The kernels, and the C function `call` that launches them."""
    with _on(target, pass_configs) as entered:
        artifact = lower_to_source(function, target=entered)
        module = tvm.IRModule({function.attrs["global_symbol"]: function})
        kernels: str = artifact.kernel_source
        if is_cpu_target(entered):
            code = _CPUWrapper(module, kernels, entered, device_mod=artifact.device_mod).lib_code
            return kernels, code.removeprefix(kernels)
        wrapper = TLWrapper(entered)
        wrapper.assign_optimized_module(module)
        wrapper.assign_pass_configs(pass_configs)
        wrapper.assign_host_module(artifact.host_mod)
        wrapper.assign_device_module(artifact.device_mod)
        return kernels, wrapper.wrap(kernels).removeprefix(kernels)


def build(
    function: Any, target: str, pass_configs: dict[str, Any], flags: list[str], *, forks: bool
) -> tuple[list[tuple[str, str]], dict[str, bytes]]:
    """Compile: the (name, type) of what the library's `call` takes, and the files of the program by their suffix.

    For CUDA the library has a function `load` too: it takes what the cubins' paths begin with, and is called before `init`.
    forks: a process may be forked for each kernel, since this one has neither threads nor a device.
    """
    if target.startswith("cuda"):
        return [*_arguments(function), ("stream", "handle")], _cuda(function, target, pass_configs, flags, forks=forks)
    kernels, host = sources(function, target, pass_configs)
    with _on(target, pass_configs) as entered:
        generator = LibraryGenerator(entered)
        generator.assign_pass_configs(pass_configs)
        generator.assign_compile_flags(flags)
        generator.update_lib_code(cpu_source(kernels) + host)
        generator.compile_lib()
    library, source = Path(generator.libpath), Path(generator.srcpath)
    content = library.read_bytes()
    library.unlink()
    source.unlink()
    return _arguments(function), {".so": content}


def _cuda(function: Any, target: str, pass_configs: dict[str, Any], flags: list[str], *, forks: bool) -> dict[str, bytes]:
    """A cubin for each kernel, lowered and compiled beside the others, and the library that launches them all."""
    with _on(target, pass_configs) as entered:
        arch = get_target_arch(get_target_compute_version(entered))
    kernels = _apart(function)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def begin(i: int) -> tuple[tuple[str, str], "subprocess.Popen[str]"]:
            texts = sources(kernels[i], target, pass_configs)
            (folder / f"{i}.cu").write_text(device_source(texts[0]), encoding="utf-8")
            headers = [f"-I{CUTLASS_INCLUDE_DIR}", f"-I{TILELANG_TEMPLATE_PATH}"]
            options = ["-lineinfo", "-cubin", "-gencode", f"arch=compute_{arch},code=sm_{arch}", *headers, *flags]
            return texts, _nvcc(folder, f"{i}.cu", f"program.{i}.cubin", options)

        if forks and len(kernels) > 1:
            parts, unfinished = _forked(begin, len(kernels))
        else:
            begun = [begin(i) for i in range(len(kernels))]
            parts, unfinished = [texts for texts, _ in begun], [partial(_finish, nvcc) for _, nvcc in begun]
        (folder / "host.cpp").write_text(host_source(parts), encoding="utf-8")
        options = ["-O1", "-shared", "-cudart", "none", "-Xcompiler", "-fPIC"]
        _finish(_nvcc(folder, "host.cpp", "program.so", options))
        for finish in unfinished:
            finish()
        suffixes = [".so", *(f".{i}.cubin" for i in range(len(kernels)))]
        return {suffix: (folder / f"program{suffix}").read_bytes() for suffix in suffixes}


def _apart(function: Any) -> list[Any]:
    """A function for each kernel of one, with the same parameters; lowered together they take longer than one by one."""

    def apart(statement: Any) -> list[Any]:
        if isinstance(statement, tvm.tir.SeqStmt):
            return list(statement.seq)
        if isinstance(statement, tvm.tir.LetStmt):
            return [tvm.tir.LetStmt(statement.var, statement.value, body) for body in apart(statement.body)]
        if isinstance(statement, tvm.tir.BlockRealize) and not statement.block.alloc_buffers:
            block = statement.block
            names = ("iter_vars", "reads", "writes", "name_hint")
            return [
                tvm.tir.BlockRealize(
                    statement.iter_values,
                    statement.predicate,
                    tvm.tir.Block(*(getattr(block, name) for name in names), body, annotations=block.annotations),
                )
                for body in apart(block.body)
            ]
        return [statement]

    bodies = apart(function.body)
    return [function] if len(bodies) == 1 else [function.with_body(body) for body in bodies]


def _forked(begin: Callable[[int], Any], count: int) -> tuple[list[tuple[str, str]], list[Callable[[], None]]]:
    """The texts of `begin` for each of count kernels, made in processes of their own, and what waits for their compilers."""
    fork = multiprocessing.get_context("fork")

    def work(i: int, sender: Any) -> None:
        try:
            texts, nvcc = begin(i)
            sender.send(texts)
            _finish(nvcc)
            sender.send(None)
        except Exception as error:  # it is raised again where it is awaited
            sender.send(error)

    def received(receiver: Any) -> Any:
        value = receiver.recv()
        if isinstance(value, Exception):
            raise value
        return value

    receivers = []
    for i in range(count):
        receiver, sender = fork.Pipe(duplex=False)
        fork.Process(target=work, args=(i, sender)).start()
        sender.close()  # so that the end of a process that dies is seen
        receivers.append(receiver)
    return [received(one) for one in receivers], [partial(received, one) for one in receivers]


def _nvcc(folder: Path, source: str, made: str, options: list[str]) -> "subprocess.Popen[str]":
    command = [str(compiler_path("cuda")), "-std=c++17", "-w", *options, source, "-o", made]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _finish(compiler: "subprocess.Popen[str]") -> None:
    """Wait for it.

    Raises:
        RuntimeError: with its first error.
    """
    said = compiler.communicate()[0]
    if compiler.returncode != 0:
        raise RuntimeError(next((line for line in said.splitlines() if "error" in line), said))


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
