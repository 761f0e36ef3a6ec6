"""Record what an implementation launches while one stage of a case runs, with the tensors of each launch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from mhc.memory import NAN_FILL
from mhc.upstream.source.text import Text, shape_text, tensor_text
from mhc.upstream.verify import ExportError


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch of a Triton kernel, or one call of a TileLang program.

    Attributes:
        kernel: Triton's kernel object; "module:factory" of TileLang.
        arguments: by parameter: the name of a variable of the program, or a number.
        dtypes: of the tensors among the arguments, as a DSL calls them.
        grid, options: Triton's. target, constants, pass_configs, flags: TileLang's.
    """

    kernel: Any
    arguments: Mapping[str, Any]
    dtypes: Mapping[str, str]
    grid: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    constants: Mapping[str, Any] = field(default_factory=dict)
    pass_configs: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        """Return what is the same in two runs of the same host code on tensors of the same shapes."""
        name = self.kernel if isinstance(self.kernel, str) else self.kernel.fn.__qualname__
        scalars = {name: repr(value) for name, value in self.arguments.items() if not isinstance(value, Variable)}
        return name, self.grid, repr(self.constants), repr(self.options), scalars


@dataclass(frozen=True)
class Variable:
    """A tensor's name in the program."""

    name: str


class Capture:
    """The launches so far, and the variables that their tensors are.

    Args:
        given: what the stage was given, by name. on_launch: is called before each launch, once it is in `launches`.
    """

    def __init__(self, given: Mapping[str, Tensor | None], on_launch: "Callable[[Capture], None]" = lambda _: None) -> None:
        self._on_launch = on_launch
        self.given = {name: tensor for name, tensor in given.items() if tensor is not None}
        self.launches: list[Launch] = []
        self.made: dict[str, Text] = {}
        self.direct: set[str] = set()
        self._variables: dict[tuple[int, int, torch.dtype], str] = {}
        self._tensors: dict[str, Tensor] = {}
        self._addresses: dict[int, Tensor] = {}

    def launch(self, launch: Launch) -> None:
        """Keep a launch that is about to be made."""
        self.launches.append(launch)
        self._on_launch(self)

    def name_at(self, address: int) -> str | None:
        """Return the variable that starts at an address."""
        return next((name for name, tensor in self._tensors.items() if tensor.data_ptr() == address), None)

    def variable(self, tensor: Tensor, wish: str) -> Variable:
        """Return the variable of a tensor; a new one is one of the stage's arguments, or made from the tensor's values."""
        key = tensor.data_ptr(), tensor.numel(), tensor.dtype
        if key not in self._variables:
            name = self._same(tensor) or self._new(tensor, wish)
            self._variables[key] = name
            self._tensors[name] = tensor
        return Variable(self._variables[key])

    def at(self, address: int) -> Tensor:
        """Return the tensor whose memory starts at `address`.

        Raises:
            ExportError: none did.
        """
        if address not in self._addresses:
            raise ExportError("a program was called with an address that no tensor has")
        return self._addresses[address]

    def result(self, tensor: Tensor) -> str:
        """Return an expression for what the stage returned, over the variables.

        Raises:
            ExportError: it is none of them: the host code has made it.
        """
        for name, own in self._tensors.items():
            if own.data_ptr() == tensor.data_ptr() and own.numel() == tensor.numel() and own.dtype == tensor.dtype:
                return name if own.shape == tensor.shape else f"{name}.view({shape_text(tensor.shape)})"
        for name, own in self._tensors.items():
            if own.numel() == tensor.numel() and _same(own.to(tensor.dtype), tensor):
                return f"{name}.to({tensor.dtype!s}).view({shape_text(tensor.shape)})"
        raise ExportError("what it returned is none of what its kernels wrote: the host code around them has made it")

    def strided(self, name: str) -> bool:
        """Return whether a launch was given an argument of the stage itself that is not dense."""
        return name in self.direct and not self.given[name].is_contiguous()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the variables that are not the stage's arguments."""
        return {name: tuple(tensor.shape) for name, tensor in self._tensors.items() if name in self.made}

    def _same(self, tensor: Tensor) -> str | None:
        for name, given in self.given.items():
            if given.data_ptr() == tensor.data_ptr() and given.dtype == tensor.dtype and given.numel() == tensor.numel():
                if given.stride() != tensor.stride() and not given.is_contiguous():
                    return None
                self.direct.add(name)
                return name
        return None

    def _new(self, tensor: Tensor, wish: str) -> str:
        name = wish
        while name in self.made or name in self.given:
            name += "_"
        self.made[name] = self._text(tensor, wish)
        return name

    def _text(self, tensor: Tensor, wish: str) -> Text:
        shape, dtype = shape_text(tensor.shape), str(tensor.dtype)
        flat = tensor.detach().cpu().contiguous()
        if bool((flat.reshape(-1).view(torch.uint8) == NAN_FILL).all()):
            fill = "math.nan" if tensor.dtype.is_floating_point else "-1"
            return Text(f"torch.full({tuple(tensor.shape)}, {fill}, dtype={dtype})", filled=fill)
        wished = sorted(self.given, key=lambda name: name != wish)
        for name in wished:
            given = self.given[name].detach().cpu()
            if given.numel() == flat.numel() and _same(given.to(tensor.dtype), flat):
                cast = "" if given.dtype == tensor.dtype else f".to({dtype})"
                view = "" if given.shape == tensor.shape else f".reshape({shape})"
                return Text(f"{name}{cast or '.clone()'}{view}")
        return tensor_text(tensor)


