"""The record of one operator: its tensors, scalars and formula, as a table.

No module outside an operator's folder names its tensors: materialising a case, checking arguments (`mhc.arguments`),
running an implementation and judging it all use this table. Its tensors are described by `mhc.tensor_spec`.
"""

import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from mhc.recipe import Recipe
from mhc.tensor_spec import FIXED, STORAGE_DTYPES, Order, Role, TensorSpec, Values, accumulation_dtype

__all__ = [
    "DEFAULT",
    "OPERATORS",
    "STAGES",
    "STORAGE_DTYPES",
    "TRAINING",
    "UNLIMITED",
    "Axis",
    "Draw",
    "Operator",
    "Order",
    "Regime",
    "Relation",
    "Role",
    "T",
    "TensorSpec",
    "Values",
    "Wanted",
    "accumulation_dtype",
    "register",
]

T = TypeVar("T")
DEFAULT = "mhc_pre"
"""The operator where none is named."""
STAGES = ("forward", "backward")
TRAINING = "training"
"""Forward and backward in one run, with the arguments of the backward and the results of both."""
UNLIMITED = 2**63 - 1
"""The largest size of a tensor."""
_LARGER = 65  # sizes of an axis that are tried where its least one cannot be


@dataclass(frozen=True)
class Axis:
    """A symbol whose size a case chooses, and its range; sizes of other symbols follow from those of the axes.

    Attributes:
        leading: one of several axes that a case may leave out, the last first; then its tensors have no such dimension.
    """

    name: str
    least: int = 1
    most: int = UNLIMITED
    leading: bool = False


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A metamorphic relation of an operator: how its results scale where its inputs are multiplied by factors.

    Attributes:
        name: its name in verdicts, two or three words.
        factors: returns, from the sizes and a power of two, the factors by tensor name: those by which inputs and upstream
            gradients are multiplied, and those by which outputs and gradients must change.
        scalars: returns the factors of scalars from the power of two.
        powers: the powers of two to choose from.
        ones: optional inputs that are ones, before they are multiplied, where the case has none.
        silent: outputs and gradients for which the relation predicts nothing.
    """

    name: str
    factors: Callable[[Mapping[str, int], float], Mapping[str, Tensor | float]]
    scalars: Callable[[float], Mapping[str, float]] = lambda power: {}
    powers: tuple[float, ...] = (2.0, 0.5, 16.0, 0.0625, 512.0, 2.0**-9)
    ones: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()


class Draw(Protocol):
    """What `Operator.draw_sizes` draws with; `strategies` implements it."""

    def choice(self, options: tuple[T, ...]) -> T:
        """Return one of `options`, simplest first."""

    def integer(self, least: int, most: int) -> int:
        """Return an integer from `least` to `most`."""

    def log_uniform(self, least: int, most: int) -> int:
        """Return a log-uniform integer from `least` to `most`, often a power of 2 or next to one."""


@dataclass(frozen=True, kw_only=True)
class Regime:
    """A state of a model, such as saturated gates.

    Attributes:
        tensors: by name, the recipe kind (None: any) and the range of log2 of the scale.
        scalars: values of scalars.
    """

    tensors: Mapping[str, tuple[str | None, int, int]]
    scalars: Mapping[str, float] = field(default_factory=dict)


Wanted = tuple[TensorSpec, tuple[int, ...], torch.dtype]
"""An argument with the shape and the dtype that it must have in a call."""


@dataclass(frozen=True)
class Operator:
    """An operator and its backward.

    `forward` takes the `inputs` in order and the scalars as keywords, and returns the `outputs` in order. `backward`
    takes `inputs` (its optional ones last), the `saved` outputs and the `upstream` gradients, and returns `gradients`.
    Both are polymorphic in the number type. The gradient of an output or input `a` is named `da`; what has none is not in
    `upstream` or `gradients`. Outputs named in `optional_outputs` may be None from an implementation.

    A case chooses the sizes of the `axes`; `derived` returns those of all other symbols from them. Where the operator was
    declared, it evaluates `formulas`, expressions by symbol, each of axes and of symbols before it.

    For the oracles: `tokens` are the leading symbols of every tensor with a row for each token; tokens are independent.
    `streams` is the symbol of interchangeable streams, and `blocks` defines a symbol as a concatenation of products of
    symbols. `relations` are its metamorphic relations. `exact_recipes` and `exact_scalars` give inputs on which as many
    stages as possible are exact.

    `mutates` names inputs that an implementation may write; an output or a gradient may then share their memory.
    `intermediates` returns the axes of each large tensor that `function` makes on its way, such as scores (B, H, S, S).

    `function` is the plain PyTorch function that is the reference, where the operator was declared by one
    (`mhc.declaration`); then `forward` and `backward` are made from it, and bounds are read from it. `described` says that
    its file has not been imported, so that they cannot be called. `residuals` has a plain function for each output that has
    no one right value: of the inputs and that output, 0 in each element that is right. `algorithms` are further plain
    functions that compute the same in other ways: a result may have the errors of any of them.

    For the strategies: `scalar_choices` are the values of scalars. `usual_exponents` returns, from the sizes, log2 of the
    scale of tensors in a model (0 if missing), and `regimes` names states of a model. Sizes are drawn from the ranges of
    the axes, and `model_sizes` are sizes of axes in models; or `draw_sizes` returns those of the axes. It takes a `Draw`;
    the kind of sizes, "usual", "stretched" or "model"; `max_elements` of the largest tensor; `usual` sizes in order; those
    `beside` a tile; and `like`, the sizes of a case whose compiled programs are to be used again, or None.

    `size_labels` are the symbols whose sizes reports show, by the words there; without them, the axes. `probe_sizes` are the
    sizes of the presence gate's probes, simplest first; without them, the gate chooses.

    `wanted` keeps, by shape and dtype of the first input, what the arguments of a call must be (`mhc.arguments`).
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    saved: tuple[str, ...]
    upstream: tuple[TensorSpec, ...]
    gradients: tuple[TensorSpec, ...]
    optional_outputs: frozenset[str]
    scalars: Mapping[str, float]
    axes: tuple[Axis, ...]
    derived: Callable[[Mapping[str, int]], Mapping[str, int]]
    forward: Callable[..., Sequence[Any]]
    backward: Callable[..., Sequence[Any]]
    tokens: tuple[str, ...] = ()
    streams: str = ""
    blocks: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    relations: tuple[Relation, ...] = ()
    exact_recipes: Mapping[str, Recipe] = field(default_factory=dict)
    exact_scalars: Mapping[str, float] = field(default_factory=dict)
    usual_exponents: Callable[[Mapping[str, int]], Mapping[str, int]] = lambda sizes: {}
    regimes: Mapping[str, Regime] = field(default_factory=dict)
    model_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    draw_sizes: Callable[..., Mapping[str, int]] | None = None
    size_labels: Mapping[str, str] = field(default_factory=dict)
    probe_sizes: tuple[Mapping[str, int], ...] = ()
    scalar_choices: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    function: Callable[..., Any] | None = None
    residuals: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    algorithms: tuple[Callable[..., Any], ...] = ()
    formulas: Mapping[str, str] = field(default_factory=dict)
    mutates: frozenset[str] = frozenset()
    intermediates: Callable[[], tuple[tuple[str, ...], ...]] = tuple
    described: bool = False
    wanted: dict[tuple[torch.Size, torch.dtype], Mapping[str, Wanted]] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )

    def __call__(self, *tensors: Tensor | None, **scalars: float) -> Any:
        """Return what the function returns of which the operator was declared, so that its file can still call it."""
        if self.function is None:
            raise TypeError(f"operator {self.name} was not declared by a function, or its file has not been imported")
        return self.function(*tensors, **scalars)

    @property
    def is_declared(self) -> bool:
        """Return whether a plain PyTorch function declares it."""
        return self.function is not None or self.described

    @property
    def is_packaged(self) -> bool:
        """Return whether it comes with this package."""
        made_of = self.function or self.forward
        return str(getattr(made_of, "__module__", "")).startswith("mhc.operators.")

    def scalar(self, name: str, value: Any) -> Any:
        """Return the value as an integer or boolean, if such are the scalar's choices and it equals one."""
        kind: Any = type(self.scalars.get(name))
        return kind(value) if kind in {bool, int} and isinstance(value, (int, float)) and kind(value) == value else value

    @property
    def description(self) -> tuple[object, ...]:
        """Return the part of a declared operator that a case's JSON holds (`mhc.operator_json`)."""
        tensors = self.inputs, self.outputs
        return self.name, self.axes, self.tokens, *tensors, dict(self.scalar_choices), dict(self.formulas)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """Return the plain functions whose errors a result may have: the reference, then `algorithms`."""
        return () if self.function is None else (self.function, *self.algorithms)

    @functools.cached_property
    def forward_arguments(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.inputs)

    @functools.cached_property
    def backward_arguments(self) -> tuple[str, ...]:
        required = [spec.name for spec in self.inputs if not spec.optional]
        optional = [spec.name for spec in self.inputs if spec.optional]
        return (*required, *self.saved, *(spec.name for spec in self.upstream), *optional)

    def different(self, dtypes: Iterable[str]) -> tuple[str, ...]:
        """Return names of dtypes of cases in which its tensors differ: where several mean the same, float32 or the first."""
        tensors = (*self.argument_specs.values(), *self.result_specs.values())
        found: dict[tuple[torch.dtype, ...], str] = {}
        for name in dtypes:
            meant = tuple(spec.dtype(getattr(torch, name)) for spec in tensors)
            found[meant] = name if name == "float32" else found.get(meant, name)
        return tuple(found.values())

    def interface(self, stage: str) -> tuple[tuple[str, ...], tuple[TensorSpec, ...]]:
        """Return the names of a stage's arguments and the specs of its results, both in order."""
        if stage == STAGES[0]:
            return self.forward_arguments, self.outputs
        return self.backward_arguments, (*self.outputs, *self.gradients) if stage == TRAINING else self.gradients

    @functools.cached_property
    def argument_specs(self) -> Mapping[str, TensorSpec]:
        """Return every tensor that the forward or the backward takes, by name."""
        saved = [spec for spec in self.outputs if spec.name in self.saved]
        return {spec.name: spec for spec in (*self.inputs, *saved, *self.upstream)}

    @functools.cached_property
    def result_specs(self) -> Mapping[str, TensorSpec]:
        """Return every output and gradient, by name."""
        return {spec.name: spec for spec in (*self.outputs, *self.gradients)}

    def sizes(self, chosen: Mapping[str, int]) -> Mapping[str, int]:
        """Return the sizes of all symbols from those of the axes; other names in `chosen` are not used."""
        of_axes = {axis.name: chosen[axis.name] for axis in self.axes if not axis.leading or axis.name in chosen}
        return {**of_axes, **self.derived(of_axes)}

    @functools.cached_property
    def _implies(self) -> bool:
        """Whether something follows from the sizes of the axes that need not exist."""
        return self.function is None or bool(self.formulas) or any(spec.values is not None for spec in self.inputs)

    def problem(self, chosen: Mapping[str, int]) -> str | None:
        """Return why a case cannot have these sizes of the axes, None if it can: what follows from them must exist."""
        for one, other in pairwise(self.axes):
            if one.leading and other.leading and other.name in chosen and one.name not in chosen:
                return f"{other.name} is given without {one.name}"
        for axis in self.axes:
            if not axis.least <= chosen.get(axis.name, axis.least) <= axis.most:
                return f"{axis.name} = {chosen[axis.name]} is not in {axis.least}..{axis.most}"
        if not self._implies:
            return None
        try:
            sizes = self.sizes(chosen)
            ranges = {spec.name: spec.values.range(sizes) for spec in self.inputs if spec.values is not None}
        except ZeroDivisionError:
            return "an expression divides by 0"
        for name in self.formulas:
            if sizes[name] < 0:
                return f"{name} = {self.formulas[name]} is {sizes[name]}"
        for spec in self.inputs:
            values = ranges.get(spec.name)
            if values is None or 0 in spec.shape(sizes):
                continue
            if not values:
                return f"{spec.name} has no value: its range is {values.start}..{values.stop}"
            if spec.role in FIXED and spec.role is not Role.BOOL:
                held = torch.iinfo(FIXED[spec.role])
                if values.start < held.min or values.stop - 1 > held.max:
                    return f"{spec.name} has values {values.start}..{values.stop - 1}, beyond {spec.role.value}"
        return None

    @functools.cached_property
    def smallest(self) -> Mapping[str, int]:
        """Return small sizes of the axes that a case can have: the least of each, but for one or all that are larger.

        A label in 0..V-1 asks for V = 2, whatever the least V is declared to be.
        """
        least = {axis.name: axis.least for axis in self.axes}
        for more in range(_LARGER):
            some = {axis.name: min(axis.most, axis.least + more) for axis in self.axes}
            for sizes in (*({**least, name: size} for name, size in some.items()), some):
                if self.problem(sizes) is None:
                    return sizes
        return least

    @functools.cached_property
    def axis_names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    def axis(self, name: str) -> Axis:
        """Return the axis of a name."""
        return next(axis for axis in self.axes if axis.name == name)

    @functools.cached_property
    def widths(self) -> tuple[str, ...]:
        """Return the names of the axes that are no axes of tokens."""
        return tuple(name for name in self.axis_names if name not in self.tokens)

    def per_token(self, spec: TensorSpec) -> bool:
        """Return whether a tensor has a row for each token."""
        return spec.symbols[: len(self.tokens)] == self.tokens

    @functools.cached_property
    def token_sums(self) -> frozenset[str]:
        """Return the names of the gradients that are sums over tokens."""
        return frozenset(spec.name for spec in self.gradients if not self.per_token(spec))

    @functools.cached_property
    def drawn(self) -> tuple[TensorSpec, ...]:
        """Return the tensors that a case defines: the inputs and the upstream gradients."""
        return (*self.inputs, *self.upstream)


