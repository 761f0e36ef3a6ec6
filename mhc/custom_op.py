"""Implementations that are custom operators of `torch.library`: what their schema says, and a reference beside it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from mhc.case import Case
from mhc.declaration import operator
from mhc.implementation import Implementation, ImplementationError, Refused
from mhc.operator import Operator
from mhc.tensor_spec import FIXED, TensorSpec


def from_custom_op(name: str, /, *, reference: Callable[..., Any], **declared: Any) -> Implementation:
    """Return the implementation that a custom operator is: `from_custom_op("ns::op", reference=f, x="[T, D] storage")`.

    Its schema says which arguments are tensors, which of them may be None (`Tensor?`) or are written (`Tensor(a!)`), and
    the defaults of scalars; arguments of type float are drawn, others stay at their default, or at the value given. A
    written argument that the reference does not have is an output: it gets a tensor of NaN. Other written arguments follow
    the results, as outputs too. There is a backward if one is registered with autograd and the operator writes nothing.

    Args:
        name: the qualified name; the library that defines the operator must have been imported.
        reference: a plain PyTorch function with arguments of the same names.
        declared: the notation of each tensor of the reference, the values of its scalars, and further keywords of
            `mhc.operator` (docs/operators.md).

    Raises:
        ImplementationError: there is no such operator, or its schema and the reference do not fit together.
        DeclarationError: as `mhc.operator`.
    """
    return _CustomOp(name, _overload(name), reference, dict(declared)).implementation()


def _overload(name: str) -> Any:
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
    except (AttributeError, RuntimeError) as error:
        raise ImplementationError(
            f"{name}: there is no such custom operator; import the module that registers it before this call"
        ) from error


@dataclass(frozen=True)
class _CustomOp:
    """One operator and its reference."""

    name: str
    overload: Any
    reference: Callable[..., Any]
    declared: dict[str, Any]

    def implementation(self) -> Implementation:
        arguments = list(self.overload._schema.arguments)
        there = inspect.signature(self.reference).parameters
        tensors = [one for one in arguments if _is_tensor(one)]
        lists = [one.name for one in arguments if "Tensor" in str(one.type) and not _is_tensor(one)]
        self._require(not lists, f"{', '.join(lists)} is a list of tensors, which cannot be declared")
        written = [one.name for one in tensors if one.alias_info is not None and one.alias_info.is_write]
        outs = [one for one in written if one not in there]
        needed = [one for one, value in there.items() if value.default is value.empty]
        missing = [one for one in needed if one not in {two.name for two in arguments}]
        self._require(not missing, f"the reference takes {', '.join(missing)}, and the operator does not")
        inputs = [one for one in tensors if one.name not in outs]
        unknown = [one.name for one in inputs if one.name not in there]
        self._require(not unknown, f"the operator takes {', '.join(unknown)}, and the reference does not")
        keywords, fixed = self._scalars([one for one in arguments if not _is_tensor(one)])
        for one in inputs:
            notation = self.declared.pop(one.name, None)
            self._require(notation is not None, f'give the notation of {one.name}, as in {one.name}="[T, D] storage"')
            optional = "Optional" in str(one.type) and not str(notation).endswith("optional")
            keywords[one.name] = f"{notation} optional" if optional else notation
        mutates = [one for one in written if one not in outs]
        self.declared.setdefault("name", self.name.partition(".")[0].replace("::", "_"))
        names = [one.name for one in inputs]
        table = operator(mutates=mutates, **keywords, **self.declared)(
            _Reference(self.reference, names, list(keywords), fixed)
        )
        results = len(self.overload._schema.returns) + len(written)
        self._require(results == len(table.outputs), f"it has {results} results, and the reference {len(table.outputs)}")
        # None, a device or a dtype: what the operator takes by default
        call = _Call(self.overload, names, outs, mutates, {one: two for one, two in fixed.items() if two is not None}, table)
        differentiable = not written and self._has_autograd()
        devices = tuple(one.lower() for one in ("CPU", "CUDA") if self._has(one) or self._has("CompositeExplicitAutograd"))
        implicit = ("cpu", "cuda") if self._has("CompositeImplicitAutograd") else ()
        self._require(bool(devices or implicit), "has no kernel for a CPU or a GPU")
        return Implementation(
            name=self.name,
            operator=table,
            devices=devices or implicit,
            function=call if differentiable else None,
            forward=None if differentiable else call,
            supports=partial(_writable, mutates),
        )

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise ImplementationError(f"{self.name}: {message}")

    def _scalars(self, arguments: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the values of scalars that are drawn, of type float or of several values, and those of other arguments."""
        drawn: dict[str, Any] = {}
        fixed: dict[str, Any] = {}
        for one in arguments:
            default = one.default_value if one.has_default_value() else None
            value = self.declared.pop(one.name, default)
            self._require(
                value is not None or one.has_default_value(), f"give the value of {one.name}, which has no default"
            )
            several = str(one.type) in {"int", "bool", "SymInt"} and isinstance(value, tuple)
            (drawn if several or str(one.type) == "float" else fixed)[one.name] = value
        return drawn, fixed

    def _has(self, key: str) -> bool:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(self.overload._schema.name, key))

    def _has_autograd(self) -> bool:
        made = torch._library.custom_ops.OPDEFS.get(self.overload._schema.name)
        if made is not None:  # its Autograd kernel is always there, and raises without a formula
            return made._backward_fn is not None
        return any(map(self._has, ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")))


class _Reference:
    """The reference, with its tensors as positional and its scalars as keyword-only arguments."""

    def __init__(
        self, function: Callable[..., Any], tensors: Sequence[str], named: Sequence[str], fixed: Mapping[str, Any]
    ) -> None:
        self.function, self.tensors = function, tensors
        there = inspect.signature(function).parameters
        self.fixed = {name: value for name, value in fixed.items() if name in there}
        scalars = [name for name in named if name not in tensors]
        self.unused = [name for name in scalars if name not in there]
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in tensors]
        parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in scalars]
        self.__signature__ = inspect.Signature(parameters)
        self.__name__, self.__module__, self.__qualname__ = (
            getattr(function, part, "") for part in ("__name__", "__module__", "__qualname__")
        )
        self.__code__ = inspect.unwrap(function).__code__  # where messages say it is

    def __call__(self, *tensors: Tensor | None, **scalars: Any) -> Any:
        kept = {name: value for name, value in scalars.items() if name not in self.unused}
        return self.function(**dict(zip(self.tensors, tensors, strict=True)), **kept, **self.fixed)


