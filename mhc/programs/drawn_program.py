"""What programs of all languages have in common: they are stored as JSON."""

import hashlib
from typing import Any, TypeVar

import msgspec

from mhc.case_json import CaseError

_ENCODER = msgspec.json.Encoder(order="sorted")


class DrawnProgram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program as data."""

    @property
    def json(self) -> str:
        """Return one line of JSON."""
        return _ENCODER.encode(self).decode()

    def to_json(self) -> str:
        """Return indented JSON, for files."""
        return msgspec.json.format(self.json, indent=2) + "\n"

    @property
    def id(self) -> str:
        """Return a name that is fit for a file."""
        return f"program-{hashlib.sha256(self.json.encode()).hexdigest()[:8]}"

    def __hash__(self) -> int:
        return hash(self.json)


_AProgram = TypeVar("_AProgram")


def decoded(decoder: msgspec.json.Decoder[_AProgram], text: str | bytes, version: int) -> _AProgram:
    """Return the program in a JSON text.

    Raises:
        CaseError: names what is wrong, also where it is of another version.
    """
    try:
        program: Any = decoder.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise CaseError("program", str(error)) from error
    if program.version != version:
        raise CaseError("program.version", f"must be {version}, was {program.version}")
    return program  # type: ignore[no-any-return]
