"""Checks what a run's store must hold to be reported or resumed: it may be another person's, or damaged.

Reports and campaigns trust what they read, so every value is checked here first. SQLite does not enforce types, JSON may
hold other types than expected, and the id of a finding becomes the name of a file.
"""

import sqlite3
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mhc.case_json import CaseError, operator_of, parse
from mhc.fuzz.campaign.store import Store, StoreError
from mhc.fuzz.findings.finding import from_document
from mhc.implementation import DEVICES

_END_OF_TIME = 253402300800  # of year 9999, the last that a date can be written of
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Times = Annotated[int, Meta(ge=1, lt=2**53)]  # of what is counted, and has no row before
Number = Annotated[float, Meta(ge=0, lt=2.0**53)]
Seed = Annotated[int, Meta(ge=0)]


class CaseText(str):
    """JSON of a case of any version and of any declaration: a file may be changed while its kernels are tested.

    Reports show it, and need nothing of it but its operator.
    """


class Implementation(msgspec.Struct):
    """An implementation of a run."""

    name: str
    spec: str = ""
    precision: str = ""


class Environment(msgspec.Struct):
    """What reports show of `mhc.environment.Environment`."""

    python: str = ""
    platform: str = ""
    processor: str = ""
    packages: dict[str, str] = {}
    cuda: str = ""
    devices: list[str] = []
    variables: dict[str, str] = {}


class FaultRow(msgspec.Struct, forbid_unknown_fields=True):
    """A `FaultRecord`."""

    implementation: str
    message: str
    trace: str
    case: CaseText | None
    seen: Count
    at: Number


class UnfinishedRow(msgspec.Struct, forbid_unknown_fields=True):
    """A `mhc.fuzz.report.stored_run.Unfinished`."""

    implementation: str
    doing: str
    seconds: Number
    case: CaseText | None


def check(store: Store) -> None:
    """Look at every value of a store.

    Raises:
        StoreError: one is not what a campaign writes; the message says where.
    """
    try:
        for table, columns in _COLUMNS.items():
            for row in store.rows(table):
                for (name, kind), value in zip(columns.items(), row, strict=True):
                    if not _fits(kind, value):
                        raise StoreError(f"{table}: {name} is {_quoted(value)}")
        _check_meta(store)
        for id_, document in ((row[0], row[1]) for row in store.rows("findings")):
            _check_finding(id_, document)
    except sqlite3.DatabaseError as error:
        raise StoreError(f"cannot be read ({error})") from error


def check_to_go_on(store: Store) -> None:
    """Check that a run can be resumed: `check`, that it has its settings, and that its findings are on its implementations.

    Raises:
        StoreError: it does not.
    """
    check(store)
    meta = store.meta()
    for key in ("implementations", "device", "seed", "seconds", "cases"):
        if key not in meta:
            raise StoreError(f"meta: {key} is missing; the run had not begun")
    specs = {one.get("spec") for one in meta["implementations"]}
    if None in specs:
        raise StoreError("meta: implementations have no spec")
    for id_, row in store.findings().items():
        found = from_document(row["document"])
        if found.spec not in specs or found.against not in {None, *meta.get("against", ())}:
            raise StoreError(f"findings: {id_} is on what the run does not check, {_quoted(found.spec)}")


def _check_meta(store: Store) -> None:
    for key, text in store.rows("meta"):
        try:
            value = parse(text)
        except ValueError as error:
            raise StoreError(f"meta: {key} {error}") from error
        if not _fits(_META.get(key, Any), value):
            raise StoreError(f"meta: {key} is {_quoted(value)}")


def _check_finding(id_: str, text: str) -> None:
    try:
        found = from_document(parse(text))
    except CaseError as error:
        raise StoreError(f"findings: {id_}: {error}") from error
    except ValueError as error:
        raise StoreError(f"findings: {id_} {error}") from error
    if found.fingerprint.id != id_:
        raise StoreError(f"findings: the id of {id_} is not that of its fingerprint, {found.fingerprint.id}")


def _fits(kind: Any, value: object) -> bool:
    """Return whether a value is of a type, within its limits."""
    try:
        msgspec.convert(value, kind, dec_hook=_read_text)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _read_text(kind: type, value: object) -> object:
    """Return JSON text of a case, of which the operator's name is read.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError("no text")
    operator_of(parse(value))
    return kind(value)


def _quoted(value: object) -> str:
    """Return the text of a value of any size and depth, cut."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}..."


_COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "meta": {"key": str, "value": str},
    "hand": {"slot": Count, "implementation": str, "case": str, "begun": Number},
    "counts": {"implementation": str, "what": str, "n": Number},
    "regions": {"implementation": str, "label": str, "n": Times},
    "ratios": {"implementation": str, "subject": str, "bin": Annotated[int, Meta(ge=-40, le=4)], "n": Times},
    "worst": {
        "implementation": str,
        "subject": str,
        "ratio": Annotated[float, Meta(ge=0)],  # infinite where the bound is 0
        "case": CaseText,
    },
    "reached": {"implementation": str, "symbol": str, "size": Count},
    "timeline": {"implementation": str, "tick": Count, "n": Times},
    "findings": {
        "id": str,
        "document": str,
        "seen": Count,
        "state": Literal["raw", "shrunk", "minimal"],  # "shrunk": older versions, in which Hypothesis shrank it first
        "at": Number,
    },
    "restarts": {"implementation": str, "reason": str, "n": Times},
    "legs": {
        "number": Count,
        "started": Annotated[float, Meta(ge=0, lt=253402300800.0)],  # up to year 9999, the last that a date can have
        "seconds": Number,
        "ended": str,
    },
}
_META: Mapping[str, Any] = {
    "against": list[str],
    "budget": str,
    "cases": Seed | None,
    "chosen": bool,
    "command": str,
    "device": Literal[DEVICES],
    "environment": Environment,
    "fault": str | None,
    "faults": list[FaultRow],
    "fixtures": dict[str, str],
    "implementations": list[Implementation],
    "known": list[str],
    "max_elements": Seed | None,
    "partners": list[str],
    "seconds": Annotated[float, Meta(ge=0, le=1.7e308)] | None,
    "seed": Seed,
    "seeds": dict[str, Seed],
    "unavailable": dict[str, str],
    "unfinished": list[UnfinishedRow],
    "workers": Count | None,
}
