"""Findings: a failing verdict with its case, as a file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from mhc import drawn_case
from mhc.case import Case
from mhc.case_json import CaseError
from mhc.drawn_case import DrawnCase
from mhc.environment import environment
from mhc.files import read_json
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.oracles.error_map import ErrorMap
from mhc.oracles.verdict import Verdict
from mhc.registry import Tested

_Record = TypeVar("_Record", Fingerprint, "Reduction", ErrorMap)
_LONGEST = 2000  # characters of a message that is kept
UNKNOWN_CAUSE = "calls before it in its process may be the cause, or chance"
"""What the message of a finding that is not reproduced says of its cause."""
UNCONFIRMED = "not run again in a new process yet"
"""What is known of a finding that its own process has shown alone: calls before it there may be a part of its cause."""
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A simpler case that still failed.

    Attributes:
        checks: cases run until then. elements: of the operator's first input. sizes: of the case by symbol.
    """

    checks: Count
    elements: Count
    sizes: Mapping[str, Count]


MOST_STEPS = 64


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """How a case was made smaller, and how often the smaller case failed again.

    Attributes:
        elements_before, elements: of the operator's first input, x.
        checks: cases run for it. seconds: that it took, confirmation included.
        reproduced: of `runs` runs, each in a process of its own.
        steps: from the case that was found to the smallest, at most `MOST_STEPS` of them.
    """

    elements_before: Count
    elements: Count
    checks: Count
    seconds: Annotated[float, Meta(ge=0, lt=2.0**63)]
    reproduced: Count
    runs: Count
    steps: Annotated[tuple[Step, ...], Meta(max_length=MOST_STEPS)] = ()

    @property
    def document(self) -> dict[str, Any]:
        """Return its fields as JSON values; `steps` only where there are any."""
        return {name: value for name, value in asdict(self).items() if value or name != "steps"}

    @property
    def rate(self) -> float:
        return self.reproduced / self.runs if self.runs else 0.0

    @property
    def stable(self) -> bool:
        """Return whether it failed each time."""
        return 0 < self.reproduced == self.runs

    def __str__(self) -> str:
        how = "stable" if self.stable else "flaky" if self.reproduced else "not reproduced"
        again = f"{how}, {self.reproduced} of {self.runs} in fresh processes" if self.runs else UNCONFIRMED
        return f"{again}; {self.elements_before} -> {self.elements} elements, {self.checks} checks, {self.seconds:.0f} s"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The case of a finding as it was drawn, and where its output was wrong."""

    case: DrawnCase
    errors: ErrorMap | None

    @property
    def document(self) -> dict[str, Any]:
        return {"case": json.loads(self.case.to_json()), **_map(self.errors)}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A failing case of one implementation.

    Attributes:
        spec: how the implementation was named on the command line.
        variables: environment variables that its process had of its own.
        reduction: where it was minimised.
        against: how the implementation that it was compared with was named, where that is the bug.
        errors: where the output is wrong, where the gate compares elements.
        drawn: the case before it was minimised.
    """

    fingerprint: Fingerprint
    spec: str
    variables: Mapping[str, str]
    case: DrawnCase
    message: str
    reduction: Reduction | None = None
    against: str | None = None
    errors: ErrorMap | None = None
    drawn: Drawn | None = None

    @property
    def operator_case(self) -> Case:
        """Return the case of an operator.

        Raises:
            CaseError: it is a program.
        """
        return drawn_case.of_operator(self.case)

    @property
    def hung(self) -> bool:
        """Return whether the failure is a hang."""
        return self.fingerprint.symptom == "hang"

    @property
    def document(self) -> dict[str, Any]:
        """Return the content of its file as JSON values, with the current environment."""
        here = environment()
        here = replace(here, variables={**here.variables, **self.variables})
        return {
            "fingerprint": self.fingerprint.document,
            "implementation": self.spec,
            **({} if self.against is None else {"against": self.against}),
            "message": self.message,
            "reduction": None if self.reduction is None else self.reduction.document,
            "environment": here.to_json(),
            "case": json.loads(self.case.to_json()),
            **_map(self.errors),
            **({} if self.drawn is None else {"drawn": self.drawn.document}),
        }

    def to_json(self) -> str:
        return json.dumps(self.document, indent=2) + "\n"


def finding(spec: str, tested: Tested, case: DrawnCase, verdict: Verdict, against: str | None = None) -> Finding:
    """Return the finding that a failing verdict makes; a kernel's long message is cut.

    Args:
        spec, against: how what is tested, and what it was compared with, were named on the command line.
    """
    message = verdict.message if len(verdict.message) <= _LONGEST else verdict.message[:_LONGEST] + "..."
    return Finding(
        fingerprint=Fingerprint.of(verdict, str(tested.operator), tested.name),
        spec=spec,
        variables=dict(tested.env),
        case=case,
        message=message,
        against=against,
        errors=verdict.where,
    )


