"""The outputs of an operator that a function declares, found by calls of the function in small sizes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from mhc.dispatch_mode import DispatchMode
from mhc.notation import ROLES, DeclarationError
from mhc.operator import Operator, Role, TensorSpec
from mhc.recipe import Recipe
from mhc.tensor_spec import FIXED
from mhc.values import plain_values, values_of

_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_DTYPES = {
    torch.bfloat16: Role.STORAGE,
    torch.float32: Role.ACCUMULATE,
    **{dtype: role for role, dtype in FIXED.items()},
}


@dataclass(frozen=True)
class Outputs:
    """Finds the outputs of an operator by calls of its function, in which each axis has a size of its own.

    The calls have data: the first use of the device "meta" imports TorchDynamo, which takes two seconds.
    """

    table: Operator

    def specs(self) -> tuple[TensorSpec, ...]:
        """Return the specs of the outputs."""
        axes = self.table.axes
        if len(axes) >= len(_PRIMES):
            raise DeclarationError(f"{self.table.name}: at most {len(_PRIMES) - 1} axes are supported, was {len(axes)}")
        first = self._sizes(0, {})
        calls = [first, self._sizes(1, first)]
        answers = [self._results(sizes) for sizes in calls]
        if self._is_in_doubt(calls, answers):
            calls.append(self._sizes(2, first, other=True))
            answers.append(self._results(calls[-1]))
        results = answers[0]
        taken = {name for spec in self.table.inputs for name in (spec.name, f"d{spec.name}")}
        stem = "out" if taken & {"y", "dy", *(f"{d}y{at}" for d in ("", "d") for at in range(len(results)))} else "y"
        found = []
        for at, (one, *others) in enumerate(zip(*answers, strict=True)):
            name = stem if len(results) == 1 else f"{stem}{at}"
            if not isinstance(one, Tensor) or one.dtype not in _DTYPES or any(one.dim() != other.dim() for other in others):
                was = str(one.dtype) if isinstance(one, Tensor) else type(one).__name__
                wanted = f"a tensor in the dtype of the case, {', '.join(list(ROLES)[1:])}"
                raise DeclarationError(f"{self.table.name}: output {name} must be {wanted}, was {was}")
            shapes = zip(one.shape, *(other.shape for other in others), strict=True)
            symbols = tuple(self._symbol(name, dimension, calls) for dimension in shapes)
            found.append(TensorSpec(name, symbols, _DTYPES[one.dtype], differentiable=one.requires_grad))
        self._check_variants(first, found)
        return tuple(found)

    def intermediates(self) -> tuple[tuple[str, ...], ...]:
        """Return the axes of each tensor that the function makes, where no argument and no other such tensor has them all.

        Optional tensors are left out, and axes that are no symbol and no product of symbols, such as one of D + 1: an axis
        is a symbol where it has its size in two calls of other sizes. The first call takes a second, to import what PyTorch
        needs to watch operations.
        """
        first = self._sizes(0, {})
        known = [Counter(spec.symbols) for spec in self.table.inputs if not spec.optional]
        made = self._made(first, self._sizes(1, first))
        found: list[Counter[str]] = []
        for one in sorted(made, key=Counter.total, reverse=True):
            if not any(one <= other for other in (*known, *found)):
                found.append(one)
        return tuple(tuple(sorted(one.elements())) for one in found)

    def _made(self, *calls: Mapping[str, int]) -> list[Counter[str]]:
        """Return the axes of all tensors that the function makes, as far as calls with two sets of sizes agree on them.

        Where they make different numbers of tensors, those are left out that the other call has not.
        """
        named = []
        for sizes in calls:
            with _Shapes() as seen:
                self._results(sizes, frozenset(spec.name for spec in self.table.inputs if spec.optional))
            of_size: dict[int, tuple[str, ...]] = {size: (name,) for name, size in sizes.items()}
            for pair in combinations(sizes, 2):
                of_size.setdefault(sizes[pair[0]] * sizes[pair[1]], pair)
            named.append([[of_size.get(size, ()) for size in shape] for shape in seen.shapes])
        a, b = named
        if [*map(len, a)] == [*map(len, b)]:
            agreed = [[one for one, other in zip(*shapes, strict=True) if one == other] for shapes in zip(a, b, strict=True)]
        else:
            agreed = [shape for shape in a if shape in b]
        return [Counter(name for names in shape for name in names) for shape in agreed]

    def _sizes(self, shift: int, before: Mapping[str, int], *, other: bool = False) -> Mapping[str, int]:
        """Return sizes of all symbols: each axis has a prime of its own, or else a size of its own, where one is left.

        It is another one than `before`, if it can be: so a number in an output is not taken for an axis. Where there is no
        prime, it may be the same, but for `other`.
        """
        chosen: dict[str, int] = {}
        for at, axis in enumerate(self.table.axes):
            primes = (*_PRIMES[at + shift :], *_PRIMES)
            inside = [one for one in primes if axis.least <= one <= axis.most]
            inside.sort(key=lambda one, name=axis.name: one == before.get(name))  # type: ignore[misc]
            nearest = min(max(primes[0], axis.least), axis.most)
            around = range(max(axis.least, nearest - 16), min(axis.most, nearest + 16) + 1)
            others = sorted(around, key=lambda one, nearest=nearest: abs(one - nearest))  # type: ignore[misc]
            free = [one for one in (*inside, *others) if one not in chosen.values()]
            if other:
                free.sort(key=lambda one, name=axis.name: one == before[name])  # type: ignore[misc]
            chosen[axis.name] = (free or [nearest])[0]
        problem = self.table.problem(chosen)
        if problem is not None:
            raise DeclarationError(f"{self.table.name}: for {_listed(chosen)}: {problem}")
        return self.table.sizes(chosen)

    def _is_in_doubt(self, calls: Sequence[Mapping[str, int]], answers: Sequence[tuple[Any, ...]]) -> bool:
        """Return whether a dimension of an output may be one of several symbols, by these calls."""
        outputs = [each for each in zip(*answers, strict=True) if all(isinstance(one, Tensor) for one in each)]
        # where the numbers of dimensions differ, it is refused below
        dimensions = [sizes for each in outputs for sizes in zip(*(one.shape for one in each), strict=False)]
        fitting = [_fitting(one, calls) for one in dimensions]
        return any(len(names) > 1 and not self._fixed.issuperset(names) for names in fitting)

    @property
    def _fixed(self) -> frozenset[str]:
        return frozenset(axis.name for axis in self.table.axes if axis.least == axis.most)

    def _symbol(self, output: str, dimension: tuple[int, ...], calls: Sequence[Mapping[str, int]]) -> str:
        """Return the symbol of a dimension from its size in each call."""
        fitting = _fitting(dimension, calls)
        if len(set(dimension)) == 1 and self._fixed.issuperset(fitting):
            return str(dimension[0])
        if len(fitting) != 1:
            meant = (
                f"may be {' or '.join(fitting)}; give one of them, or an axis that it is made of, a wider range"
                if fitting
                else "is no symbol; declare one, as in D2='2*D'"
            )
            raise DeclarationError(
                f"{self.table.name}: {output} has an axis of {dimension[0]} for {_listed(calls[0])}, which {meant}"
            )
        return fitting[0]

    def _check_variants(self, sizes: Mapping[str, int], outputs: Sequence[TensorSpec]) -> None:
        """Require outputs of the same shapes and dtypes with fewer leading axes, without the optional tensors, and with each
        value of a scalar.
        """
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
        for scalar, choices in self.table.scalar_choices.items():
            for other in choices[1:]:
                self._check_scalar(sizes, outputs, scalar, other)

    def _check_scalar(self, sizes: Mapping[str, int], outputs: Sequence[TensorSpec], scalar: str, value: Any) -> None:
        try:
            results = self._results(sizes, scalars={scalar: value})
        except DeclarationError:  # these sizes may be no case for that value
            return
        for one, spec in zip(results, outputs, strict=True):
            if tuple(one.shape) != spec.shape(sizes):
                was = f"{spec.shape(sizes)} with {scalar} = {self.table.scalars[scalar]}, {tuple(one.shape)} with {value}"
                raise DeclarationError(
                    f"{self.table.name}: {spec.name} is {was}, for {_listed(sizes)}: no size may depend on a scalar; give "
                    f"{scalar} one value, or make an operator for each"
                )

    def _results(
        self,
        sizes: Mapping[str, int],
        absent: frozenset[str] = frozenset(),
        scalars: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[Any, ...]:
        """Return what the function returns for these sizes.

        It runs on one thread: a process that is forked from one whose OpenMP threads have run may hang.
        """
        inputs = self.table.inputs
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        given = [None if spec.name in absent else _argument(spec, sizes) for spec in inputs]
        try:
            return tuple(self.table.forward(*given, **{**self.table.scalars, **scalars}))
        except Exception as error:
            shapes = [f"{spec.name} {tuple(one.shape)}" for spec, one in zip(inputs, given, strict=True) if one is not None]
            what = f"the function fails on {', '.join(shapes)}{''.join(f', without {one}' for one in sorted(absent))}"
            raise DeclarationError(f"{self.table.name}: {what}: {type(error).__name__}: {error}") from error
        finally:
            torch.set_num_threads(threads)


class _Shapes(DispatchMode):  # type: ignore[no-untyped-call]
    """Records the shapes of all tensors that operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        some = made if isinstance(made, (tuple, list)) else (made,)
        self.shapes += [tuple(one.shape) for one in some if isinstance(one, Tensor)]
        return made


def _fitting(dimension: tuple[int, ...], calls: Sequence[Mapping[str, int]]) -> list[str]:
    """Return the symbols that have a dimension's size in each call."""
    return [name for name in calls[0] if tuple(sizes[name] for sizes in calls) == dimension]


def _argument(spec: TensorSpec, sizes: Mapping[str, int]) -> Tensor:
    if spec.values is not None:
        return plain_values(spec, sizes)
    ones = values_of(Recipe(kind="constant"), spec, sizes, spec.dtype(torch.bfloat16))
    return ones.clone().requires_grad_(spec.differentiable)


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
