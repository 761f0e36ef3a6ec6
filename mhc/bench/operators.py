"""The verb `operators` of `python -m mhc.bench`: how close the reference, run by PyTorch, comes to its own bounds.

Every built-in operator's `golden` is checked on drawn cases of each dtype. Its errors are what rounding alone makes, so each
failure is a false alarm, and the largest error / bound shows how much of the bound is used.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import torch

from mhc.bench import verbs
from mhc.bench.apart import Ended, run_apart
from mhc.bench.markdown import table
from mhc.bench.state import Results
from mhc.case import Case
from mhc.fuzz.check.check import check
from mhc.implementation import Implementation
from mhc.operator import OPERATORS
from mhc.oracles import bound
from mhc.oracles.verdict import Status
from mhc.registry import BUILT_IN
from mhc.strategies.cases import cases
from mhc.strategies.rounds import ROUND, drawn

RESULTS = {"cpu": verbs.RESULTS / "operators.md", "cuda": verbs.RESULTS / "operators-cuda.md"}
DTYPES = ("float32", "bfloat16", "float16")
_NAMES = tuple(dict.fromkeys(str(one.operator) for one in BUILT_IN))
_ELEMENTS = 1 << 12


_SHARE = 20 * ROUND
"""Cases that one process checks."""


@dataclass(frozen=True)
class Share:
    """Some of the cases of an operator in a dtype. first: the number of the first round."""

    operator: str
    dtype: str
    first: int
    cases: int

    @property
    def name(self) -> str:
        return f"{self.operator} {self.dtype} {self.first} {self.cases}"


@dataclass
class Row:
    """What was found of one operator in one dtype, or in a share of its cases.

    Attributes:
        checked: checks of a case. cases: of these, the ones in which the bound gate judged an output or a gradient.
        judged, largest: how often that gate judged each output and gradient, and the largest error / bound seen.
        sampled: how often outputs and gradients had a sampled tolerance. alarms: the failures, with their cases.
    """

    name: str
    operator: str
    dtype: str
    checked: int = 0
    cases: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    largest: dict[str, float] = field(default_factory=dict)
    sampled: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)

    def add(self, other: "Row") -> None:
        """Add what was found in a share."""
        self.checked += other.checked
        self.cases += other.cases
        self.judged.update(other.judged)
        self.sampled.update(other.sampled)
        self.alarms += other.alarms
        for name, ratio in other.largest.items():
            self.largest[name] = max(ratio, self.largest.get(name, 0.0))


@click.command()
@verbs.whole("--cases", "count", default=2000, help="Drawn cases of each operator and dtype.")
@verbs.SEED
@verbs.several("--only", "names", metavar="NAME", help="An operator.")
@verbs.device("Where the references run.")
@verbs.jobs("Worker processes.")
@verbs.number("--seconds", default=float("inf"), help="After which no more cases are begun.")
@verbs.STATE
@verbs.write(f"{RESULTS['cpu']}, or {RESULTS['cuda'].name}")
def operators(
    count: int,
    seed: int,
    names: tuple[str, ...],
    device: str,
    jobs: int,
    seconds: float,
    state: Path | None,
    write: bool,
) -> None:
    """Check the reference of each built-in operator, as PyTorch runs it, on drawn cases, and show error / bound.

    \b
        python -m mhc.bench operators --write --state /tmp/operators.json
        python -m mhc.bench operators --only rms_norm --cases 200

    Exit status: 0 measured, 1 a false alarm, 2 usage, 3 a fault of the harness itself.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: PyTorch sees no CUDA device here")
    page = verbs.Page(RESULTS[device], write=write)
    verbs.refuse_unknown(names, _NAMES, "operator")
    kept = Results(Row, "rows", state, seed=seed, device=device)
    shares = [one for name in names or _NAMES for dtype in dtypes_of(name) for one in _shares(name, dtype, count)]
    shares.sort(key=lambda one: one.first)  # where the time ends, each operator has had as many

    ended: list[str] = []

    def work(share: Share) -> Row | None:
        if page.seconds > seconds:
            return None
        try:
            return measure(share, seed, device)
        except (Ended, TimeoutError) as error:  # as where others fill the GPU; the rest is measured all the same
            ended.append(f"{share.name}: {error}")
            return None

    def show(share: Share, row: Row) -> None:
        page.show(f"{share.name}: {len(row.alarms)} false alarms in {row.checked} cases")

    rows: dict[tuple[str, str], Row] = {}
    for one in kept.complete(shares, work, jobs, show):
        rows.setdefault((one.operator, one.dtype), Row("", one.operator, one.dtype)).add(one)
    ordered = sorted(rows.values(), key=lambda row: _NAMES.index(row.operator))
    alarms = [alarm for row in ordered for alarm in row.alarms]
    for message in ended:
        click.echo(f"fault: {message}", err=True)
    page.finish(render(ordered, verbs.command(), seed, device, ended), 3 if ended else 1 if alarms else 0)


