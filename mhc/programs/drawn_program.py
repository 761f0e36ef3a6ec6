"""What programs of all languages have in common: they are stored as JSON."""

import hashlib

import msgspec

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