_REGISTERED: dict[str, Operator] = {}


class _Registered(Mapping[str, Operator]):
    """The registered operators. Those of the package are registered before the first one is looked up."""

    def __getitem__(self, name: str) -> Operator:
        return _with_packaged()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_with_packaged())

    def __len__(self) -> int:
        return len(_with_packaged())


def _with_packaged() -> dict[str, Operator]:
    if "mhc.operators" not in sys.modules:
        importlib.import_module("mhc.operators")
    return _REGISTERED


OPERATORS: Mapping[str, Operator] = _Registered()
"""All operators by name; `mhc.operators` registers those of the package."""


def register(operator: Operator) -> Operator:
    """Add an operator to `OPERATORS`, and return it: under a name with its file's, where the package has one of its name.

    Raises:
        ValueError: another operator has its name.
    """
    known = _with_packaged().get(operator.name)
    if known is not None and known.is_packaged and not operator.is_packaged and operator.function is not None:
        file = re.sub(r"\W", "_", Path(operator.function.__code__.co_filename).stem)
        operator = replace(operator, name=f"{file}.{operator.name}")
        known = _REGISTERED.get(operator.name)
    if known is not None and known.described:
        if known.description != operator.description:
            raise ValueError(f"operator {operator.name!r}: a case that was read before declares it otherwise")
    elif known is not None and known is not operator:
        same = known.function is not None and operator.function is not None
        if not same or _place(known.function) != _place(operator.function):  # type: ignore[arg-type]
            other = f" (in {_place(known.function)[0]})" if known.function is not None else ""
            raise ValueError(f"operator {operator.name!r}: another one has this name{other}; give one of them name=")
    _REGISTERED[operator.name] = operator  # its file was imported, or imported again
    return operator


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    """Return where a function is defined."""
    return function.__code__.co_filename, function.__qualname__
