"""The layout of `repro.py`: imports, kernels, the reference, inputs, the run, and what it says at the end."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    environment: Mapping[str, str]
    imports: Sequence[str]
    device: str
    definitions: Mapping[str, str]
    calls: Sequence[Call]
    given: Mapping[str, Text]
    made: Mapping[str, Text]
    result: str
    end: Sequence[str]
    observed: Sequence[str] = ()
    reference: str = ""
    helpers: str = ""
    start: Sequence[str] = ()
    around: str = ""
    needs: Sequence[str] = ()

    def text(self) -> str:
        """What `repro.py` holds."""
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
        """Whether each variable has memory of its own, and the launches are the program's own statements."""
        return not self.around and list(self.observed) == [self.result] and self.device == "cpu"

    @property
    def given_lines(self) -> list[str]:
        """What the stage was given, as far as anything reads it."""
        read = names_in("\n".join([*self.start, *self.enclosed(self.body), *self.end]))
        lines = [line for name, text in self.given.items() if name in read for line in assigned(name, text)]
        return ['torch.set_default_device("cuda")', *lines] if self.device == "cuda" else lines

    @property
    def compiled(self) -> list[str]:
        """Lines that must stand before the launches."""
        return list(dict.fromkeys(call.compiled for call in self.calls if call.compiled))

    @property
    def used(self) -> dict[str, Text]:
        """What is made, as far as anything reads it."""
        launched = [call.line for call in self.calls if call.head]
        read = names_in("\n".join([*self.enclosed([*launched, self.result or "pass"]), *self.end, *self.observed]))
        kept: dict[str, Text] = {}
        for name, text in list(self.made.items())[::-1]:
            if name in read:
                kept[name] = text
                read |= names_in(text.expression)
        return dict(list(kept.items())[::-1])

    @property
    def body(self) -> list[str]:
        """What else the kernels are given, the launches, and what a function around them returns."""
        made = [line for name, text in self.used.items() for line in assigned(name, text)]
        returned = [f"return {self.result}"] if self.around.startswith("def ") and self.result else []
        return [*made, *(call.line for call in self.calls if call.head), *returned]

    def enclosed(self, body: Sequence[str]) -> list[str]:
        """The lines of the body in what they stand in."""
        inside = wrapped(body)
        if not self.around:
            return inside
        blank = ["", ""] if self.around.startswith("def ") else []
        return [*blank, self.around, *(f"    {line}" for line in inside), *blank]


def heading(title: str) -> list[str]:
    """The docstring of a repro: what is wrong, and what its exit status says.

    The title has a finding's words, which may be anybody's: they must not end the docstring, since repros are executed.
    """
    title = one_line(title).replace("\\", "\\\\").replace('"""', "'''")
    exits = "Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong."
    whole = f'"""{title}. {exits}"""'
    return [whole] if len(whole) <= WIDTH else [f'"""{title}.', "", exits, '"""']


def script(document: Mapping[str, Any]) -> Script:
    """The script whose fields `dataclasses.asdict` wrote, after JSON."""
    texts = {part: {name: Text(**one) for name, one in document[part].items()} for part in ("given", "made")}
    return Script(**{**document, **texts, "calls": [Call(**one) for one in document["calls"]]})


def names_in(code: str) -> set[str]:
    """The names in a piece of a program."""
    return {one.id for one in ast.walk(ast.parse(code)) if isinstance(one, ast.Name)}


def assigned(name: str, text: Text) -> list[str]:
    """The lines that make a variable."""
    return [f"{name} = {text.expression}", *(line.format(name) for line in text.after)]


def wrapped(lines: Iterable[str]) -> list[str]:
    return [part for line in lines for part in wrap(line)]


def _binds(line: str) -> str:
    """The name that an import binds."""
    return line.rsplit(maxsplit=1)[-1].partition(".")[0]


def _apart(sections: Iterable[str]) -> list[str]:
    """Functions with two blank lines after each, and one constant below the other."""
    lines: list[str] = []
    for text in sections:
        if not text.strip():
            continue
        function = "def " in text or "class " in text
        if lines and (function or lines[-1].startswith((" ", ")"))):
            lines += ["", ""]
        lines += text.splitlines()
    return [*lines, "", ""] if lines else []
