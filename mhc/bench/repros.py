"""The verb `repros` of `python -m mhc.bench`: how short the programs of known-bad kernels are, and that they reproduce.

Each known-bad kernel's smallest finding, as `minimal` wrote it, becomes a program that runs by itself.
"""

import json
import re
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from mhc.bench import verbs
from mhc.bench.detection.sets import choose
from mhc.bench.markdown import table
from mhc.bench.minimal import STATE_KEY, Minimal
from mhc.bench.state import Results
from mhc.case import Case
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.oracles.mutants.catalogue import ALL, ON_CPU
from mhc.oracles.mutants.load import SPEC
from mhc.registry import load
from mhc.upstream.export import program_of
from mhc.upstream.reduce.reduction import shortened
from mhc.upstream.verify import ExportError

GOAL = 120
"""Lines of a program, at most, in the median of a DSL."""

TO = {"triton": "triton", "tilelang": "tilelang", "manual": "torch"}
"""By the mutant's base, whose program it is."""
RESULTS = verbs.RESULTS / "repros.md"


@dataclass(frozen=True, kw_only=True)
class Repro:
    """The program of one mutant's finding.

    Attributes:
        fingerprint: as `Minimal` has it. form: of the program. values: what it says is expected, and what it got.
        lines: of the program; whole: before its statements were reduced. widest: columns of its longest line.
        runs: in which it reproduced, each a fresh process.
        refused: why there is no program.
    """

    name: str
    base: str
    fingerprint: str
    form: str = ""
    values: str = ""
    lines: int = 0
    whole: int = 0
    widest: int = 0
    runs: int = 0
    refused: str = ""
    seconds: float = 0.0


@click.command()
@click.argument("minimal_file", metavar="MINIMAL.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@verbs.ONLY
@verbs.jobs("Mutants at a time.")
@verbs.STATE
@verbs.write(RESULTS)
def repros(minimal_file: Path, names: tuple[str, ...], jobs: int, state: Path | None, write: bool) -> None:
    """Export the smallest finding on each known-bad kernel, run its program three times by itself, and count its lines.

    \b
        python -m mhc.bench minimal --only triton --only tilelang --state minimal.json
        python -m mhc.bench repros minimal.json --only triton --only tilelang

    MINIMAL.json is what `minimal --state` wrote. Exit status: 0 the median program of each DSL has at most 120 lines, 1 one
    has more, 2 usage.
    """
    page = verbs.Page(RESULTS, write=write)
    chosen = choose(names, ON_CPU)
    try:
        found = [Minimal(**one) for one in json.loads(minimal_file.read_text(encoding="utf-8"))[STATE_KEY]]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{minimal_file}: not a state of `python -m mhc.bench minimal` ({error})") from error
    smallest = {one.name: one for one in found if one.case}
    results = Results(Repro, "repros", state).complete(
        [mutant for mutant in chosen if mutant.name in smallest],
        lambda mutant: export_one(smallest[mutant.name]),
        jobs,
        lambda mutant, result: page.show(line(result)),
    )
    long = any(median(results, base) > GOAL for base in ("triton", "tilelang"))
    page.finish(render(results, command=verbs.command()), 1 if long else 0)


def finding_of(small: Minimal) -> Finding:
    """Return the finding that `minimal` made smaller."""
    matched = re.fullmatch(r"(\w+): (.+) \((\w+)\)", small.fingerprint)
    assert matched is not None, small.fingerprint
    case, spec = Case.from_json(small.case), SPEC.format(small.name)
    implementation = load(spec)
    subject, symptom, oracle = matched.groups()
    fingerprint = Fingerprint(
        operator=case.operator, implementation=implementation.name, oracle=oracle, subject=subject, symptom=symptom
    )
    return Finding(fingerprint=fingerprint, spec=spec, variables=implementation.env, case=case, message=small.message)


def export_one(small: Minimal) -> Repro:
    """Return the program of a finding, which has reproduced; or why there is none."""
    started = time.monotonic()
    result = Repro(name=small.name, base=small.base, fingerprint=small.fingerprint)
    with tempfile.TemporaryDirectory() as folder:
        repro = Path(folder) / "repro.py"
        try:
            program = program_of(finding_of(small), TO[small.base], "cpu", repro)
            program, outcomes = shortened(program, repro, [])
        except ExportError as refusal:
            return replace(result, refused=str(refusal), seconds=time.monotonic() - started)
        text = repro.read_text(encoding="utf-8")
    return replace(
        result,
        form=program.form,
        values=outcomes[-1].values,
        lines=program.lines,
        whole=len(program.unreduced.splitlines()),
        widest=max(map(len, text.splitlines())),
        runs=len(outcomes),
        seconds=time.monotonic() - started,
    )


def median(results: Iterable[Repro], base: str) -> float:
    """Return the median of the lines of one base's programs; 0 where there is none."""
    return statistics.median([one.lines for one in results if one.base == base and one.lines] or [0])


def line(result: Repro) -> str:
    """Return one result as a line for a terminal."""
    if result.refused:
        how = f"refused: {result.refused.splitlines()[0]}"
    else:
        how = f"{result.lines} of {result.whole} lines, {result.form}, {result.runs} runs"
    return f"{result.name}: {result.fingerprint}: {how} ({result.seconds:.0f} s)"


_PURPOSE = "How many lines the exported program of each known-bad implementation has, and which findings were refused."


def render(results: Sequence[Repro], *, command: str) -> str:
    """Return the page: medians, a table for each base, and what is refused with its reason."""
    parts = ["# How short exported programs are", _PURPOSE, f"    {command}"]
    for base in TO:
        of_base = [one for one in results if one.base == base]
        made = [one for one in of_base if one.lines]
        if not of_base:
            continue
        counts = sorted(one.lines for one in made) or [0]
        rows = [(one.name, ALL[one.name].bug, one.fingerprint, one.form, str(one.lines), str(one.whole)) for one in made]
        parts += [
            f"## {base}",
            f"{len(made)} of {len(of_base)} findings have a program that reproduces three times by itself: "
            f"{median(made, base):g} lines in the median (the goal: at most {GOAL}), {counts[0]} to {counts[-1]}; "
            f"{sum(count <= GOAL for count in counts)} have at most {GOAL}. No line is longer than "
            f"{max((one.widest for one in made), default=0)} columns.",
            table(("mutant", "bug", "finding", "form", "lines", "of"), rows),
        ]
        refused = [f"- {one.name}, {one.fingerprint}: {'; '.join(_reasons(one))}" for one in of_base if one.refused]
        if refused:
            parts += ["Refused:", "\n".join(refused)]
    return "\n\n".join(parts) + "\n"


def _reasons(result: Repro) -> list[str]:
    """Return the first line of the reason against each form that was tried."""
    return list(dict.fromkeys(text.strip() for text in result.refused.splitlines() if not text.startswith("    ")))
