"""TileLang's CUDA target: the kernels of many programs in one file that nvcc compiles, launched through CUDA's driver."""

import ctypes
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mhc.programs import guarded, tilelang_lower
from mhc.programs.compile_error import CompileError, Run, end_process, run_nothing, synchronise
from mhc.programs.evaluate import passed_of
from mhc.programs.grammar import Program
from mhc.programs.guarded import GUARD
from mhc.programs.tilelang_text import render

DRIVER = "libcuda.so.1"
_LAUNCH = "// launch: "
_LARGE = 48 << 10  # bytes of shared memory that a kernel gets without asking for more
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def source_of(program: Program) -> str:
    """Return the text of the program."""
    return render(program, f"threads={program.threads}")


def here() -> str:
    """Return the architecture of the current GPU, as `sm_90`."""
    import torch  # noqa: PLC0415

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def lower(program: Program, arch: str | None = None) -> str:
    """Return the kernel that TileLang generates, below a line that says how it is launched.

    Args:
        arch: None: the current GPU's.

    Raises:
        CompileError: TileLang generates none.
    """
    artifact = tilelang_lower.lowered(source_of(program), {"kind": "cuda", "arch": arch or here()}, program.configs)
    for function in artifact.device_mod.functions.values():
        extent = {str(name): int(size) for name, size in function.attrs["thread_extent"].items()}
        launch = {
            "grid": [extent.get(f"blockIdx.{axis}", 1) for axis in "xyz"],
            "block": [extent.get(f"threadIdx.{axis}", 1) for axis in "xyz"],
            "shared": int(function.attrs.get("dyn_shared_memory_buf", 0)),
        }
        return f"{_LAUNCH}{json.dumps(launch)}\n{artifact.kernel_source}"
    raise CompileError("lower", "there is no kernel")


def only_lowered(
    programs: Sequence[Program], sources: Sequence[str], folder: Path, *, exact: bool = True
) -> list[Run | CompileError]:
    """Return what runs each program where nothing is compiled and run: it has no outputs."""
    return [run_nothing for _ in sources]


def only_compiled(
    programs: Sequence[Program], sources: Sequence[str], folder: Path, *, exact: bool = True, arch: str
) -> list[Run | CompileError]:
    """Compile what was lowered, which needs nvcc and no GPU; what runs each program has no outputs."""
    return [run_nothing if isinstance(one, Path) else one for one in cubins(sources, folder, arch)]


def prepare(
    programs: Sequence[Program], sources: Sequence[str], folder: Path, *, exact: bool = True
) -> list[Run | CompileError]:
    """Compile what was lowered for the current GPU, and return what runs each program twice.

    Args:
        folder: as for `mhc.programs.tilelang_c.prepare`. exact: makes no difference.
    """
    files = cubins(sources, folder, here())
    return [
        one if isinstance(one, CompileError) else _ready(one, number, source, program)
        for number, (program, source, one) in enumerate(zip(programs, sources, files, strict=True))
    ]


def cubins(sources: Sequence[str], folder: Path, arch: str) -> list[Path | CompileError]:
    """Return the file that holds each kernel, `f_kernel_0` and so on: one file for all where they compile together."""
    apart = [_renamed(source, number) for number, source in enumerate(sources)]
    headers = dict.fromkeys(map(_head, sources))
    everything = folder / "all.cu"
    if not _nvcc("\n".join([*headers, *apart]), everything, arch):
        return [everything.with_suffix(".cubin") for _ in sources]
    files: list[Path | CompileError] = []
    for number, source in enumerate(sources):
        path = folder / f"{number}.cu"
        error = _nvcc(f"{_head(source)}\n{apart[number]}", path, arch)
        files.append(CompileError("cc", error.replace(str(folder), "")) if error else path.with_suffix(".cubin"))
    return files


def launch_of(source: str) -> dict[str, Any]:
    """Return how a kernel is launched: its grid, its block and its bytes of dynamic shared memory."""
    launch: dict[str, Any] = json.loads(source.partition("\n")[0].removeprefix(_LAUNCH))
    return launch


def _head(source: str) -> str:
    """Return what stands before the kernel: headers, and what switches them."""
    return source[len(source.partition("\n")[0]) : source.index('extern "C"')]


def _renamed(source: str, number: int) -> str:
    """Return a kernel with a name of its own, in a namespace: shared memory has one name in many kernels."""
    kernel = re.sub(r"\bf_kernel\b", f"f_kernel_{number}", source[source.index('extern "C"') :])
    return f"namespace program_{number} {{\n{kernel}\n}}"


