"""Operators whose reference is a plain PyTorch function: `@operator` reads the notation of their tensors and sizes.

    @operator(x="[*B, D] storage", weight="[D] storage", D=(1, 8192), eps=(1e-6, 1e-5, 0.0))
    def rms_norm(x, weight, *, eps):
        v = x.float()
        return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight

Each tensor argument has its axes in brackets and then its dtype: `storage` is the dtype of the case, `float32` is float32
(float64 where the case is), `int32`, `int64` and `bool` are themselves. Then follow the range of integers, `constant` for
a tensor without a gradient, and `optional` for one that may be None. `*B` stands for leading axes that several tensors
have in common. A pair of integers is the range of an axis; a tuple of numbers is what is drawn for a scalar, the default
first; a string gives the size of a symbol that follows from others, as in H="Hkv*G". docs/operators.md has it all.
"""

import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mhc import expression
from mhc.notation import DeclarationError, all_symbols, ordered, spec_of, starred_symbols, symbols_of
from mhc.operator import Axis, Operator, Regime, Relation, TensorSpec
from mhc.operator_json import record_of
from mhc.outputs import Outputs
from mhc.recipe import Recipe


def operator(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    tokens: str = "",
    mutates: Sequence[str] = (),
    usual: Mapping[str, int] | Callable[[Mapping[str, int]], Mapping[str, int]] | None = None,
    regimes: Mapping[str, Regime] | None = None,
    production: Mapping[str, Sequence[int]] | None = None,
    relations: Sequence[Relation] = (),
    exact: Mapping[str, Recipe | float] | None = None,
    residuals: Mapping[str, Callable[..., Tensor]] | None = None,
    algorithms: Sequence[Callable[..., Any]] = (),
    finite: bool | Sequence[str] = False,
    **declared: Any,
) -> Callable[[Callable[..., Any]], Operator]:
    """Return a decorator that makes an operator of a plain PyTorch function; the notation is at the top of this module.

    Args:
        tokens: axes, as in "*B" or "B, S", whose positions are independent of one another: further gates need to know.
        mutates: inputs that an implementation may write, as in ("logits",).
        usual: log2 of the scale of tensors in a model, by name, or a function that returns it from the sizes; else 0.
        regimes: states of a model. relations: metamorphic relations.
        production: sizes of axes in models, by name.
        exact: recipes of tensors and values of scalars with which as many steps as possible are exact.
        residuals: for each output that has no one right value a plain PyTorch function. It takes the arguments of the
            operator and, after the tensors, that output; it returns a tensor of the output's shape, 0 where that is right.
        algorithms: plain PyTorch functions with the function's arguments and results that compute the same in another way,
            such as in chunks. A result is compared with the function's, and may have the errors of any of them.
        finite: no NaN and no infinity is drawn for inputs and upstream gradients, or for those that are named, as in ("x",
            "dy"): the operator promises nothing of them.

    Raises:
        DeclarationError: an argument of the function is not declared, or a declaration is no notation; or there is none at
            all, as in `@operator` without brackets.
    """
    if function is not None:
        first = next(iter(inspect.signature(function).parameters), "x")
        raise DeclarationError(f'operator needs the notation of each tensor, as in @operator({first}="[T, D]")')

    def make(function: Callable[..., Any]) -> Operator:
        table = _operator(name or function.__name__, function, declared, symbols_of(tokens), finite)
        tensors, given = {spec.name for spec in table.drawn}, exact or {}
        _require_algorithms(table, algorithms)
        _require_names(table, "mutates", mutates, table.forward_arguments)
        _require_names(table, "usual", () if usual is None or callable(usual) else usual, tensors)
        named = () if isinstance(finite, bool) else finite
        _require_names(table, "finite", named, [spec.name for spec in table.drawn if spec.floating])
        _require_names(table, "production", production or (), table.axis_names)
        _require_names(table, "residuals", residuals or (), [spec.name for spec in table.outputs])
        _require_names(table, "exact", given, {*tensors, *table.scalars})
        for named, regime in (regimes or {}).items():
            _require_names(table, f"regimes: {named}: tensors", regime.tensors, tensors)
            _require_names(table, f"regimes: {named}: scalars", regime.scalars, table.scalars)
        return replace(
            table,
            mutates=frozenset(mutates),
            usual_exponents=usual if callable(usual) else lambda sizes: usual or {},
            regimes=regimes or {},
            model_sizes={axis: tuple(values) for axis, values in (production or {}).items()},
            relations=tuple(relations),
            residuals=residuals or {},
            algorithms=tuple(algorithms),
            exact_recipes={one: value for one, value in given.items() if isinstance(value, Recipe)},
            exact_scalars={one: value for one, value in given.items() if not isinstance(value, Recipe)},
        )

    return make


