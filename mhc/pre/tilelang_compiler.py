"""What needs TileLang imported: lowering a prim_func, and compiling it into a shared library. `tilelang_build` calls it.

It uses the parts of TileLang's "cython" backend (the generated host function and the compiler's command line), not its
adapter, which would load the library and look for a device.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tilelang
from tilelang import tvm
from tilelang.engine.lower import lower as lower_to_source
from tilelang.jit.adapter.libgen import LibraryGenerator
from tilelang.jit.adapter.wrapper import TLWrapper

from mhc.implementation import Refused

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


def library_source(function: Any, target: str, pass_configs: dict[str, Any]) -> str:
    """The kernels and the C function `call` that launches them, as one source."""
    with _on(target, pass_configs) as entered:
        artifact = lower_to_source(function, target=entered)
        wrapper = TLWrapper(entered)
        wrapper.assign_optimized_module(tvm.IRModule({function.attrs["global_symbol"]: function}))
        wrapper.assign_pass_configs(pass_configs)
        wrapper.assign_host_module(artifact.host_mod)
        wrapper.assign_device_module(artifact.device_mod)
        source: str = wrapper.wrap(artifact.kernel_source)
        return source


def build(function: Any, target: str, pass_configs: dict[str, Any], flags: list[str]) -> tuple[list[tuple[str, str]], str]:
    """Compile into a library: the (name, type) of what its `call` takes, and its path in a temporary folder."""
    source = library_source(function, target, pass_configs)
    with _on(target, pass_configs) as entered:
        generator = LibraryGenerator(entered)
        generator.assign_pass_configs(pass_configs)
        generator.assign_compile_flags(flags)
        generator.update_lib_code(source)
        generator.compile_lib()
    streams = [("stream", "handle")] if target.startswith("cuda") else []
    return [*_arguments(function), *streams], generator.libpath


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
