"""The text of `repro.py`: imports, kernels, the reference, inputs, the launches, and the lines that judge the result."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mhc.terminal import one_line
from mhc.upstream.source.text import WIDTH, Text, wrap

_IMPORTS = ("import math", "import torch")
OTHER = """\
def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other
"""
"""Whatever else goes wrong ends a repro with another status than its finding."""


LIMIT = 20
"""Seconds after which a process counts as hung."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One launch.

    Attributes:
        kernel: the name of its definition. arguments: by parameter, expressions over the variables.
        compiled: a line that must stand before the first launch, or nothing. head, options: of the line that launches.
    """

    kernel: str
    arguments: Mapping[str, str]
    head: str
    compiled: str = ""
    options: Sequence[str] = ()

    @property
    def line(self) -> str:
        return f"{self.head}({', '.join([*self.arguments.values(), *self.options])})"


@dataclass(frozen=True, kw_only=True)
class Script:
    """The parts of a repro.

    Attributes:
        title: what is wrong, in a line. environment: variables that must be set before anything is imported.
        definitions: the kernels' texts by name. reference: the text of the formula, or nothing. helpers: further functions.
        given: what the stage was given, and made: what else its kernels were, by variable.
        start: lines after what was given. around: what the launches stand in: nothing, "try:", or a function's head.
        result: what is wanted of the launches, an expression, or nothing. end: lines after them, up to `wrong`.
        observed: expressions that tell all that the launches did, once everything but `end` has run.
        needs: of what is given, what the wrong result depends on.
    """

    title: str
    imports: Sequence[str]
    definitions: Mapping[str, str]
    end: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"
    calls: Sequence[Call] = ()
    given: Mapping[str, Text] = field(default_factory=dict)
    made: Mapping[str, Text] = field(default_factory=dict)
    result: str = ""
    observed: Sequence[str] = ()
    reference: str = ""
    helpers: str = ""
    start: Sequence[str] = ()
    around: str = ""
    needs: Sequence[str] = ()

    def text(self) -> str:
        """Return what `repro.py` holds."""
        tail = [*self.end, 'print("REPRODUCED" if wrong else "NOT REPRODUCED")', "sys.exit(wrong)"]
        first = [f"os.environ[{name!r}] = {value!r}" for name, value in sorted(self.environment.items())]
        sections = [self.helpers, *self.definitions.values(), self.reference]
        code = [*self.given_lines, *self.start, *self.compiled, *self.enclosed(self.body), *tail]
        read = names_in("\n".join([*sections, *code]))
        imports = {"import os", "import sys", *(line for line in (*_IMPORTS, *self.imports) if _binds(line) in read)}
        lines = [
            *heading(self.title),
            "",
            *(["import os", "", *first, ""] if first else []),
            *sorted(imports - ({"import os"} if first else set())),
            "",
            "",
            *OTHER.splitlines(),
            "",
            "",
            *_apart(sections),
            *wrapped([*self.given_lines, *self.start, *self.compiled]),
            *self.enclosed(self.body),
            *wrapped(tail),
        ]
        return "\n".join(lines) + "\n"

    @property
    def lines(self) -> int:
        return len(self.text().splitlines())

    @property
    def alone(self) -> bool:
        """Return whether each variable has memory of its own, and the launches are the program's own statements."""
        return not self.around and list(self.observed) == [self.result] and self.device == "cpu"

    @property
    def given_lines(self) -> list[str]:
        """Return what the stage was given, as far as anything reads it."""
        read = names_in("\n".join([*self.start, *self.enclosed(self.body), *self.end]))
        lines = [line for name, text in self.given.items() if name in read for line in assigned(name, text)]
        return ['torch.set_default_device("cuda")', *lines] if self.device == "cuda" else lines

    @property
    def compiled(self) -> list[str]:
        """Return the lines that must stand before the launches."""
        return list(dict.fromkeys(call.compiled for call in self.calls if call.compiled))

    @property
    def launches(self) -> list[str]:
        """Return the lines that launch; none where a kernel fails before its launch."""
        return [call.line for call in self.calls if call.head]

    @property
    def used(self) -> dict[str, Text]:
        """Return what is made, as far as anything reads it."""
        read = names_in("\n".join([*self.enclosed([*self.launches, self.result or "pass"]), *self.end, *self.observed]))
        kept: dict[str, Text] = {}
        for name, text in list(self.made.items())[::-1]:
            if name in read:
                kept[name] = text
                read |= names_in(text.expression)
        return dict(list(kept.items())[::-1])

    @property
    def body(self) -> list[str]:
        """Return what else the kernels are given, the launches, and what a function around them returns."""
        made = [line for name, text in self.used.items() for line in assigned(name, text)]
        returned = [f"return {self.result}"] if self.around.startswith("def ") and self.result else []
        return [*made, *self.launches, *returned]

    def enclosed(self, body: Sequence[str]) -> list[str]:
        """Return the lines of the body in what they stand in."""
        inside = wrapped(body)
        if not self.around:
            return inside
        blank = ["", ""] if self.around.startswith("def ") else []
        return [*blank, self.around, *(f"    {line}" for line in inside), *blank]


