"""Implementation: one way to compute an operator, as a frozen record. It is the interface for external kernels."""

import inspect
import re
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from mhc.autotuned import CONFIG, NUMBERS, uses_autotuner
from mhc.case import Case, Schedule, ScheduleValue
from mhc.declaration import Backward, Inference, InTuple, call_error
from mhc.declared import OPERATIONS, Declared
from mhc.operator import DEFAULT, OPERATORS, STAGES, STORAGE_DTYPES, Operator, register

DEVICES = ("cpu", "cuda")
_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = (Path(sysconfig.get_path("stdlib")).resolve(), _PACKAGE, (_PACKAGE / "oracles").resolve())
"""Folders of files that are no implementation's own, beside installed packages."""

_LONGEST_NAME = 200


class Refused(Exception):
    """A reason why an implementation does not accept a case: returned by `supports`, or raised by a kernel.

    It is false as a condition, so that `if implementation.supports(case)` works.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = str(reason)

    def __bool__(self) -> bool:
        return False


class ImplementationError(ValueError):
    """Raised for an invalid implementation record or file; the message names it and says what was expected."""


def place_of(error: BaseException) -> str:
    """Return the file and line where an exception was raised: the last that is neither Python's, nor installed, nor ours.

    Triton's interpreter raises an exception of its own from one that a kernel raised; then it is the kernel's line.
    """
    inner = error.__cause__
    if inner is not None and type(error).__name__ == "InterpreterError" and (place := place_of(inner)):
        return place
    try:
        frames = traceback.extract_tb(error.__traceback__)
    except BaseException:  # of files that cannot be read
        return ""
    return _innermost([(one.filename, one.lineno) for one in reversed(frames)])


def place_of_crash(output: str) -> str:
    """Return the same of a process that a signal ended, from the stack that `faulthandler` wrote to its output."""
    stacks = re.findall(r"^Current thread .*\n((?:  File .*\n)+)", output, re.MULTILINE)
    return _innermost(re.findall(r'^  File "(.+)", line (\d+) in ', stacks[-1], re.MULTILINE)) if stacks else ""


def _innermost(frames: Sequence[tuple[str, Any]]) -> str:
    """Return the first file that is neither Python's, nor installed, nor ours, with its line.

    Args:
        frames: files and lines, the innermost first.
    """
    own = ((Path(file).name, line) for file, line in frames if Path(file).is_file() and not _is_installed(file))
    return next((f"{name}, line {line}" for name, line in own), "")


def _is_installed(file: str) -> bool:
    path = Path(file).resolve()
    in_site = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    return in_site or any(path.is_relative_to(one) for one in _INSTALLED)


def text_of(error: BaseException) -> str:
    """Return an exception's message; its `__str__` may be external code and raise itself."""
    try:
        return str(error)
    except BaseException as second:
        return f"its text cannot be read: {type(second).__name__} out of {type(error).__name__}.__str__"


def _available() -> None:
    return None


