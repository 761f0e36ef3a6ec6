"""A drawn case of either kind, as it is stored: of an operator, or a program."""

import json
from collections.abc import Mapping

from mhc.case import Case
from mhc.case_json import CaseError, parse
from mhc.programs.grammar import Program

DrawnCase = Case | Program


def of_operator(case: DrawnCase) -> Case:
    """Return a case of an operator.

    Raises:
        CaseError: it is a program.
    """
    if isinstance(case, Program):
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


def from_document(document: object) -> DrawnCase:
    """Read a case from JSON values, as `read` does."""
    if isinstance(document, Mapping) and "body" in document:
        try:
            return Program.from_json(json.dumps(document))
        except RecursionError:
            raise CaseError("program", "is nested too deeply") from None
    return Case.from_document(document)
