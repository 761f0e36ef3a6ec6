"""The text of a file with a drawn program: a function without arguments that compiles it, runs it and judges its outputs.

Where nothing is run, the function compiles only: it is for programs that the compiler refuses.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from mhc.programs.evaluate import inputs_of, passed_of
from mhc.programs.grammar import Program
from mhc.programs.languages import AnyProgram, language_of
from mhc.programs.targets import ProgramTarget
from mhc.programs.triton import compiled
from mhc.programs.triton.evaluate import inputs_of as triton_inputs_of
from mhc.programs.triton.grammar import Descriptor, TritonProgram, walk
from mhc.upstream.verify import ExportError

Array = np.ndarray[Any, Any]
_FILL = 7  # of TileLang's outputs, so that a store of 0 and one that is lost differ
_LONG = 4  # so many equal numbers are written out
_TILELANG = "import tilelang\nimport tilelang.language as T\nimport torch\n"
_ALLOCATOR = 'triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))'
_TRITON = "import torch\nimport triton\nimport triton.language as tl\n"


@dataclass(frozen=True, kw_only=True)
class Form:
    """How programs of a target are written as files.

    Attributes:
        needs: of `mhc.upstream.releases.releases.NEEDS`. write: returns the file; is given the name of its function.
        variables: of the environment, set before anything is imported.
    """

    needs: str
    write: Callable[[str, Any, ProgramTarget], str]
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def form_of(target: ProgramTarget) -> Form:
    """Return how programs of a target are written.

    Raises:
        ExportError: nobody else has its compiler.
    """
    runs = target.devices == ("cuda",)
    forms = {
        ("tilelang", "c"): Form(needs="c", write=_on_c),
        ("tilelang", "arithmetic"): Form(needs="c", write=_on_c),
        ("tilelang", "cuda"): Form(needs="cuda", write=_on_cuda) if runs else Form(needs="lower", write=_lowered),
        ("triton", "interpreted"): Form(
            needs="interpreter", write=_interpreted, variables=MappingProxyType({"TRITON_INTERPRET": "1"})
        ),
        ("triton", "cuda"): Form(needs="cuda", write=_launched),
        ("triton", "compiled"): Form(needs="compile", write=_compiled),
    }
    if (target.dsl, target.kind) not in forms:
        raise ExportError(f"{target.name} is no compiler of others")
    return forms[target.dsl, target.kind]


def _on_c(name: str, program: Program, target: ProgramTarget) -> str:
    return _tilelang(name, program, target, 'target="c", execution_backend="cython"')


def _on_cuda(name: str, program: Program, target: ProgramTarget) -> str:
    configs = f", pass_configs={dict(program.configs)!r}" if program.configs else ""
    return _tilelang(name, program, target, f'target="cuda"{configs}', device="cuda")


def _tilelang(name: str, program: Program, target: ProgramTarget, options: str, device: str = "") -> str:
    given = inputs_of(program)
    for one in program.outputs:
        given[one.name] = np.full(one.shape, one.dtype == "bool" or _FILL).astype(given[one.name].dtype)
    called = ", ".join(one.name for one in program.arguments)
    passed = ((one.name, passed_of(program)[one.name]) for one in program.buffers if one.scope == "value")
    body = [
        *target.text(program).splitlines(),
        "",
        *(f"{name} = {value}" for name, value in passed),
        *(f"{one.name} = {_tensor(given[one.name], one.dtype, device)}" for one in program.parameters),
        f"tilelang.compile(f, {options})({called})",
        *_judged(program, given),
    ]
    return "\n".join([_TILELANG, "", f"def {name}():", *_indented(body)]) + "\n"


def _lowered(name: str, program: Program, target: ProgramTarget) -> str:
    configs = f"tilelang.tvm.transform.PassContext(config={dict(program.configs)!r}), " if program.configs else ""
    body = [
        *target.text(program).splitlines(),
        "",
        f'target = tilelang.tvm.target.Target("cuda -arch={target.arch}")',
        f"with {configs}target:",
        "    tilelang.lower(f, target=target)",
    ]
    return "\n".join([_TILELANG, "", f"def {name}():", *_indented(body)]) + "\n"


def _interpreted(name: str, program: TritonProgram, target: ProgramTarget) -> str:
    return _ran(name, program, target, "", "")


def _launched(name: str, program: TritonProgram, target: ProgramTarget) -> str:
    return _ran(name, program, target, f", num_warps={program.num_warps}, num_stages={program.num_stages}", "cuda")


def _ran(name: str, program: TritonProgram, target: ProgramTarget, options: str, device: str) -> str:
    given = triton_inputs_of(program)
    called = ", ".join(one.name for one in program.buffers)
    described = any(isinstance(one, Descriptor) for one in walk(program.body))
    body = [
        *([_ALLOCATOR] if described and device else []),
        *(f"{one.name} = {_tensor(given[one.name], one.dtype, device, offset=one.offset)}" for one in program.buffers),
        f"f[{program.grid!r}]({called}{options})",
        *_judged(program, given),
    ]
    return "\n".join([_TRITON, "", target.text(program), "", f"def {name}():", *_indented(body)]) + "\n"


def _compiled(name: str, program: TritonProgram, target: ProgramTarget) -> str:
    signature, attributes = compiled.signature(program), compiled.attributes(program)
    options = {"num_warps": program.num_warps, "num_stages": program.num_stages}
    chip = target.arch.removeprefix("sm_")
    body = [
        f"signature = {signature!r}",
        f"source = ASTSource(fn=f, signature=signature, constexprs={{}}, attrs={attributes!r})",
        f'triton.compile(source, target=GPUTarget("cuda", {chip}, 32), options={options!r})',
    ]
    imports = _TRITON + "from triton.backends.compiler import GPUTarget\nfrom triton.compiler import ASTSource\n"
    return "\n".join([imports, "", target.text(program), "", f"def {name}():", *_indented(body)]) + "\n"


def _judged(program: AnyProgram, given: Mapping[str, Array]) -> Iterator[str]:
    """Yield the lines that compare the outputs with the evaluator's."""
    right = language_of(program).evaluate(program, given)
    names = [one.name for one in program.outputs]
    yield f"got = [{', '.join(f'{one}.tolist()' for one in names)}]"
    yield f"right = [{', '.join(repr(right[one].tolist()) for one in names)}]"
    yield 'return "right" if got == right else f"{got}, right is {right}"'


def _tensor(array: Array, dtype: str, device: str, *, offset: int = 0) -> str:
    """Return the expression of a tensor; with an offset it begins so many elements into its memory."""
    shape = (array.size + offset,) if offset else array.shape
    values = array.ravel().tolist()
    options = f"dtype=torch.{dtype}" + (f', device="{device}"' if device else "")
    view = f"[{offset}:]" if offset else ""
    if len(values) > _LONG and len(set(values)) == 1:
        return f"torch.full({shape!r}, {_written(values[0])}, {options}){view}"
    return f"torch.tensor({_written([*[0] * offset, *values] if offset else array.tolist())}, {options}){view}"


def _written(numbers: Any) -> str:
    return re.sub(r"\b(nan|inf)\b", r"torch.\1", repr(numbers))


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]
