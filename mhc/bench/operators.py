"""The verb `operators` of `python -m mhc.bench`: how close the reference, run by PyTorch, comes to its own bounds.

Every built-in operator's `golden` is checked on drawn cases of each dtype. Its errors are what rounding alone makes, so each
failure is a false alarm, and the largest error / bound shows how much of the bound is used.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import click
import hypothesis
from hypothesis import Phase

from mhc.bench import verbs
from mhc.bench.markdown import table
from mhc.case import Case
from mhc.fuzz.check.check import check
from mhc.operator import OPERATORS
from mhc.registry import BUILT_IN, load
from oracles import bound
from oracles.verdict import Status
from strategies.cases import cases
from strategies.rounds import ROUND, quiet

RESULTS = verbs.RESULTS / "operators.md"
DTYPES = ("float32", "bfloat16", "float16")
_NAMES = tuple(dict.fromkeys(str(one.operator) for one in BUILT_IN))
_ELEMENTS = 1 << 12


@dataclass
class Row:
    """One operator in one dtype.

    Attributes:
        judged, largest: how often the bound gate judged each output and gradient, and the largest error / bound seen.
        sampled: outputs and gradients with a sampled tolerance in some case. alarms: the failures, with their cases.
    """

    operator: str
    dtype: str
    cases: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    largest: dict[str, float] = field(default_factory=dict)
    sampled: Counter[str] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)


@click.command()
@verbs.whole("--cases", "count", default=2000, help="Drawn cases of each operator and dtype.")
@verbs.SEED
@verbs.several("--only", "names", metavar="NAME", help="An operator.")
@verbs.write(RESULTS)
def operators(count: int, seed: int, names: tuple[str, ...], write: bool) -> None:
    """Check the reference of each built-in operator, as PyTorch runs it, on drawn cases, and show error / bound.

    \b
        python -m mhc.bench operators --write
        python -m mhc.bench operators --only rms_norm --cases 200

    Exit status: 0 measured, 1 a false alarm, 2 usage, 3 a fault of the harness itself.
    """
    page = verbs.Page(RESULTS, write=write)
    verbs.refuse_unknown(names, _NAMES, "operator")
    rows = []
    for name in names or _NAMES:
        for dtype in DTYPES:
            rows.append(measure(name, dtype, count, seed))
            page.show(f"{name} {dtype}: {len(rows[-1].alarms)} false alarms in {rows[-1].cases} cases")
    alarms = [alarm for row in rows for alarm in row.alarms]
    page.finish(render(rows, verbs.command(), seed), 1 if alarms else 0)


def measure(operator: str, dtype: str, count: int, seed: int) -> Row:
    """Check `count` drawn cases on the operator's golden implementation, in this process."""
    golden = load("golden" if operator == "mhc_pre" else f"{operator}.golden")
    row = Row(operator, dtype)
    for case in _drawn(operator, dtype, count, seed):
        row.cases += 1
        for one in check(golden, case, "cpu").verdicts:
            if one.status is Status.FAIL:
                row.alarms.append(f"{one.subject}: {one.symptom} ({one.oracle}): {one.message}: {case.json}")
            elif one.oracle == bound.NAME and one.ratio is not None:
                row.judged[one.subject] += 1
                row.sampled[one.subject] += one.sampled
                row.largest[one.subject] = max(row.largest.get(one.subject, 0.0), one.ratio)
    return row


def _drawn(operator: str, dtype: str, count: int, seed: int) -> Iterator[Case]:
    """Yield cases of a campaign's strategy in short rounds."""
    for at in range(0, count, ROUND):
        yield from _round(operator, dtype, min(ROUND, count - at), seed + at // ROUND)


def _round(operator: str, dtype: str, count: int, seed: int) -> list[Case]:
    found: list[Case] = []

    def keep(case: Case) -> None:
        found.append(case)

    strategy = cases(operator=operator, dtypes=(dtype,), max_elements=_ELEMENTS)
    settings = quiet(count, phases=(Phase.generate,))
    hypothesis.seed(seed)(settings(hypothesis.given(strategy)(keep)))()
    return found


def render(rows: Sequence[Row], command: str, seed: int) -> str:
    """Return the page."""
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
    found = "\n".join(f"- {alarm}" for alarm in alarms)
    return f"""# Built-in operators: error of PyTorch's own run of the reference, and its bound

{verbs.today()}, CPU

    {command}

**{len(alarms)} false alarms in {sum(row.cases for row in rows)} checks**: the reference of each operator, run by eager
PyTorch, on drawn cases of at most {_ELEMENTS} elements a tensor (seed {seed}), judged by a campaign's gates. Judged: cases
in which the bound gate judged that output or gradient; in the others it is empty, or no element has a finite bound.
Derived and sampled tolerances: [tolerances](../tolerances.md).

{table(["operator", "dtype", "of", "judged", "largest error / bound", "tolerance"], lines)}
{f"{chr(10)}## False alarms{chr(10) * 2}{found}{chr(10)}" if alarms else ""}"""