def _same(a: Tensor, b: Tensor) -> bool:
    one, other = (tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b))
    return torch.equal(one, other)


@contextmanager
def capturing(given: Mapping[str, Tensor | None], on_launch: Callable[[Capture], None]) -> Iterator[Capture]:
    """Record Triton's launches and the calls of this package's TileLang programs, which run as usual.

    Args:
        on_launch: as for `Capture`.
    """
    capture = Capture(given, on_launch)
    with ExitStack() as patches:
        for begin in (_triton, _tilelang):
            begin(capture, patches)
        yield capture


def _triton(capture: Capture, patches: ExitStack) -> None:
    try:
        from triton.runtime.interpreter import InterpretedFunction  # noqa: PLC0415
        from triton.runtime.jit import JITFunction  # noqa: PLC0415
    except ImportError:
        return

    def keeping(run: Callable[..., Any]) -> Callable[..., Any]:
        def kept(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
            names: Sequence[str] = kernel.arg_names
            values = {**dict(zip(names, arguments, strict=False)), **{k: v for k, v in keywords.items() if k in names}}
            options = {name: value for name, value in keywords.items() if name not in names}
            tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
            whole = tuple(grid(values)) if callable(grid) else tuple(grid)
            capture.launch(
                Launch(
                    kernel=kernel,
                    arguments={
                        name: capture.variable(value, name.removesuffix("_ptr")) if name in tensors else value
                        for name, value in values.items()
                    },
                    dtypes={name: _dtype_name(tensor.dtype) for name, tensor in tensors.items()},
                    grid=whole,
                    options=options,
                )
            )
            return run(kernel, *arguments, grid=grid, warmup=warmup, **keywords)

        return kept

    for owner in (InterpretedFunction, JITFunction):
        patches.enter_context(patch.object(owner, "run", keeping(owner.run)))


def _tilelang(capture: Capture, patches: ExitStack) -> None:
    from mhc.operators.mhc_pre.tilelang.compile import cache  # noqa: PLC0415  imports no TileLang

    original, address = cache._program, torch.Tensor.data_ptr

    def addressed(tensor: Tensor) -> int:
        at = address(tensor)
        capture._addresses[at] = tensor
        return at

    def kept(factory: str, target: str, constants: Any, pass_configs: Any, flags: Any, device: int) -> Any:
        launch = Launch(
            kernel=factory,
            arguments={},
            dtypes={},
            target=target,
            constants=dict(constants),
            pass_configs=dict(pass_configs),
            flags=tuple(flags),
        )
        try:
            program = original(factory, target, constants, pass_configs, flags, device)
        except Exception:
            capture.launch(launch)  # compiled for a launch
            raise

        def call(*values: Any) -> None:
            arguments: dict[str, Any] = {}
            dtypes = {}
            for (name, kind), value in zip(program.arguments, values, strict=True):
                if kind == "handle" and name != "stream" and value is not None:
                    tensor = capture.at(value)
                    arguments[name] = capture.variable(tensor, name)
                    dtypes[name] = _dtype_name(tensor.dtype)
                else:
                    arguments[name] = value
            capture.launch(replace(launch, arguments=arguments, dtypes=dtypes))
            program(*values)

        return type("Kept", (), {"arguments": program.arguments, "__call__": lambda _, *values: call(*values)})()

    patches.enter_context(patch.object(cache, "_program", kept))
    patches.enter_context(patch.object(torch.Tensor, "data_ptr", addressed))


def _dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype as both DSLs have it, such as `float32`."""
    return str(dtype).removeprefix("torch.")