def _require_names(table: Operator, keyword: str, names: Collection[str], known: Collection[str]) -> None:
    if isinstance(names, str) or not set(names) <= set(known):
        wanted = f"must name some of {', '.join(sorted(known))}"
        raise DeclarationError(f"{table.name}: {keyword} {wanted}, was {names if isinstance(names, str) else [*names]!r}")


def _require_algorithms(table: Operator, algorithms: Sequence[Callable[..., Any]]) -> None:
    if not isinstance(algorithms, (tuple, list)):
        raise DeclarationError(f"{table.name}: algorithms must be a tuple of functions, was {algorithms!r}")
    for one in algorithms:
        error = call_error(one, table.forward_arguments, table.scalars)
        if error is not None:
            wanted = f"{', '.join(table.forward_arguments)}, *, {', '.join(table.scalars)}"
            raise DeclarationError(f"{table.name}: algorithms: {one!r} cannot be called with ({wanted}): {error}") from error


def call_error(function: Any, arguments: Sequence[str], keywords: Mapping[str, Any]) -> TypeError | None:
    """Return why a function cannot be called in this way; None where it can, or has no signature and a call will show it."""
    if not callable(function):
        return TypeError(f"{function!r} is not callable")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a compiled callable
        return None
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        return error
    return None


def _operator(
    name: str,
    function: Callable[..., Any],
    declared: Mapping[str, Any],
    tokens: tuple[str, ...],
    finite: bool | Sequence[str],
) -> Operator:
    parameters = inspect.signature(function).parameters.values()
    tensors = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
    scalars = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    own = [one.name for one in inspect.signature(operator).parameters.values() if one.kind is one.KEYWORD_ONLY]
    for one in (*tensors, *scalars):
        if one in own:
            reserved = f"{one} is a keyword of @operator itself; name the argument otherwise ({', '.join(own)} are such)"
            raise DeclarationError(f"{function.__name__}: {reserved}")
        if one not in declared:
            raise DeclarationError(f"{name}: {one} is an argument of the function, and is not declared")
    inputs = tuple(_finite(spec_of(name, one, declared[one]), finite, one) for one in tensors)
    if not inputs:
        raise DeclarationError(f"{name}: the function has no tensor argument")
    others = {one: value for one, value in declared.items() if one not in tensors and one not in scalars}
    formulas = {one: value for one, value in others.items() if isinstance(value, str)}
    symbols = all_symbols(name, inputs, formulas)
    starred = starred_symbols(name, [declared[one] for one in tensors], [*formulas.values()])
    for one in scalars:
        if one in symbols:
            raise DeclarationError(f"{name}: {one} is a scalar, and sizes are computed of axes alone")
    for one in others:
        if one not in symbols and one not in starred.values():
            raise DeclarationError(f"{name}: {one} is neither an argument of the function nor an axis of its tensors")
    ranges = {one: others.get(starred.get(one, one), (1, 8192)) for one in symbols if one not in formulas}
    axes = tuple(_axis(name, one, given, leading=one in starred) for one, given in ranges.items())
    formulas = ordered(name, formulas, [one.name for one in axes])
    unknown = [one for one in tokens if one not in symbols]
    if unknown:
        raise DeclarationError(f"{name}: tokens: {unknown[0]} is no axis of its tensors, which are {', '.join(symbols)}")
    choices = {one: _choices(name, one, declared[one]) for one in scalars}
    record = record_of(
        name,
        axes=axes,
        tokens=tokens,
        inputs=inputs,
        outputs=(),
        scalars=choices,
        formulas=formulas,
        forward=Beside(function),
        backward=Beside(function),
        function=function,
    )
    _check_tokens(record)
    found = Outputs(record)
    outputs = tuple(_finite(one, finite, f"d{one.name}") for one in found.specs())
    whole = record_of(
        name,
        axes=axes,
        tokens=tokens,
        inputs=inputs,
        outputs=outputs,
        scalars=choices,
        formulas=formulas,
        forward=record.forward,
        backward=Backward(record.forward, inputs, outputs),
        function=function,
    )
    whole = replace(whole, intermediates=functools.cache(found.intermediates))
    names = [spec.name for spec in (*whole.argument_specs.values(), *whole.result_specs.values())]
    twice = [one for one in names if names.count(one) > 1]
    if twice:
        raise DeclarationError(f"{name}: {twice[0]} is the name of a gradient or an output; name the argument otherwise")
    return whole


