"""Run exported repros on another release: which are healed, still failing, or changed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mhc.files import read_json
from mhc.upstream.releases.interpreters import Interpreters
from mhc.upstream.releases.matrix import Matrix, Row, State
from mhc.upstream.releases.releases import NEEDS, Release

STILL, HEALED, CHANGED, UNKNOWN = STATUSES = ("still failing", "healed", "changed", "could not run")
"""What has become of an exported finding; changed is what fails now and then, or in another way."""

_STATUSES = {
    State.FAILS: STILL,
    State.PASSES: HEALED,
    State.FLAKY: CHANGED,
    State.OTHER: CHANGED,
    State.SKIPPED: UNKNOWN,
}


@dataclass(frozen=True)
class ExportedFolder:
    """A folder that export has written."""

    folder: Path
    document: dict[str, Any]

    @property
    def to(self) -> str:
        return str(self.document["to"])

    @property
    def needs(self) -> str:
        """Return one of `releases.NEEDS`. Older folders lack it: they need a GPU if their environment has one."""
        usual = "cuda" if self.document["environment"]["devices"] else NEEDS[self.to][0]
        return str(self.document.get("needs", usual))

    @property
    def own(self) -> str:
        """Return the release of the DSL that the finding was exported with."""
        return str(self.document["environment"]["packages"].get(self.to, "absent")).partition("+")[0]


def read(folder: Path) -> ExportedFolder:
    """Return an exported folder.

    Raises:
        ValueError: it is none.
    """
    try:
        document = read_json(folder / "export.json")
        if not isinstance(document, dict):
            raise TypeError("export.json must be an object")
        made = ExportedFolder(folder, document)
        if made.needs not in NEEDS[made.to] or not (folder / "repro.py").is_file():
            raise ValueError("needs or repro.py")
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} is no exported folder: {type(error).__name__}: {error}") from error
    return made


def find(places: Iterable[Path]) -> Iterator[ExportedFolder]:
    """Yield the exported folders among `places` and below them.

    Raises:
        ValueError: an `export.json` is not what export writes.
    """
    for place in places:
        for path in sorted(place.rglob("export.json")):
            yield read(path.parent)


def recheck(exported: ExportedFolder, release: Release, interpreters: Interpreters, *, seconds: float) -> tuple[str, Row]:
    """Run a repro on one release, as often as a matrix does; return its status and its row."""
    matrix = Matrix(exported.folder / "repro.py", exported.to, exported.needs, interpreters, seconds=seconds)
    row = matrix.row(release)
    return _STATUSES[row.state], row
