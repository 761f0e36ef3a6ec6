"""What a run's store must hold to be reported, or gone on with: it may be another person's, or damaged.

Reports and campaigns read it without a second look, so whatever is checked, is checked here, before. SQLite has no types of
its own, JSON has others than are meant, and a finding's id names files.
"""

import math
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from mhc.case import Case
from mhc.case_json import CaseError, parse
from mhc.fuzz.campaign.store import Store, StoreError
from mhc.fuzz.findings.finding import from_document
from mhc.implementation import DEVICES

_STATES = {"raw", "shrunk", "minimal"}  # "shrunk": older versions, in which Hypothesis shrank a finding first
_END_OF_TIME = 253402300800  # of year 9999, the last that a date can be written of

Fits = Callable[[Any], bool]


def check(store: Store) -> None:
    """Look at every value of a store.

    Raises:
        StoreError: one is not what a campaign writes; the message says where.
    """
    try:
        for table, columns in _COLUMNS.items():
            for row in store.rows(table):
                for (name, fits), value in zip(columns.items(), row, strict=True):
                    if not fits(value):
                        raise StoreError(f"{table}: {name} is {_quoted(value)}")
        _check_meta(store)
        for id_, document in ((row[0], row[1]) for row in store.rows("findings")):
            _check_finding(id_, document)
    except sqlite3.DatabaseError as error:
        raise StoreError(f"cannot be read ({error})") from error


def check_to_go_on(store: Store) -> None:
    """Whether a run can be gone on with: `check`, that it says what it was to do, and that its findings are on that.

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
        if not _META.get(key, _anything)(value):
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


def _quoted(value: object) -> str:
    """A value of any size and depth."""
    try:
        told = repr(value)
    except (RecursionError, ValueError):
        told = f"a {type(value).__name__}"
    return told if len(told) <= 100 else f"{told[:100]}..."


def _anything(value: object) -> bool:
    return True


def _text(value: object) -> bool:
    return isinstance(value, str)


def _whole(value: object) -> bool:
    """What somebody chose, as a seed, of any size."""
    return type(value) is int and value >= 0


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _times(value: object) -> bool:
    """How often something was counted, which has no row before."""
    return _count(value) and value != 0


def _number(value: object) -> bool:
    return type(value) in {int, float} and 0 <= value < 2**53  # type: ignore[operator]  # of these types


def _ratio(value: object) -> bool:
    """An error may be any number of bounds, and infinitely many where the bound is 0."""
    return type(value) in {int, float} and value >= 0  # type: ignore[operator]  # of these types; not of a NaN


def _case(value: object) -> bool:
    """A case of any version: it is shown, and nothing of it but its operator is read."""
    try:
        document = parse(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return isinstance(document, Mapping) and _text(document.get("operator", ""))


def _or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _list_of(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _by_name(fits: Fits) -> Fits:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def _fields(**fields: Fits) -> Fits:
    """An object whose fields fit, those of them that are there; others may be too."""
    return lambda value: isinstance(value, dict) and all(fits(value[key]) for key, fits in fields.items() if key in value)


def _exactly(**fields: Fits) -> Fits:
    """An object with these fields and no others."""
    fits = _fields(**fields)
    return lambda value: fits(value) and isinstance(value, dict) and set(value) == set(fields)


def _read_case(value: object) -> bool:
    """A case that this version reads."""
    try:
        return isinstance(value, str) and Case.from_json(value) is not None
    except CaseError:
        return False


def _implementation(value: object) -> bool:
    return _fields(name=_text, spec=_text)(value) and isinstance(value, dict) and "name" in value


_COLUMNS: Mapping[str, Mapping[str, Fits]] = {
    "meta": {"key": _text, "value": _text},
    "hand": {"slot": _count, "implementation": _text, "case": _text, "begun": _number},
    "counts": {"implementation": _text, "what": _text, "n": _number},
    "regions": {"implementation": _text, "label": _text, "n": _times},
    "ratios": {
        "implementation": _text,
        "subject": _text,
        "bin": lambda value: type(value) is int and -40 <= value <= 4,
        "n": _times,
    },
    "worst": {"implementation": _text, "subject": _text, "ratio": _ratio, "case": _case},
    "reached": {"implementation": _text, "symbol": _text, "size": _count},
    "timeline": {"implementation": _text, "tick": _count, "n": _times},
    "findings": {
        "id": _text,
        "document": _text,
        "seen": _count,
        "state": lambda value: value in _STATES,
        "at": _number,
    },
    "restarts": {"implementation": _text, "reason": _text, "n": _times},
    "legs": {
        "number": _count,
        "started": lambda value: _number(value) and value < _END_OF_TIME,
        "seconds": _number,
        "ended": _text,
    },
}
_META: Mapping[str, Fits] = {
    "against": _list_of(_text),
    "budget": _text,
    "cases": _or_none(_whole),
    "chosen": lambda value: isinstance(value, bool),
    "command": _text,
    "device": lambda value: value in DEVICES,
    "environment": _fields(
        python=_text,
        platform=_text,
        processor=_text,
        packages=_by_name(_text),
        cuda=_text,
        devices=_list_of(_text),
        variables=_by_name(_text),
    ),
    "fault": _or_none(_text),
    "faults": _list_of(
        _exactly(implementation=_text, message=_text, trace=_text, case=_or_none(_read_case), seen=_count, at=_number)
    ),
    "fixtures": _by_name(_text),
    "implementations": _list_of(_implementation),
    "known": _list_of(_text),
    "max_elements": _or_none(_whole),
    "partners": _list_of(_text),
    "seconds": _or_none(lambda value: type(value) in {int, float} and 0 <= value < math.inf),
    "seed": _whole,
    "seeds": _by_name(_whole),
    "unfinished": _list_of(_exactly(implementation=_text, doing=_text, seconds=_number, case=_or_none(_read_case))),
    "workers": _or_none(_count),
}
