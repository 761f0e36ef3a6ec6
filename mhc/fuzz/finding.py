"""Findings: a failing verdict with its case, and what makes two of them the same bug."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mhc.case import Case
from mhc.case_json import CaseError
from mhc.environment import environment
from mhc.fuzz.messages import Failure
from mhc.implementation import Implementation
from oracles.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What "the same bug" means."""

    operator: str
    implementation: str
    oracle: str
    subject: str
    symptom: str

    @property
    def id(self) -> str:
        """Eight hexadecimal digits, for file names."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]

    def __str__(self) -> str:
        return f"{self.implementation}: {self.subject}: {self.symptom} ({self.oracle})"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A failing case of one implementation.

    Attributes:
        spec: how the implementation was named on the command line.
        variables: environment variables that its process had of its own.
    """

    fingerprint: Fingerprint
    spec: str
    variables: Mapping[str, str]
    case: Case
    message: str

    def to_json(self) -> str:
        here = environment()
        here = replace(here, variables={**here.variables, **self.variables})
        document = {
            "fingerprint": asdict(self.fingerprint),
            "implementation": self.spec,
            "message": self.message,
            "environment": here.to_json(),
            "case": json.loads(self.case.to_json()),
        }
        return json.dumps(document, indent=2) + "\n"


def fingerprint(implementation: Implementation, case: Case, failure: Failure | Verdict) -> Fingerprint:
    """What makes a failing verdict the same bug as another."""
    return Fingerprint(
        operator=case.operator,
        implementation=implementation.name,
        oracle=failure.oracle,
        subject=failure.subject,
        symptom=failure.symptom,
    )


def finding(spec: str, implementation: Implementation, case: Case, failure: Failure | Verdict) -> Finding:
    """The finding that a failing verdict makes."""
    return Finding(
        fingerprint=fingerprint(implementation, case, failure),
        spec=spec,
        variables=implementation.env,
        case=case,
        message=failure.message,
    )


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
