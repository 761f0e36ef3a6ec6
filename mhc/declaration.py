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

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mhc import expression
from mhc.inputs import plain_values
from mhc.operator import Axis, Operator, Order, Regime, Relation, Role, TensorSpec, Values
from mhc.operator_json import record_of
from mhc.recipe import Recipe

LEADING = 3
"""Axes that `*B` stands for, at most: B0, B1 and B2. A case has the first of them, or none."""
_ROLES = {"storage": Role.STORAGE, "float32": Role.ACCUMULATE} | {
    role.value: role for role in (Role.INT32, Role.INT64, Role.BOOL)
}
_NOTATION = re.compile(
    r"\[(?P<axes>[^\]]*)\]"
    r"(?: *(?P<dtype>(?!constant\b|optional\b)\w+))?"
    r"(?: in (?P<least>[^.]+?)\.\.(?P<end>[^.]+?))?(?: or (?P<sentinel>-?\d+))?"
    r"(?: (?P<order>sorted|permutation))?(?P<constant> constant)?(?P<optional> optional)?"
)
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_DTYPES = {
    torch.bfloat16: Role.STORAGE,
    torch.float32: Role.ACCUMULATE,
    **{getattr(torch, role.value): role for role in (Role.INT32, Role.INT64, Role.BOOL)},
}


class DeclarationError(ValueError):
    """Raised for a declaration that cannot be read; the message names the argument and what was expected."""


