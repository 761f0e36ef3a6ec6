"""Findings: a failing verdict with its case, as a file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mhc.case import Case
from mhc.case_json import CaseError
from mhc.environment import environment
from mhc.fuzz.fingerprint import Fingerprint
from mhc.fuzz.messages import Failure
from mhc.implementation import Implementation
from oracles.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """How a case was made smaller, and how often what came of it failed again.

    Attributes:
        elements_before, elements: of the operator's first input, x.
        checks: cases run for it. seconds: that it took, confirmation included.
        reproduced: of `runs` runs, each in a process of its own.
    """

    elements_before: int
    elements: int
    checks: int
    seconds: float
    reproduced: int
    runs: int

    @property
    def rate(self) -> float:
        return self.reproduced / self.runs if self.runs else 0.0

    @property
    def stable(self) -> bool:
        """Whether it failed each time."""
        return 0 < self.reproduced == self.runs

    def __str__(self) -> str:
        how = "stable" if self.stable else "flaky" if self.reproduced else "not reproduced"
        return (
            f"{how}, {self.reproduced} of {self.runs} in fresh processes; "
            f"{self.elements_before} -> {self.elements} elements, {self.checks} checks, {self.seconds:.0f} s"
        )


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A failing case of one implementation.

    Attributes:
        spec: how the implementation was named on the command line.
        variables: environment variables that its process had of its own.
        reduction: where it was minimised.
        against: how the implementation that it was compared with was named, where that is the bug.
    """

    fingerprint: Fingerprint
    spec: str
    variables: Mapping[str, str]
    case: Case
    message: str
    reduction: Reduction | None = None
    against: str | None = None

    @property
    def hung(self) -> bool:
        """Whether what failed is that there was no answer."""
        return self.fingerprint.symptom == "hang"

    @property
    def document(self) -> dict[str, Any]:
        """Its file, as JSON values, with the environment of now."""
        here = environment()
        here = replace(here, variables={**here.variables, **self.variables})
        return {
            "fingerprint": self.fingerprint.document,
            "implementation": self.spec,
            **({} if self.against is None else {"against": self.against}),
            "message": self.message,
            "reduction": None if self.reduction is None else asdict(self.reduction),
            "environment": here.to_json(),
            "case": json.loads(self.case.to_json()),
        }

    def to_json(self) -> str:
        return json.dumps(self.document, indent=2) + "\n"


def fingerprint(implementation: Implementation, case: Case, failure: Failure | Verdict) -> Fingerprint:
    """What makes a failing verdict the same bug as another."""
    return Fingerprint(
        operator=case.operator,
        implementation=implementation.name,
        oracle=failure.oracle,
        subject=failure.subject,
        symptom=failure.symptom,
        against=failure.against,
        outside=failure.outside if isinstance(failure, Failure) else (),
    )


def finding(
    spec: str, implementation: Implementation, case: Case, failure: Failure | Verdict, against: str | None = None
) -> Finding:
    """The finding that a failing verdict makes. against: how what it was compared with was named on the command line."""
    return Finding(
        fingerprint=fingerprint(implementation, case, failure),
        spec=spec,
        variables=implementation.env,
        case=case,
        message=failure.message,
        against=against,
    )


def read_finding(path: Path) -> Finding:
    """The finding in a file. Its environment is that of then; its variables are not asked for again.

    Raises:
        CaseError: the file holds no finding, or one with a case that this version cannot read; the message names the field.
    """
    _, spec = read_case(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    if spec is None or "fingerprint" not in document:
        raise CaseError("fingerprint", "missing; this is a case, and not a finding")
    return from_document(document)


def from_document(document: Mapping[str, Any]) -> Finding:
    """The finding that `Finding.to_json` wrote.

    Raises:
        CaseError: as for `read_finding`.
    """
    reduction = document.get("reduction")
    try:
        return Finding(
            fingerprint=Fingerprint.read(document["fingerprint"]),
            spec=str(document["implementation"]),
            variables={},
            case=Case.from_json(json.dumps(document["case"])),
            message=str(document.get("message", "")),
            reduction=None if reduction is None else Reduction(**reduction),
            against=document.get("against"),
        )
    except CaseError:
        raise
    except (TypeError, ValueError) as error:
        raise CaseError("fingerprint or reduction", f"has other fields than expected ({error})") from error


def read_case(path: Path) -> tuple[Case, str | None]:
    """The case in a file, and the implementation it was found on where the file is a finding.

    Raises:
        CaseError: the file holds no case that this version can read; the message names the field.
    """
    text = path.read_text(encoding="utf-8")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise CaseError(str(path), f"is not JSON ({error})") from error
    if isinstance(document, dict) and "case" in document:
        return Case.from_json(json.dumps(document["case"])), document.get("implementation")
    return Case.from_json(text), None


def read_against(path: Path) -> str | None:
    """How the implementation was named that a finding was compared with; None where it was with none, or is a bare case.

    The file is one that `read_case` has read.
    """
    against = json.loads(path.read_text(encoding="utf-8")).get("against")
    return None if against is None else str(against)
