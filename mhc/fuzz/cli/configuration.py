"""The configuration of a project: the table `[tool.mhc-fuzz]` of pyproject.toml, or the file mhc-fuzz.toml.

Its keys are the long options of a campaign, and `known`. The command line is above the file, the file above the defaults.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import msgspec
from msgspec import UNSET, Meta, UnsetType

from mhc.case_json import CaseError
from mhc.fuzz.cli.ledger import Entry
from mhc.fuzz.findings.finding import read_finding
from mhc.fuzz.findings.known_issues import KNOWN_ISSUES, KnownIssue
from mhc.terminal import one_line

OWN, SHARED, TABLE = "mhc-fuzz.toml", "pyproject.toml", "mhc-fuzz"
_LONGEST = 200  # characters of a value that a message shows
_AS_PRECISION = (
    "it follows from the formula; less precision is declared: Implementation(precision=...), or NAME[matmul=tf32]"
)
_NO_KEYS = dict.fromkeys(("tolerance", "tolerances", "atol", "rtol", "precision"), _AS_PRECISION)
_EXCLUSIVE = (
    ("hours", "minutes"),
    ("impl", "operator"),
    ("impl", "programs"),
    ("against", "programs"),
    ("operator", "programs"),
)

Text = Annotated[str, Meta(min_length=1)]
Names = Annotated[list[Text], Meta(min_length=1)]
Whole = Annotated[int, Meta(ge=1)]
Above = Annotated[float, Meta(gt=0)]


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known issue: a saved finding that is not fixed yet, which a campaign reports no more."""

    finding: Annotated[str, Meta(min_length=1, description="The saved finding, FINGERPRINT.json, relative to this file.")]
    issue: Annotated[str, Meta(description="Where it is described: #12, or the address of an issue or pull request.")]
    reason: Annotated[str, Meta(description="Why it is not fixed, in a sentence.")]
    device: (
        Annotated[Literal["cpu", "cuda"], Meta(description="Where it fails.  [default: the device of this file]")]
        | UnsetType
    ) = UNSET


class Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The configuration of mhc-fuzz: the long options of a campaign, and what is known. Paths are relative to this file."""

    impl: Names | UnsetType = UNSET
    against: Names | UnsetType = UNSET
    operator: Text | UnsetType = UNSET
    programs: Names | UnsetType = UNSET
    hours: Above | UnsetType = UNSET
    minutes: Above | UnsetType = UNSET
    cases: Whole | UnsetType = UNSET
    workers: Whole | UnsetType = UNSET
    max_elements: Whole | UnsetType = UNSET
    memory: Annotated[float, Meta(ge=0.5)] | UnsetType = UNSET
    run_limit: Above | UnsetType = UNSET
    compile_limit: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    device: Literal["cpu", "cuda"] | UnsetType = UNSET
    on: Text | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    out: Text | UnsetType = UNSET
    fixtures: Text | UnsetType = UNSET
    known: Annotated[list[Known], Meta(description="Findings that are not fixed yet; they fail nothing.")] | UnsetType = (
        UNSET
    )


KEYS = tuple(one.encode_name for one in msgspec.structs.fields(Keys))


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What a file configures.

    Attributes:
        file: None where there is none.
        values: by key; paths are relative to the current folder.
        ledger: its known issues.
    """

    file: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    ledger: tuple[Entry, ...] = ()

    @property
    def known_issues(self) -> tuple[KnownIssue, ...]:
        """Return the known issues of this package, and the file's."""
        return (*KNOWN_ISSUES, *(entry.issue for entry in self.ledger))

    def where(self, key: str) -> str:
        """Return what a message calls a key: its file, its table where it is in one, and itself."""
        return _where(self.file, key) if self.file is not None else key


def find(start: Path) -> Path | None:
    """Return the file that configures the folder `start`: its own, or that of the nearest parent which has one.

    The search ends at the root of a Git repository, and at the home folder. A file in a parent folder, where another user
    may have written it, must belong to this user, to root, or to the owner of `start`.

    Raises:
        click.UsageError: a folder has two of them, one belongs to somebody else, or pyproject.toml cannot be read.
    """
    for folder in (start, *start.parents):
        own, shared = folder / OWN, folder / SHARED
        found = [path for path in (own, shared) if path.is_file() and (path == own or TABLE in _tools(path))]
        if len(found) > 1:
            raise click.UsageError(f"{own}: {SHARED} beside it has [tool.{TABLE}] too; keep one of them")
        if found:
            owner = _owner(found[0])
            if folder != start and owner not in {os.getuid(), 0, _owner(start)}:
                raise click.UsageError(f"{found[0]}: belongs to user {owner}; if you trust it, give --config {found[0]}")
            return found[0]
        if (folder / ".git").exists() or folder == Path.home():
            return None
    return None


