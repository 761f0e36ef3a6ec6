"""Fingerprints: what makes two failing verdicts the same bug."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from mhc.oracles.verdict import Status, Verdict


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What "the same bug" means.

    Attributes:
        against: the name of the implementation that results differ from, where that is the bug.
    """

    operator: str
    implementation: str
    oracle: str
    subject: str
    symptom: str
    against: str = ""

    @classmethod
    def of(cls, verdict: Verdict, operator: str, implementation: str) -> Self:
        """Return the fingerprint of a failing verdict on an implementation, by its name."""
        return cls(
            operator=operator,
            implementation=implementation,
            oracle=verdict.oracle,
            subject=verdict.subject,
            symptom=verdict.symptom,
            against=verdict.against,
        )

    @property
    def document(self) -> dict[str, Any]:
        """Return its fields as JSON values; `against` only where it names an implementation."""
        return {name: value for name, value in asdict(self).items() if value or name != "against"}

    @property
    def id(self) -> str:
        """Return eight hexadecimal digits, for file names."""
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()[:8]

    def fits(self, verdict: Verdict) -> bool:
        """Return whether `verdict`, on the same operator and implementation, fails in this way."""
        return verdict.status is Status.FAIL and self == self.of(verdict, self.operator, self.implementation)

    def __str__(self) -> str:
        gate = f"{self.oracle} with {self.against}" if self.against else self.oracle
        return f"{self.implementation}: {self.subject}: {self.symptom} ({gate})"