def _finite(spec: TensorSpec, finite: bool | Sequence[str], name: str) -> TensorSpec:
    """Return the spec of an input, or of the output whose upstream gradient has that name, as `finite` declares it."""
    return replace(spec, finite=spec.floating and (finite if isinstance(finite, bool) else name in finite))


@dataclass(frozen=True)
class InTuple:
    """A stage whose results come in a tuple, where its function returns one tensor too."""

    function: Callable[..., Any]

    def __call__(self, *tensors: Tensor | None, **scalars: Any) -> tuple[Tensor, ...]:
        return _tuple(self.function(*tensors, **scalars))


@dataclass(frozen=True)
class Beside(InTuple):
    """A reference: its new tensors lie beside its arguments, so that it need not name a device."""

    def __call__(self, *tensors: Tensor | None, **scalars: Any) -> tuple[Tensor, ...]:
        with beside(tensors):
            return super().__call__(*tensors, **scalars)


def beside(tensors: Sequence[Any]) -> AbstractContextManager[Any]:
    """Return a context in which new tensors lie on the device of `tensors`, unless their maker names another."""
    device = next((one.device for one in tensors if isinstance(one, Tensor)), _HOST)
    return nullcontext() if device == _HOST else device


_HOST = torch.device("cpu")


@dataclass(frozen=True)
class Inference(InTuple):
    """The forward of a function that autograd can differentiate, as it is used without a backward: under `no_grad`."""

    def __call__(self, *tensors: Tensor | None, **scalars: Any) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return super().__call__(*tensors, **scalars)


@dataclass(frozen=True, kw_only=True)
class Autograd:
    """How a run uses autograd; by default all gradients are computed once.

    Attributes:
        constant: the inputs that require no gradient.
        unused: an output without an upstream gradient.
        retained: the backward runs twice, with `retain_graph=True`, and the second gradients are returned.
    """

    constant: frozenset[str] = frozenset()
    unused: str = ""
    retained: bool = False


