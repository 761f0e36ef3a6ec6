"""What is known of the programs of a language, whichever it is: how they are evaluated, made simpler and named."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from mhc.programs import edits, evaluate, known, tilelang_text, tilelang_words
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.grammar import Program
from mhc.programs.triton import edits as triton_edits
from mhc.programs.triton import evaluate as triton_evaluate
from mhc.programs.triton import known as triton_known
from mhc.programs.triton import text as triton_text
from mhc.programs.triton import words as triton_words
from mhc.programs.triton.grammar import TritonProgram

AnyProgram = Program | TritonProgram


@dataclass(frozen=True, kw_only=True)
class Language:
    """A language of programs.

    Attributes:
        dsl: its name. text: returns a program's source, for people.
        read: returns the program in a JSON text; raises `CaseError`.
        evaluate: returns the outputs by name; raises `Invalid`. May be given the buffers before the program runs.
        steps: what the minimiser tries. tidy: leaves out what a program does not use. rank: how simple a program is.
        elements: returns the number of elements of all its buffers.
        signature: returns its operations in words, for findings. features: labels of what it has, for the map of coverage.
        known: its reported bugs.
    """

    dsl: str
    text: Callable[[Any], str]
    read: Callable[[str], AnyProgram]
    evaluate: Callable[..., dict[str, np.ndarray[Any, Any]]]
    steps: tuple[Callable[[Any], Iterator[Any]], ...]
    tidy: Callable[[Any], Any]
    rank: Callable[[Any], tuple[Any, ...]]
    elements: Callable[[Any], int]
    signature: Callable[[Any], str]
    features: Callable[[Any], frozenset[str]]
    known: tuple[known.Known, ...]


TILELANG = Language(
    dsl="tilelang",
    text=lambda program: tilelang_text.render(program, f"threads={program.threads}" if program.threads > 1 else ""),
    read=Program.from_json,
    evaluate=evaluate.evaluate,
    steps=edits.STEPS,
    tidy=edits.tidy,
    rank=edits.rank,
    elements=lambda program: sum(one.size for one in program.buffers),
    signature=tilelang_words.signature,
    features=tilelang_words.features,
    known=known.KNOWN,
)
TRITON = Language(
    dsl="triton",
    text=triton_text.render,
    read=TritonProgram.from_json,
    evaluate=triton_evaluate.evaluate,
    steps=triton_edits.STEPS,
    tidy=triton_edits.tidy,
    rank=triton_edits.rank,
    elements=lambda program: sum(one.size for one in program.buffers),
    signature=triton_words.signature,
    features=triton_words.features,
    known=triton_known.KNOWN,
)
LANGUAGES: Mapping[str, Language] = MappingProxyType({one.dsl: one for one in (TILELANG, TRITON)})
"""By the name of the DSL."""


def language_of(program: DrawnProgram) -> Language:
    """Return the language of a program."""
    return TRITON if isinstance(program, TritonProgram) else TILELANG
