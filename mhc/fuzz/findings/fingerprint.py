"""Fingerprints: what makes two failing verdicts the same bug."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from mhc.case import Case
from mhc.fuzz.findings.condition import Condition
from oracles.verdict import Status, Verdict


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What "the same bug" means.

    Attributes:
        against: the name of the implementation that results differ from, where that is the bug.
        outside: none of these holds of its cases: with them, the same words tell of another bug, which is known
            (`mhc.fuzz.findings.known_issues.identified`).
    """

    operator: str
    implementation: str
    oracle: str
    subject: str
    symptom: str
    against: str = ""
    outside: tuple[Condition, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """What `document` wrote, as JSON gives it back.

        Raises:
            TypeError, ValueError: it has other fields.
        """
        if not isinstance(document, Mapping):
            raise TypeError("a fingerprint must be an object")
        found = cls(**{**document, "outside": tuple(Condition.read(one) for one in document.get("outside", ()))})
        if not all(isinstance(value, str) for name, value in vars(found).items() if name != "outside"):
            raise TypeError("a fingerprint must be of text")
        return found

    @property
    def document(self) -> dict[str, Any]:
        """Its fields as JSON values; `against` and `outside` only where there is something to say."""
        fields = {**asdict(self), "outside": [condition.document for condition in self.outside]}
        return {name: value for name, value in fields.items() if name not in {"against", "outside"} or value}

    @property
    def id(self) -> str:
        """Eight hexadecimal digits, for file names."""
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()[:8]

    def fits(self, verdict: Verdict, case: Case) -> bool:
        """Whether `verdict`, on `case` of the same implementation, fails in this way."""
        said = (verdict.oracle, verdict.subject, verdict.symptom, verdict.against)
        if verdict.status is not Status.FAIL or said != (self.oracle, self.subject, self.symptom, self.against):
            return False
        return not any(condition.holds(case) for condition in self.outside)

    def __str__(self) -> str:
        gate = f"{self.oracle} with {self.against}" if self.against else self.oracle
        beyond = "".join(f", not: {condition}" for condition in self.outside)
        return f"{self.implementation}: {self.subject}: {self.symptom} ({gate}){beyond}"
