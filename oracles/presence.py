"""The presence gate: checks that a result returned for some cases is returned for all cases.

None means that an implementation never computes a result. Where a result is None, a few probes of other shapes, dtypes and
optional tensors are run; the gate fails where one of them returns it. Nothing else of the probes is judged.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

from mhc.case import Case, default_case
from mhc.inputs import materialise
from mhc.observation import Observation
from mhc.operator import STORAGE_DTYPES, Axis, Operator
from mhc.oracles.trial import Gate, Plan, Run, Trial, results
from mhc.oracles.verdict import Verdict, failed, not_applicable, passed
from mhc.reference import reference

NAME = "presence"

_SIZES = (1, 8, 33)
"""Of all axes at once, where the operator has no `probe_sizes`."""
_MOST = 4096
"""The largest product of the sizes of all axes: in an interpreter a kernel may take a millisecond for each row."""


def simplest(trial: Trial) -> Plan | list[Verdict]:
    """Check whether each result that is None here is returned for the simplest shape."""
    return _plan(trial, slice(1))


def others(trial: Trial) -> Plan | list[Verdict]:
    """Check whether each result that is None here is returned for any other probe."""
    return _plan(trial, slice(1, None))


def _plan(trial: Trial, chosen: slice) -> Plan | list[Verdict]:
    wanted, returned = trial.allowed.results, results(trial.observation)
    missing = [name for name, value in returned.items() if value is None and name in wanted]
    if not missing:
        return [passed(NAME, "results")]
    runs = {probe.label: probe for probe in _probes(trial, chosen)}

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        verdicts = []
        for name in missing:
            there = [words for words in runs if results(observed[words]).get(name) is not None]
            if there:
                message = f"{name} is None for {_describe_case(trial.case)}, and is returned for {there[0]}"
                verdicts.append(failed(NAME, name, "missing", message))
            else:
                verdicts.append(not_applicable(NAME, name, f"None for {'; '.join(runs)} too"))
        return verdicts

    return Plan(
        runs=list(runs.values()),
        judge=judge,
        probes=True,
    )


def _probes(trial: Trial, chosen: slice) -> list[Run]:
    """Return the probes at `chosen` in: other shapes, then other dtypes, then other sets of optional tensors."""
    case = trial.case
    optional = frozenset(spec.name for spec in case.table.drawn if spec.optional)
    absent = frozenset(name for name in optional if not case.has(name))
    shapes = [shape for shape in _shapes(case.table) if case.table.problem(shape) is None]
    shapes = shapes or [{name: case.sizes[name] for name in case.axes}]  # where none of them fits
    large = shapes[-1]
    asked = [(case.dtype, absent, shape) for shape in shapes]
    asked += [(dtype, absent, large) for dtype in STORAGE_DTYPES if dtype != case.dtype]
    asked += [(case.dtype, other, large) for other in (frozenset[str](), optional) if other != absent]
    device = str(trial.inputs.device)
    return [_probe(case.operator, device, dtype, without, tuple(shape.items())) for dtype, without, shape in asked[chosen]]


def _shapes(table: Operator) -> Sequence[Mapping[str, int]]:
    """Return the sizes of the axes of the probes, simplest first."""
    if table.probe_sizes:
        return table.probe_sizes
    return [shape for size in _SIZES for shape in reversed([*_spread(table.axes, size)])]


def _spread(axes: Sequence[Axis], size: int) -> Iterator[Mapping[str, int]]:
    """Yield shapes within `_MOST`, in one of which each axis has a size, if its range allows it; the last axes first."""
    wanted = {axis.name: min(max(size, axis.least), axis.most) for axis in axes}
    left = [axis.name for axis in reversed(axes)]
    while left:
        shape = {axis.name: min(max(1, axis.least), axis.most) for axis in axes}
        for name in (*left, *(one for one in reversed(wanted) if one not in left)):
            room = _MOST // max(1, math.prod(others for one, others in shape.items() if one != name))
            shape[name] = max(shape[name], min(wanted[name], room))
        yield shape
        left = [name for name in left[1:] if shape[name] < wanted[name]]


@functools.lru_cache(maxsize=64)
def _probe(operator: str, device: str, dtype: str, absent: frozenset[str], shape: tuple[tuple[str, int], ...]) -> Run:
    case = default_case(operator=operator, dtype=dtype, absent=absent, **dict(shape))
    inputs = materialise(case, device)
    return Run(label=_describe_case(case), inputs=inputs, saved=reference(inputs).saved)


def _describe_case(case: Case) -> str:
    """Return a case's shape, dtype and absent optional tensors in words."""
    absent = [f", without {spec.name}" for spec in case.table.drawn if spec.optional and not case.has(spec.name)]
    return f"{case.shape}, {case.dtype}{''.join(absent)}"


GATES = (
    Gate(name=NAME, variant="simplest", plan=simplest),
    Gate(name=NAME, variant="others", plan=others, every=4),
)