def read(file: Path, options: Mapping[str, click.Parameter]) -> Configuration:
    """Return what `file` configures.

    Args:
        options: the options of a campaign by their long names without dashes; they check values as on a command line.

    Raises:
        click.UsageError: it cannot be read, or a key or a value is not allowed; the message names the file, the key, the
            value and what is allowed.
    """
    document = _tools(file).get(TABLE) if file.name == SHARED else _toml(file)
    if not isinstance(document, dict):
        raise click.UsageError(f"{file}: has no table [tool.{TABLE}]")
    for key in document:
        if key not in KEYS:
            raise click.UsageError(f"{_where(file, key)}: {_unknown(key)} Allowed are {', '.join(KEYS)}")
        try:
            msgspec.convert({key: document[key]}, Keys)
        except msgspec.ValidationError as error:
            why = str(error).removesuffix(f" - at `$.{key}`")
            choices = getattr(options[key].type, "choices", ()) if key in options else ()
            why += f"; allowed are {', '.join(choices)}" if choices else ""
            raise click.UsageError(f"{_where(file, key)} = {_shown(document[key])}: {why}") from error
    for one, other in _EXCLUSIVE:
        if one in document and other in document:
            raise click.UsageError(f"{_where(file, one)}: {other} is given too; give {one} or {other}, not both")
    values = {key: _from(file.parent, key, value) for key, value in document.items() if key != "known"}
    for key, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            try:
                options[key].type.convert(each, options[key], None)
            except click.BadParameter as error:
                raise click.UsageError(f"{_where(file, key)} = {_shown(each)}: {error.message}") from error
    ledger = tuple(_known(file, entry, document.get("device", "cpu")) for entry in document.get("known", ()))
    return Configuration(file=_near(file.parent, file.name), values=values, ledger=ledger)


def schema(options: Mapping[str, click.Parameter]) -> str:
    """Return the JSON Schema of mhc-fuzz.toml, for editors; what a key means is the help of its option."""
    document = msgspec.json.schema(Keys)
    for key, found in document["$defs"]["Keys"]["properties"].items():
        if key in options:
            found["description"] = getattr(options[key], "help", "")
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **document}, indent=2) + "\n"


def known_here() -> tuple[KnownIssue, ...] | None:
    """Return the known issues for the verb that runs, where the project's configuration lists some."""
    found = click.get_current_context().find_object(Configuration)
    return found.known_issues if found is not None and found.ledger else None


def _owner(path: Path) -> int:
    return path.stat().st_uid


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{file}: cannot be read: {error}") from error


def _tools(file: Path) -> dict[str, Any]:
    found = _toml(file).get("tool", {})
    return found if isinstance(found, dict) else {}


def _where(file: Path, key: str) -> str:
    table = f"[tool.{TABLE}] " if file.name == SHARED else ""
    return f"{_near(file.parent, file.name)}: {table}{one_line(key)}"


def _unknown(key: str) -> str:
    if key in _NO_KEYS:
        return f"no such key: {_NO_KEYS[key]}."
    close = difflib.get_close_matches(key.lower().replace("_", "-"), KEYS, n=1)
    return f"no such key; did you mean {close[0]}?" if close else "no such key."


def _shown(value: object) -> str:
    text = one_line(repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _near(folder: Path, name: str) -> Path:
    """Return the path `name`, which is relative to `folder`.

    It is relative to the current folder where that is `folder`, below it or above it, and so reads in messages and commands.
    """
    here = Path.cwd()
    related = folder.is_relative_to(here) or here.is_relative_to(folder)
    return Path(os.path.relpath(folder / name)) if related else folder / name


def _from(folder: Path, key: str, value: Any) -> Any:
    """Return a value, with its paths, which are relative to `folder`, relative to the current folder."""
    if key in {"out", "fixtures"}:
        return str(_near(folder, value))
    if key in {"impl", "against"}:
        return [_spec(folder, one) for one in value]
    if key == "programs":
        return [f"{name}@{_near(folder, site)}" if site else name for name, _, site in (one.partition("@") for one in value)]
    return value


def _spec(folder: Path, spec: str) -> str:
    place, _, name = spec.rpartition(":")
    return f"{_near(folder, place)}:{name}" if place.endswith(".py") else spec


def _known(file: Path, entry: Mapping[str, str], device: str) -> Entry:
    path = file.parent / entry["finding"]
    try:
        found = read_finding(path)
        issue = KnownIssue(fingerprint=found.fingerprint, fixture=path.name, issue=entry["issue"], reason=entry["reason"])
    except (CaseError, ValueError) as error:
        raise click.UsageError(f"{_where(file, 'known')} = {_shown(entry)}: {error}") from error
    return Entry(issue=issue, finding=found, device=entry.get("device", device), where=_where(file, "known"))
