"""The layout of `repro.py`: imports, kernels, the reference, inputs, the run, and what it says at the end."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mhc.upstream.text import wrap

_IMPORTS = {"import math", "import os", "import sys", "import traceback", "import torch"}
_OTHER = """\
def other(kind, error, trace):
    traceback.print_exception(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)

sys.excepthook = other
"""
_VALUE = """\
print(f"{WHERE}: expected {expected!r}, actual {actual!r}, bound {BOUND!r}")
if not math.isfinite(actual):
    print("OTHER: not finite")
    sys.exit(2)
wrong = abs(actual - expected) > BOUND
"""
_CLASS = """\
print(f"{WHERE}: expected {expected!r}, actual {actual!r}")
classes = [str(one) if not math.isfinite(one) else "finite" for one in (expected, actual)]
if classes[1] not in (classes[0], FOUND):
    print(f"OTHER: {classes[1]}")
    sys.exit(2)
wrong = classes[1] != classes[0]
"""
_RAISES = """\
except Exception as error:
    while error.__cause__ is not None:
        error = error.__cause__
    raised = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    if steady(raised) != steady(FOUND):
        raise
print(f"{WHERE}: expected no exception, actual {raised or 'none'}")
wrong = raised != ""
"""
_STEADY = '''\
def steady(text):
    """Without numbers, addresses and paths, which differ from run to run."""
    return re.sub(r"0x[0-9a-f]+|/[\\w./-]+|\\d+", "#", text)
'''
_END = """\
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(1 if wrong else 0)
"""


@dataclass(frozen=True, kw_only=True)
class Script:
    """The parts of a repro, as lines.

    Attributes:
        where: what is wrong, as messages name it. environment: variables that must be set before anything is imported.
        inputs: what makes the tensors, and `expected`. run: the launches, to `actual` where there is one.
        judge: of `judge_value`, `judge_class`, `judge_raise`.
    """

    title: str
    where: str
    environment: Mapping[str, str]
    imports: frozenset[str]
    definitions: Sequence[str]
    inputs: Sequence[str]
    run: Sequence[str]
    judge: "Judge"

    def text(self) -> str:
        imports = sorted({*_IMPORTS, *self.imports, *self.judge.imports})
        first = [f"os.environ[{name!r}] = {value!r}" for name, value in sorted(self.environment.items())]
        if first:
            imports.remove("import os")
            first = ["import os", *first, ""]
        run = [part for line in self.run for part in wrap(line)]
        if self.judge.guards:
            run = ['raised = ""', "try:", *(f"    {line}" for line in run)]
        lines = [
            f'"""{self.title}. Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong."""',
            *first,
            *imports,
            "",
            *_OTHER.splitlines(),
            *([""] if self.judge.before else []),
            *self.judge.before.splitlines(),
            "",
            *self.definitions,
            "",
            *(part for line in self.inputs for part in wrap(line)),
            *self.judge.constants,
            f"WHERE = {self.where!r}",
            *run,
            *self.judge.after.splitlines(),
            *_END.splitlines(),
        ]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class Judge:
    """How a repro tells its finding from what is right, and from anything else.

    Attributes:
        constants: lines that say what was found. after: lines after the run, to `wrong`.
        guards: the run is inside of a `try`, whose end `after` has.
    """

    constants: tuple[str, ...]
    after: str
    before: str = ""
    guards: bool = False
    imports: frozenset[str] = frozenset()


def judge_value(limit: float) -> Judge:
    """Further from float64 than `limit`, and finite."""
    return Judge(constants=(f"BOUND = {limit!r}",), after=_VALUE)


def judge_class(found: float) -> Judge:
    """Of the class of `found`, where another is right: finite, an infinity of one sign, or NaN."""
    name = "finite" if abs(found) < float("inf") else str(found)
    return Judge(constants=(f"FOUND = {name!r}",), after=_CLASS)


def judge_raise(found: str) -> Judge:
    """Raises what `found` says, "Type: first line", numbers and paths aside."""
    lines = textwrap.wrap(found, 100, drop_whitespace=False) if len(found) > 100 else [found]
    constants = (f"FOUND = {found!r}",) if len(lines) == 1 else ("FOUND = (", *(f"    {line!r}" for line in lines), ")")
    return Judge(constants=constants, after=_RAISES, before=_STEADY, guards=True, imports=frozenset({"import re"}))