def dtypes_of(operator: str) -> tuple[str, ...]:
    """Return the dtypes in which an operator is measured: one where none of its tensors is in the storage dtype."""
    specs = OPERATORS[operator].argument_specs.values()
    kinds = {tuple(spec.dtype(storage) for spec in specs) for storage in (torch.float32, torch.bfloat16)}
    return DTYPES if len(kinds) > 1 else DTYPES[:1]


def _shares(operator: str, dtype: str, count: int) -> Iterator[Share]:
    for at in range(0, count, _SHARE):
        yield Share(operator, dtype, at // ROUND, min(_SHARE, count - at))


def measure(share: Share, seed: int, device: str) -> Row:
    """Check cases on the operator's golden implementation, in a process of its own."""
    spec = "golden" if share.operator == "mhc_pre" else f"{share.operator}.golden"
    found: Mapping[str, Any] = run_apart(checked, spec, share, seed, device)
    return Row(**found)


def checked(golden: Implementation, share: Share, seed: int, device: str) -> Mapping[str, Any]:
    """Check the cases of a share, in this process; return the fields of its row."""
    row = Row(share.name, share.operator, share.dtype)
    for case in _drawn(share.operator, share.dtype, share.cases, seed + share.first):
        row.checked += 1
        judged = False
        for one in check(golden, case, device).verdicts:
            if one.status is Status.FAIL:
                row.alarms.append(f"{one.subject}: {one.symptom} ({one.oracle}): {one.message}: {case.json}")
            elif one.oracle == bound.NAME and one.ratio is not None:
                judged = True
                row.judged[one.subject] += 1
                row.sampled[one.subject] += one.sampled
                row.largest[one.subject] = max(row.largest.get(one.subject, 0.0), one.ratio)
        row.cases += judged
    return vars(row)


def _drawn(operator: str, dtype: str, count: int, seed: int) -> Iterator[Case]:
    """Yield cases of a campaign's strategy in short rounds."""
    strategy = cases(operator=operator, dtypes=(dtype,), max_elements=_ELEMENTS)
    for at in range(0, count, ROUND):
        yield from drawn(strategy, min(ROUND, count - at), seed + at // ROUND)


def render(rows: Sequence[Row], command: str, seed: int, device: str, ended: Sequence[str] = ()) -> str:
    """Return the page. ended: shares of cases without a result, each with the reason."""
    alarms = [alarm for row in rows for alarm in row.alarms]
    lines = []
    for row in rows:
        for spec in (*OPERATORS[row.operator].outputs, *OPERATORS[row.operator].gradients):
            if row.judged[spec.name]:
                share = row.sampled[spec.name] / row.judged[spec.name]
                kind = "derived" if share == 0 else "sampled" if share == 1 else f"sampled in {100 * share:.0f} %"
                lines.append(
                    [row.operator, row.dtype, spec.name, str(row.judged[spec.name]), f"{row.largest[spec.name]:.3f}", kind]
                )
    return f"""# Built-in operators: error of PyTorch's own run of the reference, and its bound

How much of its bound each built-in operator's reference uses when PyTorch itself runs it, and whether it is ever accused.

{verbs.today()}, {verbs.hardware(device)}, torch {torch.__version__}

    {command}

**{len(alarms)} false alarms in {sum(row.cases for row in rows)} judged cases** of {sum(row.checked for row in rows)} drawn
ones: the reference of each operator, run by eager PyTorch, on drawn cases of at most {_ELEMENTS} elements a tensor (seed
{seed}), judged by a campaign's gates. Judged: the bound gate judged that output or gradient; in other cases it is empty,
or no element has a finite bound. Operators without a row of bfloat16 take float32 alone. Derived and sampled tolerances:
[tolerances](../tolerances.md).

{table(["operator", "dtype", "of", "judged", "largest error / bound", "tolerance"], lines)}
{_section("Not measured", ended)}{_section("False alarms", alarms)}"""


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join(["", f"## {title}", "", *(f"- {line}" for line in lines), ""]) if lines else ""
