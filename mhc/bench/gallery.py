"""Pictures of findings, for docs/gallery.md: where a tensor is wrong, or the program that a compiler refuses."""

import html
import math
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from mhc.case import Case
from mhc.element import element_name
from mhc.fuzz.check.program_check import COMPILER, lower
from mhc.fuzz.cli.trust import require_trust, trust_option
from mhc.fuzz.findings.finding import Finding, read_finding
from mhc.inputs import materialise
from mhc.observation import observe
from mhc.oracles.nonfinite import as_float64
from mhc.oracles.tolerances import tolerances
from mhc.oracles.trial import results
from mhc.programs.compile_error import CompileError
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.languages import AnyProgram, language_of
from mhc.programs.targets import ProgramTarget, target_named
from mhc.reference import reference
from mhc.registry import load

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

EDGES = (0.1, 1.0, 2.0, 10.0)
"""Between the colours of elements, by error / bound; above 1 an element is wrong."""
_WORDS = ("to 0.1", "to 1", "to 2", "to 10", "above")
_MOST = 64  # cells in a row and in a column
_FEW_ROWS = 24  # of which each has the height of a line of text
_WIDTH, _CELL, _LINE, _LETTER = 640, 40, 18, 7.25
_LETTERS = 84  # in a line of that width
_UNWRITTEN = str(0x5A5A5A5A)  # what outputs of a program hold before it runs
_STYLE = """
text { font: 12px ui-monospace, monospace; fill: #1b1b1b } .back { fill: #ffffff } .note { fill: #5a5a5a }
.l0 { fill: #e4e9ef } .l1 { fill: #b9c8d8 } .l2 { fill: #f2b94b } .l3 { fill: #e06a2c } .l4 { fill: #a3122f }
.bad { fill: #a3122f } .light { fill: #ffffff }
@media (prefers-color-scheme: dark) { text { fill: #e8e8e8 } .back { fill: #1e2129 } .note { fill: #a9adb8 }
.l0 { fill: #2f3540 } .l1 { fill: #4a5a70 } .bad { fill: #ff8095 } }
"""


@dataclass(frozen=True)
class Grid:
    """A tensor, to be drawn as rows and columns.

    Attributes:
        ratio: error / bound of each element; of integers, whose bound is 0, infinite where they differ.
        texts: what each cell shows, where there are few.
    """

    name: str
    ratio: Array
    texts: Sequence[str] = ()

    @property
    def columns(self) -> int:
        """Return how many cells a row has: the last axis, or the most where there are too many columns or rows."""
        last = self.ratio.shape[-1] if self.ratio.ndim else 1
        return _MOST if last > _MOST or self.ratio.size > _MOST * last else last


@click.command()
@click.argument("places", nargs=-1, required=True, metavar="PLACE...", type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("docs/gallery"), show_default=True)
@trust_option
def gallery(places: tuple[Path, ...], out: Path, trust: bool) -> None:
    """Draw what is wrong in findings, as NAME.svg each in the folder --out.

    PLACE is a finding's file, or a folder that `python -m mhc.fuzz export` wrote, whose program is executed.
    """
    for place in places:
        if place.is_dir():
            picture = of_export(place)
        else:
            found = read_finding(place)
            require_trust([("", found.spec)], place, trust=trust)
            picture = of_finding(found)
        path = out / f"{place.stem}.svg"
        path.write_text(picture, encoding="utf-8")
        click.echo(path)


def of_finding(found: Finding) -> str:
    """Return the picture of a finding as SVG.

    Raises:
        click.UsageError: it does not fail here, no single tensor is wrong, or variables of the environment are missing.
    """
    if isinstance(found.case, DrawnProgram):
        target = target_named(found.spec)
        if target is None:
            raise click.UsageError(f"{found.spec}: no such target")
        return _of_program(found.case, target)
    return _grid(_of_case(found, found.case))


def of_export(folder: Path) -> str:
    """Return the picture of an exported program: its kernel, and what it says when it runs."""
    program = folder / "repro.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=120)
    lines = program.read_text(encoding="utf-8").splitlines()
    first = next(at for at, line in enumerate(lines) if "@T.prim_func" in line)
    depth = len(lines[first]) - len(lines[first].lstrip())
    end = next(at for at in range(first + 2, len(lines)) if len(lines[at]) - len(lines[at].lstrip()) <= depth)
    kernel = textwrap.dedent("\n".join(lines[first:end])).splitlines()
    return _text(kernel, done.stdout.splitlines()[-2:-1])


