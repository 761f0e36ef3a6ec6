"""A drawn case of either kind, as it is stored: of an operator, or a program."""

import json
from collections.abc import Mapping

from mhc.case import Case
from mhc.case_json import CaseError, parse
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.languages import LANGUAGES, AnyProgram

DrawnCase = Case | AnyProgram


def of_operator(case: DrawnCase) -> Case:
    """Return a case of an operator.

    Raises:
        CaseError: it is a program.
    """
    if isinstance(case, DrawnProgram):
        raise CaseError("case", "is a program, and no case of an operator")
    return case


def read(text: str) -> DrawnCase:
    """Read a case from JSON text.

    Raises:
        CaseError: it is none; the message names the field.
    """
    try:
        return from_document(parse(text))
    except ValueError as error:
        raise CaseError("case", str(error)) from error


def name_of(text: str) -> str:
    """Return the id of a case from its JSON, or why it cannot be read, as after a change of the file that declares it."""
    try:
        return read(text).id
    except (ValueError, RecursionError) as error:
        return f"a case that cannot be read ({error})"


def from_document(document: object) -> DrawnCase:
    """Read a case from JSON values, as `read` does."""
    if isinstance(document, Mapping) and "body" in document:
        dsl = document.get("language", "tilelang")
        if not isinstance(dsl, str) or dsl not in LANGUAGES:
            raise CaseError("program.language", f"must be one of {', '.join(LANGUAGES)}, was {dsl!r}")
        try:
            return LANGUAGES[dsl].read(json.dumps(document))
        except RecursionError:
            raise CaseError("program", "is nested too deeply") from None
    return Case.from_document(document)