def _supports_everything(case: Case) -> Literal[True]:
    del case
    return True


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """A named forward and backward of one operator.

    `forward` takes the operator's inputs in order and its scalars as keywords, and returns the outputs. `backward` takes
    the inputs, saved outputs, upstream gradients and then the optional inputs, and returns the gradients. A gradient, or an
    output of `Operator.optional_outputs`, may be None: it is reported as not judged (docs/bring-your-own.md has examples).

    Attributes:
        name: unique; used in reports and fingerprints.
        forward, backward: one of them may be None; then it is not run. A single result needs no tuple around it.
        devices: device types, of "cpu" and "cuda".
        dtypes: accepted dtypes of cases, by name.
        supports: returns True or `Refused(reason)` for a case whose device and dtype are listed.
        unavailable: returns why it cannot run in this environment on any case, such as a package that is not installed, and
            what to install; None where it can.
        env: environment variables of its worker process, set before any import.
        schedule: tunable parameters, name to allowed values; the functions then take a keyword `schedule`.
        autotuned: whether its kernels have `@triton.autotune`: then a case pins the config with which they run
            (`mhc.autotuned`). None: it is found from what the functions refer to by name.
        recomputes_forward: the backward evaluates the forward again instead of using the saved tensors, so the tolerance of
            its gradients contains the forward's.
        precision: less precision than the reference's, by operation, as `{"matmul": "tf32"}`: the factors of float32 matrix
            products, "bfloat16" and "float16" too. It is judged as that, and reports say so.
        aliases: pairs of names: an output or gradient, and the input, upstream gradient, saved tensor, output or gradient
            with which it may share memory. Undeclared sharing is a failure.
        compiles: returns the number of programs compiled so far in this process, for reports; None where not counted.
        operator: the operator that it computes, or its name.
        function: in place of forward and backward, a function that autograd can differentiate. If the operator has
            gradients, the forward is judged under `torch.no_grad()`, and runs whose inputs require gradients are judged too.
            Gradients may share memory with upstream gradients and with one another, as autograd's do.
        origin: where it was loaded from; error messages begin with it.

    Raises:
        ImplementationError: a field is invalid, or a function does not accept the operator's arguments.
    """

    name: str
    forward: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None
    devices: tuple[str, ...] = ("cpu",)
    dtypes: tuple[str, ...] = ("bfloat16", "float16", "float32")
    supports: Callable[[Case], Literal[True] | Refused] = _supports_everything
    env: Mapping[str, str] = field(default_factory=dict)
    schedule: Mapping[str, Sequence[ScheduleValue]] = field(default_factory=dict)
    autotuned: bool | None = None
    recomputes_forward: bool = False
    precision: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[tuple[str, str], ...] = ()
    compiles: Callable[[], int] | None = None
    operator: str | Operator = DEFAULT
    function: Callable[..., Any] | None = None
    origin: str = "built in"
    unavailable: Callable[[], str | None] = _available

    def __post_init__(self) -> None:
        if isinstance(self.operator, Operator):
            object.__setattr__(self, "operator", register(self.operator).name)
        wanted = f"operator must be one of {', '.join(OPERATORS)}"
        if callable(self.operator):
            wanted = "operator must be declared, by @mhc.operator(...) above the function"
        self._require(isinstance(self.operator, str) and self.operator in OPERATORS, wanted, self.operator)
        if self.autotuned is None:
            found = uses_autotuner(self.function, self.forward, self.backward)
            object.__setattr__(self, "autotuned", found)
        if self.function is not None:
            given = self.forward is not None or self.backward is not None
            self._require(not given, "function stands in place of forward and backward; give it or them", self.function)
            differentiable = bool(self.table.gradients)
            object.__setattr__(self, "forward", (Inference if differentiable else InTuple)(self.function))
            if differentiable:
                table = self.table
                backward = Backward(self.function, table.inputs, table.outputs, table.mutates, table.forward)
                object.__setattr__(self, "backward", backward)
                object.__setattr__(self, "aliases", (*self.aliases, *_of_autograd(table)))
            object.__setattr__(self, "recomputes_forward", True)
            object.__setattr__(self, "function", None)
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))
        object.__setattr__(self, "schedule", MappingProxyType(dict(self.schedule)))
        object.__setattr__(self, "precision", MappingProxyType(dict(self.precision)))
        named = isinstance(self.name, str) and 0 < len(self.name) <= _LONGEST_NAME and self.name.isprintable()
        self._require(named, f"name must be a string of 1 to {_LONGEST_NAME} printable characters", str(self.name)[:1000])
        for field_name, known in (("devices", DEVICES), ("dtypes", tuple(STORAGE_DTYPES))):
            values = getattr(self, field_name)
            fits = isinstance(values, tuple) and bool(values) and all(value in known for value in values)
            self._require(fits, f"{field_name} must be a tuple out of {', '.join(known)}", values)
        strings = all(isinstance(text, str) for pair in self.env.items() for text in pair)
        self._require(strings, "env must map strings to strings", dict(self.env))
        fit = all(name and "=" not in name and "\0" not in name + text for name, text in self.env.items())
        self._require(fit, "env must have names without '=' and no NUL", dict(self.env))
        choices = all(isinstance(values, (tuple, list)) and values for values in self.schedule.values())
        self._require(choices, "schedule must map each name to a tuple of values, not empty", dict(self.schedule))
        offered = all(one in OPERATIONS.get(name, ()) for name, one in self.precision.items())
        listed = "; ".join(f"{name}: {', '.join(some)}" for name, some in OPERATIONS.items())
        self._require(offered, f"precision must map an operation to its precision, out of {listed}", dict(self.precision))
        counted = self.compiles is None or callable(self.compiles)
        self._require(counted, "compiles must be a function without arguments, or None", self.compiles)
        self._require(callable(self.supports), "supports must be a function of a case", self.supports)
        self._require(callable(self.unavailable), "unavailable must be a function without arguments", self.unavailable)
        both_none = self.forward is None and self.backward is None
        self._require(not both_none, "one of forward and backward must be given", None)
        table = self.table
        for stage, results in (("forward", table.outputs), ("backward", table.gradients)):
            function = getattr(self, stage)
            if callable(function) and len(results) == 1 and not isinstance(function, (InTuple, Backward)):
                object.__setattr__(self, stage, InTuple(function))
        self._check_aliases(table)
        for stage in self.stages(STAGES):
            self._check_signature(stage, table.interface(stage)[0], table.scalars)

    @property
    def table(self) -> Operator:
        """Return the record of its operator."""
        return self.operator if isinstance(self.operator, Operator) else OPERATORS[self.operator]

    @property
    def space(self) -> Mapping[str, Sequence[ScheduleValue]]:
        """Return what a case may pin: its schedule, and the config of autotuned kernels."""
        return {CONFIG: NUMBERS, **self.schedule} if self.autotuned else self.schedule

    def config(self, schedule: Schedule | None) -> int | None:
        """Return the number of the config of autotuned kernels; None: it has none, or gives it by itself."""
        if not self.autotuned or CONFIG in self.schedule:
            return None
        return int((schedule or {}).get(CONFIG, 0))

    @property
    def by_autograd(self) -> bool:
        """Return whether its backward is the one that autograd derives from its function."""
        return isinstance(self.backward, Backward)

    @property
    def declared(self) -> Declared:
        """What it declares of its stages and roundings."""
        has_backward = self.backward is not None
        return Declared(recomputes_forward=self.recomputes_forward, backward=has_backward, **self.precision)

    @property
    def judged_as(self) -> str:
        """What its results are allowed beside the errors of the reference's own precision and formula, in words."""
        others = ", ".join(getattr(one, "__name__", str(one)) for one in self.table.algorithms)
        return "; ".join(filter(None, (self.declared.words, others and f"errors of {others} too")))

    def _require(self, condition: bool, wanted: str, was: object) -> None:
        if not condition:
            raise ImplementationError(f"implementation {self.name!r}: {wanted}, was {was!r}")

    def _check_aliases(self, table: Operator) -> None:
        results = [spec.name for spec in (*table.outputs, *table.gradients)]
        names = [*dict.fromkeys((*results, *table.argument_specs))]
        self._require(isinstance(self.aliases, tuple), "aliases must be a tuple of pairs of names", self.aliases)
        for pair in self.aliases:
            fits = isinstance(pair, tuple) and len(pair) == 2 and pair[0] in results and pair[1] in names
            wanted = f"aliases must have pairs of two names, the first out of {', '.join(results)}"
            self._require(fits and pair[0] != pair[1], f"{wanted}, the second another out of {', '.join(names)}", pair)

    def _check_signature(self, stage: str, arguments: Sequence[str], scalars: Mapping[str, float]) -> None:
        function = getattr(self, stage)
        if isinstance(function, InTuple):
            function = function.function
        keywords = dict.fromkeys([*scalars, "schedule"] if self.schedule else scalars)
        wanted = f"{stage}({', '.join(arguments)}, *, {', '.join(keywords)})"
        self._require(callable(function), f"{stage} must be a function {wanted}", function)
        error = call_error(function, arguments, keywords)
        if error is not None:
            given = f"{stage}{inspect.signature(function)}"
            raise ImplementationError(
                f"implementation {self.name!r}: {given} cannot be called as {wanted}: {error}"
            ) from error

    def stages(self, wanted: Sequence[str]) -> list[str]:
        """Return those of the `wanted` stages that this implementation has, the forward first."""
        return [stage for stage in STAGES if stage in wanted and getattr(self, stage) is not None]

    @property
    def place(self) -> str:
        """Return what messages begin with: where it was loaded from, if it was, and a colon."""
        return "" if self.origin == "built in" else f"{self.origin}: "

    def keywords(self, scalars: Mapping[str, float], schedule: Schedule | None = None) -> dict[str, Any]:
        """Return the keyword arguments of a call: the scalars, and a schedule (None: default) if one is declared."""
        keywords: dict[str, Any] = {name: scalars[name] for name in self.table.scalars}
        if self.schedule:
            own = {key: value for key, value in schedule.items() if key in self.schedule} if schedule else None
            keywords["schedule"] = MappingProxyType(own) if own else None
        return keywords

    def refusal(self, case: Case, device: str) -> Refused | None:
        """Return why this implementation does not accept `case` on `device` ("cpu" or "cuda"); None if it does."""
        if case.operator != self.operator:
            return Refused(f"computes {self.operator}, not {case.operator}")
        if device not in self.devices:
            return Refused(f"runs on {', '.join(self.devices)}, not on {device}")
        if case.dtype not in self.dtypes:
            return Refused(f"takes {', '.join(self.dtypes)}, not {case.dtype}")
        for key, value in case.schedules.get(self.name, {}).items():
            if key not in self.space or value not in self.space[key]:
                return Refused(f"its schedule has no {key} = {value!r}")
        answer = self.supports(case)
        if isinstance(answer, Refused):
            return answer
        if answer is not True:
            raise ImplementationError(
                f"implementation {self.name!r} ({self.origin}): supports must return True or Refused(reason), was {answer!r}"
            )
        return None

    def takes(self, case: Case, device: str) -> bool:
        """Return whether it accepts `case` on `device`; where `supports` raises, a check of the case reports that."""
        try:
            return self.refusal(case, device) is None
        except BaseException:
            return True


def _of_autograd(table: Operator) -> tuple[tuple[str, str], ...]:
    """Return the pairs that may share memory where autograd makes the gradients: `x + y` gives both the same one."""
    gradients, upstream = ([spec.name for spec in some] for some in (table.gradients, table.upstream))
    return tuple((one, other) for one in gradients for other in (*upstream, *gradients) if one != other)