def _map(errors: ErrorMap | None) -> dict[str, Any]:
    return {} if errors is None else {"errors": asdict(errors)}


def _read(kind: type[_Record], name: str, document: object) -> _Record:
    """Return the record that `document` holds, as JSON gives it back; refuse other fields and other types."""
    known = {field.name for field in fields(kind)}
    if isinstance(document, Mapping) and not known.issuperset(document):
        raise CaseError(name, f"has other fields than expected ({min(str(one) for one in document if one not in known)})")
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise CaseError(name, f"has other fields than expected ({error})") from error


def read_finding(path: Path) -> Finding:
    """Return the finding in a file. Its environment is the one in which it was found; its variables are not read anew.

    Raises:
        CaseError: the file holds no finding, or one with a case that this version cannot read; the message names the field.
    """
    document = read_json(path)
    _, spec = _case_of(document)
    if spec is None or not isinstance(document, Mapping) or "fingerprint" not in document:
        raise CaseError("fingerprint", "missing; this is a case, and not a finding")
    return from_document(document)


def from_document(document: object) -> Finding:
    """Return the finding that `Finding.to_json` wrote.

    Raises:
        CaseError: as for `read_finding`.
    """
    if not isinstance(document, Mapping):
        raise CaseError("finding", "must be an object")
    for name in ("fingerprint", "implementation", "case"):
        if name not in document:
            raise CaseError(name, "missing; this is no finding")
    case, reduction = drawn_case.from_document(document["case"]), document.get("reduction")
    _environment(document.get("environment", {}))
    fingerprint = _read(Fingerprint, "fingerprint", document["fingerprint"])
    reduced = None if reduction is None else _read(Reduction, "reduction", reduction)
    if isinstance(case, Case) and fingerprint.operator != case.operator:
        raise CaseError("fingerprint.operator", f"must be its case's, {case.operator}, was {fingerprint.operator!r}")
    return Finding(
        fingerprint=fingerprint,
        spec=_text(document, "implementation") or "",
        variables={},
        case=case,
        message=_text(document, "message") or "",
        reduction=reduced,
        against=_text(document, "against"),
        errors=_read_map(document),
        drawn=_drawn(document.get("drawn"), case),
    )


def _read_map(document: Mapping[str, object]) -> ErrorMap | None:
    errors = document.get("errors")
    return None if errors is None else _read(ErrorMap, "errors", errors)


def _drawn(document: object, minimal: DrawnCase) -> Drawn | None:
    """Return the case that was drawn, which is of the same operator as the minimal one."""
    if document is None:
        return None
    if not isinstance(document, Mapping) or "case" not in document:
        raise CaseError("drawn", "must be an object with a case")
    case = drawn_case.from_document(document["case"])
    if getattr(case, "operator", None) != getattr(minimal, "operator", None):
        raise CaseError("drawn.case", "must be of the operator of case")
    return Drawn(case=case, errors=_read_map(document))


def read_case(path: Path) -> tuple[Case, str | None]:
    """Return the case in a file, and the implementation it was found on where the file is a finding.

    Raises:
        CaseError: the file holds no case that this version can read; the message names the field.
    """
    case, spec = read_drawn(path)
    return drawn_case.of_operator(case), spec


def read_drawn(path: Path) -> tuple[DrawnCase, str | None]:
    """Return what `read_case` does, or a program."""
    return _case_of(read_json(path))


def read_against(path: Path) -> str | None:
    """Return how the implementation is named that a finding was compared with; None without one, and for a bare case.

    Raises:
        CaseError: as for `read_case`.
    """
    document = read_json(path)
    return _text(document, "against") if isinstance(document, Mapping) else None


def _case_of(document: object) -> tuple[DrawnCase, str | None]:
    if isinstance(document, Mapping) and "case" in document:
        return drawn_case.from_document(document["case"]), _text(document, "implementation")
    return drawn_case.from_document(document), None


def _text(document: Mapping[str, object], name: str) -> str | None:
    value = document.get(name)
    if value is not None and not isinstance(value, str):
        raise CaseError(name, "must be text")
    return value


def _environment(document: object) -> None:
    """Refuse what no environment is; only reports read it."""
    if not isinstance(document, Mapping) or not isinstance(document.get("variables", {}), Mapping):
        raise CaseError("environment", "must be an object, with an object of variables")