class _Call:
    """A call of the operator: it allocates the outputs that the operator writes, and returns all of its results."""

    def __init__(
        self,
        overload: Any,
        tensors: Sequence[str],
        outs: Sequence[str],
        mutates: Sequence[str],
        fixed: Mapping[str, Any],
        table: Operator,
    ) -> None:
        self.overload, self.tensors, self.outs, self.mutates = overload, tensors, outs, mutates
        self.fixed, self.table = fixed, table

    def __call__(self, *tensors: Tensor | None, **scalars: Any) -> tuple[Tensor, ...]:
        given = dict(zip(self.tensors, tensors, strict=True))
        written = [*self.outs, *self.mutates]
        specs = self.table.outputs[len(self.table.outputs) - len(written) :]
        made = {name: _unwritten(self.table, spec, given) for name, spec in zip(self.outs, specs, strict=False)}
        results = self.overload(**given, **made, **scalars, **self.fixed)
        returned = () if results is None else tuple(results) if isinstance(results, (tuple, list)) else (results,)
        return (*returned, *made.values(), *(given[name] for name in self.mutates))


def _writable(names: Sequence[str], case: Case) -> Literal[True] | Refused:
    for name in names:
        if name in case.tensors and case.tensors[name].layout.expand:
            return Refused(f"writes {name}, whose elements share memory")
    return True


def _is_tensor(argument: Any) -> bool:
    return str(argument.type) in {"Tensor", "Optional[Tensor]"}


def _unwritten(table: Operator, spec: TensorSpec, given: Mapping[str, Tensor | None]) -> Tensor:
    """Return a tensor for an output, of NaN or of the least integer: what an operator leaves as it is shows."""
    leading = {axis.name for axis in table.axes if axis.leading}
    chosen: dict[str, int] = {}
    for one in table.inputs:
        tensor = given[one.name]
        if tensor is not None:
            absent = len(one.symbols) - tensor.dim()
            last = [symbol for symbol in one.symbols if symbol in leading][::-1][:absent]
            chosen |= dict(zip([symbol for symbol in one.symbols if symbol not in last], tensor.shape, strict=True))
    lead = given[table.inputs[0].name]
    storage = next(one.dtype for one in given.values() if one is not None and one.is_floating_point())
    dtype = spec.dtype(storage)
    empty: bool | int | float = (
        False if dtype == torch.bool else torch.iinfo(dtype).min if spec.role in FIXED else float("nan")
    )
    device = None if lead is None else lead.device
    return torch.full(spec.shape(table.sizes(chosen)), empty, dtype=dtype, device=device)