def operator(
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

    Raises:
        DeclarationError: an argument of the function is not declared, or a declaration is no notation.
    """

    def make(function: Callable[..., Any]) -> Operator:
        table = _operator(name or function.__name__, function, declared, _symbols(tokens))
        tensors, given = {spec.name for spec in table.drawn}, exact or {}
        _require_names(table, "mutates", mutates, table.forward_arguments)
        _require_names(table, "usual", () if usual is None or callable(usual) else usual, tensors)
        _require_names(table, "production", production or (), table.axis_names)
        _require_names(table, "residuals", residuals or (), [spec.name for spec in table.outputs])
        _require_names(table, "exact", given, {*tensors, *table.scalars})
        for named, regime in (regimes or {}).items():
            _require_names(table, f"regimes: {named}", (*regime.tensors, *regime.scalars), {*tensors, *table.scalars})
        return replace(
            table,
            mutates=frozenset(mutates),
            usual_exponents=usual if callable(usual) else lambda sizes: usual or {},
            regimes=regimes or {},
            model_sizes={axis: tuple(values) for axis, values in (production or {}).items()},
            relations=tuple(relations),
            residuals=residuals or {},
            exact_recipes={one: value for one, value in given.items() if isinstance(value, Recipe)},
            exact_scalars={one: float(value) for one, value in given.items() if not isinstance(value, Recipe)},
        )

    return make


def _require_names(table: Operator, keyword: str, names: Collection[str], known: Collection[str]) -> None:
    if isinstance(names, str) or not set(names) <= set(known):
        wanted = f"must name some of {', '.join(sorted(known))}"
        raise DeclarationError(f"{table.name}: {keyword} {wanted}, was {names if isinstance(names, str) else [*names]!r}")


def _operator(name: str, function: Callable[..., Any], declared: Mapping[str, Any], tokens: tuple[str, ...]) -> Operator:
    parameters = inspect.signature(function).parameters.values()
    tensors = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
    scalars = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    for one in (*tensors, *scalars):
        if one not in declared:
            raise DeclarationError(f"{name}: {one} is an argument of the function, and is not declared")
    inputs = tuple(_spec(name, one, declared[one]) for one in tensors)
    if not inputs:
        raise DeclarationError(f"{name}: the function has no tensor argument")
    others = {one: value for one, value in declared.items() if one not in tensors and one not in scalars}
    formulas = {one: value for one, value in others.items() if isinstance(value, str)}
    symbols = _all_symbols(name, inputs, formulas)
    starred = _starred(name, [declared[one] for one in tensors], [*formulas.values()])
    for one in others:
        if one not in symbols and one not in starred.values():
            raise DeclarationError(f"{name}: {one} is neither an argument of the function nor an axis of its tensors")
    ranges = {one: others.get(starred.get(one, one), (1, 8192)) for one in symbols if one not in formulas}
    axes = tuple(_axis(name, one, given, leading=one in starred) for one, given in ranges.items())
    formulas = _ordered(name, formulas, [one.name for one in axes])
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
        forward=Forward(function),
        backward=Forward(function),
        function=function,
    )
    _check_tokens(record)
    outputs = _Outputs(record).specs()
    whole = record_of(
        name,
        axes=axes,
        tokens=tokens,
        inputs=inputs,
        outputs=outputs,
        scalars=choices,
        formulas=formulas,
        forward=record.forward,
        backward=Backward(function, inputs, outputs),
        function=function,
    )
    names = [spec.name for spec in (*whole.argument_specs.values(), *whole.result_specs.values())]
    twice = [one for one in names if names.count(one) > 1]
    if twice:
        raise DeclarationError(f"{name}: {twice[0]} is the name of a gradient or an output; name the argument otherwise")
    return whole


@dataclass(frozen=True)
class Forward:
    """A forward whose outputs come in a tuple, where its function returns one tensor too."""

    function: Callable[..., Any]

    def __call__(self, *tensors: Tensor | None, **scalars: Any) -> tuple[Tensor, ...]:
        return _tuple(self.function(*tensors, **scalars))


@dataclass(frozen=True)
class Backward:
    """The backward that autograd derives, with the arguments and results that `Operator` gives it.

    Only floating-point inputs are differentiated, and only the differentiable outputs have an upstream gradient.
    The function may write into the inputs that `mutates` names.
    """

    function: Callable[..., Any]
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    mutates: Collection[str] = ()

    def __call__(self, *tensors: Tensor | None, **scalars: Any) -> tuple[Tensor | None, ...]:
        if not any(spec.differentiable for spec in self.inputs) or not any(spec.differentiable for spec in self.outputs):
            return ()
        required = [spec.name for spec in self.inputs if not spec.optional]
        last = [spec.name for spec in self.inputs if spec.optional]
        end = len(required) + sum(spec.differentiable for spec in self.outputs)
        given = dict(zip((*required, *last), (*tensors[: len(required)], *tensors[end:]), strict=True))
        wanted = [spec.name for spec in self.inputs if spec.differentiable and given[spec.name] is not None]
        leaves = {name: one.detach().requires_grad_(name in wanted) for name, one in given.items() if one is not None}
        given.update(leaves)
        with torch.enable_grad():
            for name in self.mutates:  # autograd forbids to write into a leaf
                given[name] = leaves[name].clone() if name in leaves else None
            results = _tuple(self.function(*(given[spec.name] for spec in self.inputs), **scalars))
        judged = [one for one, spec in zip(results, self.outputs, strict=True) if spec.differentiable]
        upstream = tensors[len(required) : end]
        found = torch.autograd.grad(judged, [leaves[name] for name in wanted], upstream, allow_unused=True)
        gradients = dict(zip(wanted, found, strict=True))
        return tuple(gradients.get(spec.name) for spec in self.inputs if spec.differentiable)


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _spec(operator: str, name: str, notation: object) -> TensorSpec:
    matched = _NOTATION.fullmatch(notation.strip()) if isinstance(notation, str) else None
    role = _ROLES.get(matched["dtype"] or "storage") if matched else None
    if matched is None or role is None:
        wanted = f'"[axes] dtype" with a dtype out of {", ".join(_ROLES)}'
        raise DeclarationError(f"{operator}: {name} must be declared as {wanted}, was {notation!r}")
    optional, differentiable = matched["optional"] is not None, matched["constant"] is None
    spec = TensorSpec(name, _symbols(matched["axes"]), role, optional, differentiable=differentiable)
    return replace(spec, values=_values(operator, spec, matched))


def _values(operator: str, spec: TensorSpec, matched: re.Match[str]) -> Values | None:
    """Return the values of a tensor of integers or booleans, from the notation behind its dtype."""
    least, end = matched["least"], matched["end"]
    order: Order = matched["order"] or ""  # type: ignore[assignment]  # one of the words in `_NOTATION`
    sentinel = None if matched["sentinel"] is None else int(matched["sentinel"])
    where = f"{operator}: {spec.name} is declared as {matched.string!r}"
    if spec.floating or spec.role is Role.BOOL:
        if end or order or sentinel is not None:
            raise DeclarationError(f"{where}; only int32 and int64 have a range, a sentinel or an order")
        return None if spec.floating else Values()
    if order == "permutation":
        if end or sentinel is not None or not spec.symbols:
            raise DeclarationError(f"{where}; a permutation is of all indices of its last axis, without range or sentinel")
        return Values(end=spec.symbols[-1], order=order)
    if end is None or (order and not spec.symbols):
        raise DeclarationError(f'{where}; an integer tensor has a range, as in "[T] int64 in 0..V", which excludes V')
    return Values(least.strip(), end.strip(), sentinel, order)


def _all_symbols(operator: str, inputs: Sequence[TensorSpec], formulas: Mapping[str, str]) -> list[str]:
    """Return the symbols of the tensors, of their ranges and of the formulas, each once."""
    symbols = [symbol for spec in inputs for symbol in spec.symbols if not symbol.isdigit()]
    try:
        for spec in inputs:
            symbols += sorted(spec.values.symbols) if spec.values is not None else ()
        for name, formula in formulas.items():
            symbols += (name, *expression.symbols(formula))
    except expression.ExpressionError as error:
        raise DeclarationError(f"{operator}: {error}") from None
    return [one for one in dict.fromkeys(symbols) if not one.isdigit()]


def _ordered(operator: str, formulas: Mapping[str, str], axes: Sequence[str]) -> dict[str, str]:
    """Return the formulas, each behind those of its symbols."""
    found: dict[str, str] = {}
    while len(found) < len(formulas):
        ready = [
            name
            for name, formula in formulas.items()
            if name not in found and all(one in axes or one in found for one in expression.symbols(formula))
        ]
        if not ready:
            circle = ", ".join(f"{name} = {formula}" for name, formula in formulas.items() if name not in found)
            raise DeclarationError(f"{operator}: these sizes depend on themselves: {circle}")
        found.update({name: formulas[name] for name in ready})
    return found


def _symbols(text: str) -> tuple[str, ...]:
    """Return the symbols in a list, with `LEADING` of them for `*B`."""
    names = [one.strip() for one in text.split(",") if one.strip()]
    spread = [[f"{one[1:]}{at}" for at in range(LEADING)] if one.startswith("*") else [one] for one in names]
    return tuple(symbol for some in spread for symbol in some)


def _starred(operator: str, notations: Sequence[str], formulas: Sequence[str]) -> dict[str, str]:
    """Return the axes that have a star in the notations, such as B0, each with its name there, such as B."""
    brackets = [one.strip() for text in notations for one in _NOTATION.fullmatch(text.strip())["axes"].split(",")]  # type: ignore[index]
    ranges = [one for text in notations for one in re.findall(r"[A-Za-z_]\w*", text.partition("]")[2])]
    words = {*brackets, *ranges, *(one for text in formulas for one in expression.symbols(text))}
    found = {one: stem[1:] for stem in brackets if stem.startswith("*") for one in _symbols(stem)}
    for one, stem in found.items():
        if words & {one, stem}:
            raise DeclarationError(f"{operator}: a case may have no axis {one}, so that only *{stem} in brackets names it")
    return found


def _axis(operator: str, symbol: str, given: object, *, leading: bool) -> Axis:
    whole = isinstance(given, tuple) and len(given) == 2 and all(type(one) is int for one in given)
    if not whole or not 0 <= given[0] <= given[1]:  # type: ignore[index]
        raise DeclarationError(f"{operator}: {symbol} must be a pair of integers, least and most, was {given!r}")
    return Axis(symbol, *given, leading=leading)  # type: ignore[misc]


def _choices(operator: str, name: str, given: object) -> tuple[float, ...]:
    values = _tuple(given)
    if not values or not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values):
        raise DeclarationError(
            f"{operator}: {name} must be a number or a tuple of numbers, the default first, was {given!r}"
        )
    return tuple(float(one) for one in values)


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


@dataclass(frozen=True)
class _Outputs:
    """Finds the outputs of an operator by calls of its function, in which each axis has a size of its own.

    The calls have data: the first use of the device "meta" imports TorchDynamo, which takes two seconds.
    """

    table: Operator

    def specs(self) -> tuple[TensorSpec, ...]:
        """Return the specs of the outputs."""
        axes = self.table.axes
        if len(axes) >= len(_PRIMES):
            raise DeclarationError(f"{self.table.name}: at most {len(_PRIMES) - 1} axes are supported, was {len(axes)}")
        first, second = (self._sizes(shift) for shift in (0, 1))
        results, others = self._results(first), self._results(second)
        taken = {name for spec in self.table.inputs for name in (spec.name, f"d{spec.name}")}
        stem = "out" if taken & {"y", "dy", *(f"{d}y{at}" for d in ("", "d") for at in range(len(results)))} else "y"
        found = []
        for at, (one, other) in enumerate(zip(results, others, strict=True)):
            name = stem if len(results) == 1 else f"{stem}{at}"
            if not isinstance(one, Tensor) or one.dtype not in _DTYPES or one.dim() != other.dim():
                was = str(one.dtype) if isinstance(one, Tensor) else type(one).__name__
                wanted = f"a tensor in the dtype of the case, {', '.join(list(_ROLES)[1:])}"
                raise DeclarationError(f"{self.table.name}: output {name} must be {wanted}, was {was}")
            symbols = tuple(self._symbol(name, pair, (first, second)) for pair in zip(one.shape, other.shape, strict=True))
            found.append(TensorSpec(name, symbols, _DTYPES[one.dtype], differentiable=one.requires_grad))
        self._check_variants(first, found)
        return tuple(found)

    def _sizes(self, shift: int) -> Mapping[str, int]:
        """Return sizes of all symbols in which each axis has a prime of its own, where its range has one left."""
        chosen: dict[str, int] = {}
        for at, axis in enumerate(self.table.axes):
            primes = (*_PRIMES[at + shift :], *_PRIMES)
            inside = [one for one in primes if axis.least <= one <= axis.most and one not in chosen.values()]
            chosen[axis.name] = inside[0] if inside else min(max(primes[0], axis.least), axis.most)
        problem = self.table.problem(chosen)
        if problem is not None:
            raise DeclarationError(f"{self.table.name}: for {_listed(chosen)}: {problem}")
        return self.table.sizes(chosen)

    def _symbol(self, output: str, pair: tuple[int, int], sizes: tuple[Mapping[str, int], Mapping[str, int]]) -> str:
        """Return the symbol of a dimension from its size in two calls."""
        fitting = [name for name in sizes[0] if (sizes[0][name], sizes[1][name]) == pair]
        fixed = {axis.name for axis in self.table.axes if axis.least == axis.most}
        if pair[0] == pair[1] and fixed.issuperset(fitting):
            return str(pair[0])
        if len(fitting) != 1:
            meant = f"may be {' or '.join(fitting)}" if fitting else "is no symbol; declare one, as in D2='2*D'"
            raise DeclarationError(
                f"{self.table.name}: {output} has an axis of {pair[0]} for {_listed(sizes[0])}, which {meant}"
            )
        return fitting[0]

    def _check_variants(self, sizes: Mapping[str, int], outputs: Sequence[TensorSpec]) -> None:
        """Require outputs of the same shapes and dtypes with fewer leading axes, and without the optional tensors."""
        leading = [axis.name for axis in self.table.axes if axis.leading]
        optional = frozenset(spec.name for spec in self.table.inputs if spec.optional)
        fewer = [{name: size for name, size in sizes.items() if name not in leading[rank:]} for rank in range(len(leading))]
        for there, absent in [(sizes, optional), *((one, frozenset[str]()) for one in fewer)]:
            results = self._results(there, absent)
            for one, spec in zip(results, outputs, strict=True):
                if tuple(one.shape) != spec.shape(there) or _DTYPES.get(one.dtype) is not spec.role:
                    where = f"{''.join(f'without {one} ' for one in sorted(absent))}for {_listed(there)}"
                    was = f"{tuple(one.shape)}, {one.dtype}"
                    raise DeclarationError(
                        f"{self.table.name}: {spec.name} is {was} {where}, not [{', '.join(spec.symbols)}]"
                    )

    def _results(self, sizes: Mapping[str, int], absent: frozenset[str] = frozenset()) -> tuple[Any, ...]:
        """Return what the function returns for these sizes."""
        inputs = self.table.inputs
        given = [None if spec.name in absent else _argument(spec, sizes) for spec in inputs]
        try:
            return _tuple(self.table.forward(*given, **self.table.scalars))
        except Exception as error:
            shapes = [f"{spec.name} {tuple(one.shape)}" for spec, one in zip(inputs, given, strict=True) if one is not None]
            what = f"the function fails on {', '.join(shapes)}{''.join(f', without {one}' for one in sorted(absent))}"
            raise DeclarationError(f"{self.table.name}: {what}: {type(error).__name__}: {error}") from error


def _argument(spec: TensorSpec, sizes: Mapping[str, int]) -> Tensor:
    if spec.values is not None:
        return plain_values(spec, sizes)
    ones = torch.ones(spec.shape(sizes), dtype=spec.dtype(torch.bfloat16))
    return ones.requires_grad_(spec.differentiable)


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