def heading(title: str) -> list[str]:
    """Return the docstring of a repro: what is wrong, and what its exit status says.

    The title has a finding's words, which are not trusted: they must not end the docstring, because repros are executed.
    """
    title = one_line(title).replace("\\", "\\\\").replace('"""', "'''")
    exits = "Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong."
    whole = f'"""{title}. {exits}"""'
    return [whole] if len(whole) <= WIDTH else [f'"""{title}.', "", exits, '"""']


def names_in(code: str) -> set[str]:
    """Return the names in a piece of a program."""
    return {one.id for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Name)}


def assigned(name: str, text: Text) -> list[str]:
    """Return the lines that make a variable."""
    return [f"{name} = {text.expression}", *(line.format(name) for line in text.after)]


def wrapped(lines: Iterable[str]) -> list[str]:
    return [part for line in lines for part in wrap(line)]


def _binds(line: str) -> str:
    """Return the name that an import binds."""
    return line.rsplit(maxsplit=1)[-1].partition(".")[0]


def _apart(sections: Iterable[str]) -> list[str]:
    """Return definitions as text: two blank lines after each function, none between constants."""
    lines: list[str] = []
    for text in sections:
        if not text.strip():
            continue
        function = "def " in text or "class " in text
        if lines and (function or lines[-1].startswith((" ", ")"))):
            lines += ["", ""]
        lines += text.splitlines()
    return [*lines, "", ""] if lines else []


def by_value(where: str, limit: float) -> list[str]:
    """Return the check of a finite value that is further from float64 than `limit`."""
    return [
        f'print(f"{where}: expected {{expected!r}}, actual {{actual!r}}, bound {limit!r}")',
        "if not math.isfinite(actual):",
        '    raise ArithmeticError("not finite")',
        f"wrong = abs(actual - expected) > {limit!r}",
    ]


def by_class(where: str, found: float) -> list[str]:
    """Return the check of a value in the class of `found`, where another is right: finite, inf, -inf or NaN."""
    name = "finite" if abs(found) < float("inf") else str(found)
    return [
        f'print(f"{where}: expected {{expected!r}}, actual {{actual!r}}")',
        'classes = [str(one) if not math.isfinite(one) else "finite" for one in (expected, actual)]',
        f"if classes[1] not in (classes[0], {name!r}):",
        "    raise ArithmeticError(classes[1])",
        "wrong = classes[1] != classes[0]",
    ]


def by_bits(where: str) -> list[str]:
    """Return the check of a value that is another number, or NaN where the other is none."""
    return [f'print(f"{where}: expected {{expected!r}}, actual {{actual!r}}")', "wrong = repr(actual) != repr(expected)"]


def by_exception(where: str, found: str) -> list[str]:
    """Return the check of an exception like `found`, "Type: line", without numbers and paths; launches are in a `try`."""
    return [
        '    raised = ""',
        "except Exception as error:",
        "    while error.__cause__ is not None:",
        "        error = error.__cause__",
        "    raised = f\"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}\"",
        *_parted("    if steady(raised) != steady(", found, "):"),
        "        raise",
        f"print(f\"{where}: expected no exception, actual {{raised or 'none'}}\")",
        'wrong = raised != ""',
    ]


STEADY = r'''
def steady(text):
    """Without numbers, addresses and paths, which differ from run to run."""
    return re.sub(r"0x[0-9a-f]+|/[\w./-]+|\d+", "#", text)
'''.strip()


def by_process(found: str) -> list[str]:
    """Return the check of how the process ends: `found` is a signal's name, `exit 3` or `hang`. The launches are `run()`."""
    return [
        'if sys.argv[1:] == ["run"]:',
        '    print("running", flush=True)',
        "    run()",
        "    os._exit(0)",
        'process = subprocess.Popen([sys.executable, __file__, "run"], stdout=subprocess.PIPE)',
        "process.stdout.readline()  # imports and compilers take as long as they take",
        "try:",
        f"    status = process.wait({LIMIT})",
        '    actual = signal.Signals(-status).name if status < 0 else f"exit {status}"',
        "except subprocess.TimeoutExpired:",
        "    process.kill()",
        '    actual = "hang"',
        'print(f"process: expected exit 0, actual {actual}")',
        f'if actual not in ("exit 0", {found!r}):',
        "    raise RuntimeError(actual)",
        'wrong = actual != "exit 0"',
    ]


def _parted(before: str, text: str, after: str) -> Sequence[str]:
    """Return a long string literal over several lines."""
    if len(text) <= 80:
        return [f"{before}{text!r}{after}"]
    inner = " " * (len(before) - len(before.lstrip()) + 4)
    parts = [text[at : at + 80] for at in range(0, len(text), 80)]
    return [before, *(f"{inner}{part!r}" for part in parts), f"{inner[4:]}{after}"]
