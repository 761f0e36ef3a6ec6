"""Files: bounded reads, atomic replacement, safe names, locks, and no writes through links."""

import fcntl
import hashlib
import itertools
import os
import re
import secrets
from pathlib import Path

from mhc.case_json import CaseError, parse

LARGEST = 64 << 20
"""The largest JSON file that is read, in bytes; a finding has a few kilobytes."""

_ORDINARY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,79}")
_KEPT = 40


def read_json(path: Path) -> object:
    """Return the JSON values in a file.

    Raises:
        CaseError: the file cannot be read, is too large, or is not JSON in UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)  # devices and pipes have no size
    except OSError as error:
        raise CaseError("file", f"cannot be read ({error.strerror})") from error
    if len(data) > LARGEST:
        raise CaseError("file", f"is larger than {LARGEST >> 20} MiB")
    try:
        return parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CaseError("file", f"is not UTF-8 ({error.reason} at byte {error.start})") from error
    except ValueError as error:
        raise CaseError("file", str(error)) from error


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically: a reader sees the old or the new text.

    A link at `path` is replaced, not followed.
    """
    beside = path.with_name(f".{path.name[:_KEPT]}.{secrets.token_hex(8)}")
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def file_name(name: str) -> str:
    """Return a file name for any string: `name` itself where it is ordinary, else a readable form with a digest."""
    if _ORDINARY.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{re.sub('[^A-Za-z0-9_+-]', '_', name)[:_KEPT]}~{digest}"  # an ordinary name has no ~


def new_folder(path: Path) -> Path:
    """Make and return a new folder: `path`, or if that exists `path-2`, `path-3`, ..."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError


def refuse_links(*paths: Path) -> None:
    """Raise if one of `paths` is a link, which another user may have planted in a folder that is written to.

    Raises:
        OSError: one of `paths` is a link.
    """
    for path in paths:
        if path.is_symlink():
            raise OSError(f"{path}: is a link to {path.readlink()}; nothing is written through it")


class Held(Exception):
    """Raised where another process holds the lock."""


def hold(path: Path) -> int:
    """Lock `path` and return the descriptor that holds the lock; the kernel releases it when the process ends.

    Raises:
        Held: another process holds the lock. OSError: `path` cannot be locked.
    """
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(number)
        if isinstance(error, BlockingIOError):
            raise Held(str(path)) from error
        raise
    return number