def _of_case(found: Finding, case: Case) -> Grid:
    implementation = load(found.spec)
    if missing := [f"{name}={value}" for name, value in implementation.env.items() if os.environ.get(name) != value]:
        raise click.UsageError(f"set {' '.join(missing)} before Python starts")
    inputs = materialise(case)
    right = reference(inputs)
    allowed = tolerances(inputs, right, declared=implementation.declared).results
    name = found.fingerprint.subject
    got = results(observe(implementation, inputs, right.saved)).get(name)
    if got is None or name not in allowed:
        raise click.UsageError(f"{found.fingerprint}: no single tensor is wrong in it")
    wanted = allowed[name]
    error = (as_float64(got, wanted) - wanted.value).abs()
    ratio = (error / wanted.error).nan_to_num(0.0).numpy()
    if not (ratio > 1).any():
        raise click.UsageError(f"{found.fingerprint}: no element exceeds its bound here")
    return Grid(name, ratio)


def _of_program(program: AnyProgram, target: ProgramTarget) -> str:
    source = [line.strip("\n") for line in target.text(program).splitlines() if line.strip()]
    lowered = lower(target, program)
    if not isinstance(lowered, str):
        verdict = next(iter(lowered))
        if verdict.oracle != COMPILER:
            raise click.UsageError(f"{program.id}: {verdict.message}")
        return _text(source, [verdict.message])
    with tempfile.TemporaryDirectory(prefix="mhc-gallery-") as name:
        (ready,) = target.prepare([program], [lowered], Path(name))
        if isinstance(ready, CompileError):
            return _text(source, [str(ready)])
        got = ready(program)
    wanted = language_of(program).evaluate(program)
    name = next((name for name in wanted if (got[name] != wanted[name]).any()), "")
    if not name:
        raise click.UsageError(f"{program.id}: nothing is wrong here")
    wrong = got[name] != wanted[name]
    pairs = zip(*(map(_shown, values[name].ravel().tolist()) for values in (got, wanted)), strict=True)
    texts = [one if one == other else f"{one}, not {other}" for one, other in pairs]
    return _grid(Grid(name, np.where(wrong, np.inf, 0.0), texts), source)


def _shown(value: object) -> str:
    return "unwritten" if str(value) == _UNWRITTEN else str(value)


def _grid(grid: Grid, source: Sequence[str] = ()) -> str:
    """Return a tensor, below the lines of its program, as SVG; of a large one the first rows."""
    shape, columns = grid.ratio.shape, grid.columns
    cells = grid.ratio.ravel()[: _MOST * columns]
    rows = math.ceil(cells.size / columns)
    wide = 130 if grid.texts else min(_CELL, (_WIDTH - 20) / columns)
    high = 30 if grid.texts else min(wide, 16 if rows <= _FEW_ROWS else 6)
    top = 30 + len(source) * _LINE
    parts = [_line(10, 20 + at * _LINE, line) for at, line in enumerate(source)]
    parts.append(_line(10, top - 6, f"{grid.name} {list(shape)}{'' if grid.texts else ': error / bound'}", "note"))
    for number, ratio in enumerate(cells):
        x, y = 10 + number % columns * wide, top + number // columns * high
        level = sum(ratio > edge for edge in EDGES)
        name = element_name(grid.name, tuple(map(int, np.unravel_index(number, shape))))
        title = f"<title>{html.escape(name)}: {ratio:.3g}</title>"
        size = f'width="{wide - 1:.1f}" height="{high - 1:.1f}"'
        parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" {size} class="l{level}">{title}</rect>')
        if grid.texts:
            parts.append(_line(x + 6, y + 19, grid.texts[number], "light" if level == len(EDGES) else ""))
    bottom = top + rows * high
    if not grid.texts:
        bottom += 22
        for number, word in enumerate(_WORDS):
            parts.append(f'<rect x="{10 + number * 90}" y="{bottom - 11:.0f}" width="12" height="12" class="l{number}"/>')
            parts.append(_line(28 + number * 90, bottom, word, "note"))
    return _svg(max([_WIDTH, *(20 + len(line) * _LETTER for line in source)]), bottom + 12, parts)


def _text(source: Sequence[str], said: Sequence[str]) -> str:
    wrapped = [part for line in said for part in textwrap.wrap(line, _LETTERS)[:4]]
    lines = [(line, "") for line in source] + [(line, "bad") for line in wrapped]
    parts = [_line(10, 22 + at * _LINE, *line) for at, line in enumerate(lines)]
    return _svg(max([_WIDTH, *(20 + len(line) * _LETTER for line, _ in lines)]), 20 + len(lines) * _LINE, parts)


def _line(x: float, y: float, text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{attribute} xml:space="preserve">{html.escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {math.ceil(width)} {math.ceil(height)}" width="{math.ceil(width)}" height="{math.ceil(height)}"'
    back = f'<rect class="back" width="{math.ceil(width)}" height="{math.ceil(height)}" rx="4"/>'
    body = "\n".join([f"<style>{_STYLE}</style>", back, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{body}\n</svg>\n'
