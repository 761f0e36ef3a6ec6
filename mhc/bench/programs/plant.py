"""Plants a fault for a while: an edit of a function's source, of a text constant, or of the C that TileLang generates."""

import __future__

import importlib
import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

from mhc.programs.targets import TARGETS, ProgramTarget

GENERATED = "the generated C"
PLAIN = "mhc.programs.plain_c"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One edit.

    Attributes:
        name: what is wrong, in words.
        place: `MODULE:NAME` of a function or of a text constant; or `GENERATED`.
        old, new: the edit. In a function `old` occurs once, in a constant at least once; of `GENERATED` they are a regular
            expression and what takes the place of each match.
        why: no drawn program can show it; empty where one must.
    """

    name: str
    place: str
    old: str
    new: str
    why: str = ""

    @property
    def target(self) -> str:
        """Return the name of the target that has it."""
        return "plain-c" if self.place.startswith(PLAIN) else "tilelang-to-c"

    @property
    def is_in_the_text(self) -> bool:
        """Return whether a program whose lowered text is as before cannot show it: it is not in what the text calls."""
        return self.place != f"{PLAIN}:PRELUDE"


class EditError(ValueError):
    """The edit does not apply: its source has changed."""


@contextmanager
def planted(fault: Fault) -> Iterator[ProgramTarget]:
    """Return the target of the fault, which is wrong within the block.

    Raises:
        EditError: the edit does not apply.
    """
    target = TARGETS[fault.target]
    if fault.place == GENERATED:
        yield replace(target, lower=lambda program: edited(fault, target.lower(program)))
        return
    module, _, name = fault.place.partition(":")
    *owners, attribute = name.split(".")
    owner: Any = importlib.import_module(module)
    for one in owners:
        owner = getattr(owner, one)
    found = getattr(owner, attribute)
    if isinstance(found, str):
        if fault.old not in found:
            raise EditError(f"{fault.name}: its old text is not in {fault.place}")
        setattr(owner, attribute, found.replace(fault.old, fault.new))
        try:
            yield target
        finally:
            setattr(owner, attribute, found)
        return
    function = inspect.unwrap(found)
    assert isinstance(function, FunctionType)
    before = function.__code__
    function.__code__ = _compiled(fault, function)
    try:
        yield target
    finally:
        function.__code__ = before


def edited(fault: Fault, source: str) -> str:
    """Return generated C with the fault, everywhere but in the headers and the declaration."""
    head, brace, body = source.rpartition("f_kernel(")
    return head + brace + re.sub(fault.old, fault.new, body, flags=re.MULTILINE)


def _compiled(fault: Fault, function: FunctionType) -> CodeType:
    """Return the code of a function after the edit of its source; all who hold the function then run it."""
    own = inspect.getsource(function)
    if own.count(fault.old) != 1:
        raise EditError(f"{fault.name}: its old text occurs {own.count(fault.old)} times in {fault.place}, not once")
    path = inspect.getsourcefile(function)
    assert path is not None
    module = inspect.getsource(inspect.getmodule(function))  # type: ignore[arg-type]
    flags = function.__code__.co_flags & __future__.annotations.compiler_flag
    code: CodeType = compile(module.replace(own, own.replace(fault.old, fault.new)), path, "exec", flags, dont_inherit=True)
    for name in function.__qualname__.split("."):
        code = next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
    return code
