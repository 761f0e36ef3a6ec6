"""What is expected of a probe, frozen, and how it is compared with what came."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Returns:
    """The step ends with this value, given as its `repr`."""

    value: str = "True"

    def fits(self, got: Mapping[str, str]) -> bool:
        """Whether it is what came."""
        return got["kind"] == "returns" and got["value"] == self.value

    def __str__(self) -> str:
        return "works" if self.value == "True" else f"gives `{self.value}`"


@dataclass(frozen=True)
class Raises:
    """The step ends with an exception of this type; `text` is a part of its message that does not change from run to run."""

    type: str
    text: str

    def fits(self, got: Mapping[str, str]) -> bool:
        """Whether it is what came."""
        return got["kind"] == "raises" and got["type"] == self.type and self.text in got["message"]

    def __str__(self) -> str:
        return f"`{self.type.rpartition('.')[2]}`: `{self.text}`"


@dataclass(frozen=True)
class Dies:
    """The step's process is killed by this signal, after printing `text`."""

    signal: str
    text: str

    def fits(self, got: Mapping[str, str]) -> bool:
        """Whether it is what came."""
        return got["kind"] == "dies" and got["signal"] == self.signal and self.text in got["text"]

    def __str__(self) -> str:
        return f"kills the process ({self.signal}): `{self.text}`"


Outcome = Returns | Raises | Dies


@dataclass(frozen=True)
class Probe:
    """One question about TileLang 0.1.8, with its answer.

    `tests/probes/NAME.py` holds the program: a function without arguments for each of `steps`. Steps that begin with
    `instead` are what to write in place of what fails.
    """

    name: str
    reported: str
    reproduces: Literal["yes", "no", "in part"]
    whose: Literal["TileLang", "TVM", "the program", "the installation", "none"]
    why: str
    instead: str
    steps: Mapping[str, Outcome]
    environment: Mapping[str, str] = field(default_factory=dict)