def _nvcc(text: str, path: Path, arch: str) -> str:
    """Compile a file into a cubin beside it; return what nvcc says against it."""
    if shutil.which("nvcc") is None:
        raise FileNotFoundError("nvcc is not installed")
    path.write_text(text, encoding="utf-8")
    own = f"{arch}a" if int(arch.removeprefix("sm_")) >= 90 else arch
    command = [
        "nvcc",
        "-std=c++17",
        "-w",
        "-cubin",
        f"-arch={own}",
        *_folders(),
        str(path),
        "-o",
        str(path.with_suffix(".cubin")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr or f"status {done.returncode}" if done.returncode else ""


@functools.cache
def _folders() -> tuple[str, ...]:
    from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH  # noqa: PLC0415

    return f"-I{CUTLASS_INCLUDE_DIR}", f"-I{TILELANG_TEMPLATE_PATH}"


def _ready(cubin: Path, number: int, source: str, program: Program) -> Run | CompileError:
    if "CUtensorMap" in source[source.index('extern "C"') :].partition("{")[0]:
        return partial(_twice, partial(_by_adapter, functools.cache(partial(_adapter, program))))
    try:
        names = guarded.parameter_names(source)
    except CompileError as error:
        return error
    kernel = _Kernel(cubin, f"f_kernel_{number}", launch_of(source))
    return partial(_twice, partial(_launched, kernel, names))


class _Kernel:
    """A kernel of a cubin, on the current GPU."""

    def __init__(self, cubin: Path, name: str, launch: dict[str, Any]) -> None:
        self._launch = launch
        self._module, function = ctypes.c_void_p(), ctypes.c_void_p()
        _driver("cuModuleLoadData", ctypes.byref(self._module), cubin.read_bytes())
        _driver("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        if launch["shared"] > _LARGE:
            _driver("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, launch["shared"])
        self._function = function

    def __call__(
        self, memory: Mapping[str, guarded.Bytes], names: Sequence[str], passed: Mapping[str, Any]
    ) -> dict[str, guarded.Bytes]:
        """Run it once on copies of the parameters, and return what is in them then.

        Args:
            names: of its parameters, in their order. passed: the values of those that are no buffers.
        """
        places = {name: ctypes.c_uint64() for name in memory}
        for name, raw in memory.items():
            _driver("cuMemAlloc_v2", ctypes.byref(places[name]), ctypes.c_size_t(raw.nbytes))
            _driver("cuMemcpyHtoD_v2", places[name], ctypes.c_void_p(raw.ctypes.data), ctypes.c_size_t(raw.nbytes))
        inner = [passed[name] if name in passed else ctypes.c_uint64(places[name].value + GUARD) for name in names]
        packed = (ctypes.c_void_p * len(inner))(*(ctypes.addressof(one) for one in inner))
        sizes = (*self._launch["grid"], *self._launch["block"], self._launch["shared"])
        _driver("cuLaunchKernel", self._function, *map(ctypes.c_uint, sizes), None, packed, None)
        _driver("cuCtxSynchronize")
        after = {name: np.empty_like(raw) for name, raw in memory.items()}
        for name, raw in after.items():
            _driver("cuMemcpyDtoH_v2", ctypes.c_void_p(raw.ctypes.data), places[name], ctypes.c_size_t(raw.nbytes))
            _driver("cuMemFree_v2", places[name])
        return after

    def __del__(self) -> None:
        _library().cuModuleUnload(self._module)


@functools.cache
def _library() -> ctypes.CDLL:
    """Return CUDA's driver, with PyTorch's context, the device's primary one, current in this thread."""
    library, device, context = ctypes.CDLL(DRIVER), ctypes.c_int(), ctypes.c_void_p()
    library.cuInit(0)
    if library.cuDeviceGet(ctypes.byref(device), 0) or library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        raise RuntimeError("CUDA's driver sees no device")
    library.cuCtxSetCurrent(context)
    return library


def _driver(call: str, *arguments: Any) -> None:
    """Call the driver. An error ends the process, since no kernel runs in it any more."""
    status = getattr(_library(), call)(*arguments)
    if status:
        text = ctypes.c_char_p()
        _library().cuGetErrorString(status, ctypes.byref(text))
        end_process(f"{call}: {(text.value or b'?').decode()}")


def _launched(kernel: _Kernel, names: Sequence[str], program: Program) -> dict[str, np.ndarray[Any, Any]]:
    return guarded.outputs(program, kernel(guarded.guarded(program), names, guarded.passed(program)))


def _adapter(program: Program) -> Any:
    """Compile a program by TileLang's own means, which make the descriptors of its bulk copies."""
    import tilelang  # noqa: PLC0415

    try:
        function = tilelang_lower.build(source_of(program))
        return tilelang.compile(function, target="cuda", execution_backend="cython", pass_configs=dict(program.configs))
    except Exception as error:
        raise CompileError("adapter", f"{type(error).__name__}: {error}") from error


def _by_adapter(adapter: Callable[[], Any], program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """Launch what TileLang's own means compiled, which is done at the first call."""
    import torch  # noqa: PLC0415

    compiled = adapter()
    memory = {name: torch.from_numpy(raw).cuda() for name, raw in guarded.guarded(program).items()}
    passed = passed_of(program)
    inner: list[Any] = []
    for one in program.arguments:
        if one.scope == "value":
            inner.append(passed[one.name])
            continue
        dtype = getattr(torch, one.dtype)
        inner.append(memory[one.name][GUARD : memory[one.name].numel() - GUARD].view(dtype).reshape(one.shape))
    compiled(*inner)
    synchronise()
    return guarded.outputs(program, {name: one.cpu().numpy() for name, one in memory.items()})


def _twice(once: Run, program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """Run twice, and return the outputs.

    Raises:
        CompileError: they differ.
    """
    first, second = once(program), once(program)
    for name, one in first.items():
        if one.tobytes() != second[name].tobytes():
            raise CompileError("run", f"two runs differ in {name}")
    return first