@dataclass(frozen=True)
class Backward:
    """The backward that autograd derives, with the arguments and results that `Operator` gives it.

    Only floating-point inputs are differentiated, and only the differentiable outputs have an upstream gradient.
    The function may write into the inputs that `mutates` names.

    In some cases a differentiable output depends on no input that requires a gradient, as where an optional one is absent;
    its upstream gradient is not used then. Where `function` is an implementation, the operator's own forward, `reference`,
    says whether it is such a case: any other output that requires no gradient is an error.
    """

    function: Callable[..., Any]
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    mutates: Collection[str] = ()
    reference: Callable[..., Sequence[Any]] | None = None

    def __call__(self, *tensors: Tensor | None, **scalars: Any) -> tuple[Tensor | None, ...]:
        if not any(spec.differentiable for spec in self.inputs) or not any(spec.differentiable for spec in self.outputs):
            return ()
        return self.train(Autograd(), *tensors, **scalars)[len(self.outputs) :]

    def train(self, use: Autograd, *tensors: Tensor | None, **scalars: Any) -> tuple[Tensor | None, ...]:
        """Return the outputs of a run whose inputs require gradients, and then the gradients.

        The gradient of an input that requires none is None.
        """
        required = [spec.name for spec in self.inputs if not spec.optional]
        last = [spec.name for spec in self.inputs if spec.optional]
        end = len(required) + sum(spec.differentiable for spec in self.outputs)
        given = dict(zip((*required, *last), (*tensors[: len(required)], *tensors[end:]), strict=True))
        differentiable = [spec.name for spec in self.inputs if spec.differentiable and given[spec.name] is not None]
        wanted = [name for name in differentiable if name not in use.constant]
        leaves = {name: one.detach().requires_grad_(name in wanted) for name, one in given.items() if one is not None}
        given.update(leaves)
        # where the mode is right it is not set: a function that leaves it changed is to be noticed
        with nullcontext() if torch.is_grad_enabled() else torch.enable_grad():
            for name in self.mutates:  # autograd forbids to write into a leaf
                given[name] = leaves[name].clone() if name in leaves else None
            results = _tuple(self.function(*(given[spec.name] for spec in self.inputs), **scalars))
        ends = [(spec.name, one) for spec, one in zip(self.outputs, results, strict=True) if spec.differentiable]
        independent = {name for name, one in ends if not one.requires_grad}
        if independent and not use.constant:  # an output may depend on the constant inputs alone
            independent &= self._independent(leaves, scalars)
        used = [
            (one, upstream)
            for (name, one), upstream in zip(ends, tensors[len(required) : end], strict=True)
            if name != use.unused and name not in independent
        ]
        gradients: dict[str, Tensor | None] = {}
        for keep in (True, False) if use.retained else (False,):
            if used and wanted:
                found = torch.autograd.grad(
                    [one for one, _ in used],
                    [leaves[name] for name in wanted],
                    [upstream for _, upstream in used],
                    retain_graph=keep,
                    allow_unused=True,
                )
                gradients = dict(zip(wanted, found, strict=True))
        return (*results, *(gradients.get(spec.name) for spec in self.inputs if spec.differentiable))

    def _independent(self, leaves: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> set[str]:
        """Return the outputs that need not depend on an input that requires a gradient."""
        if self.reference is None:
            return {spec.name for spec in self.outputs}
        with torch.enable_grad():
            results = self.reference(*(leaves.get(spec.name) for spec in self.inputs), **scalars)
        return {spec.name for spec, one in zip(self.outputs, results, strict=True) if not one.requires_grad}


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _axis(operator: str, symbol: str, given: object, *, leading: bool) -> Axis:
    whole = isinstance(given, tuple) and len(given) == 2 and all(type(one) is int for one in given)
    if not whole or not 0 <= given[0] <= given[1]:  # type: ignore[index]
        raise DeclarationError(f"{operator}: {symbol} must be a pair of integers, least and most, was {given!r}")
    return Axis(symbol, *given, leading=leading)  # type: ignore[misc]


def _choices(operator: str, name: str, given: object) -> tuple[float, ...]:
    """Return the values of a scalar, all of one type: bool, int or float."""
    values = _tuple(given)
    types = {type(one) for one in values}
    if not values or not (types == {bool} or types <= {int, float}) or not all(map(math.isfinite, values)):
        raise DeclarationError(
            f"{operator}: {name} must be a number or a tuple of numbers, the default first, was {given!r}"
        )
    return values if len(types) == 1 else tuple(map(float, values))


def _check_tokens(table: Operator) -> None:
    """Require that tokens can be reordered and left out: nothing but leading axes depends on them.

    Raises:
        DeclarationError: something does; the message says what.
    """
    tokens, where = set(table.tokens), f"{table.name}: tokens: {', '.join(table.tokens)}"
    for name, formula in table.formulas.items():
        if tokens & {name, *expression.symbols(formula)}:
            raise DeclarationError(f"{where}, on which {name} = {formula} depends")
    for spec in table.inputs:
        if tokens & set(spec.symbols) and (not table.per_token(spec) or tokens & set(spec.symbols[len(tokens) :])):
            raise DeclarationError(f"{where} must be the first axes of {spec.name}, or none of its axes")
        values = spec.values
        if values is not None and (tokens & values.symbols or (values.order and tokens & set(spec.symbols[-1:]))):
            raise DeclarationError(f"{where}, on which the values of {spec.name} depend")
