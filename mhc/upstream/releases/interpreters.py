"""Interpreters that have a release of a DSL: virtual environments, made once and kept, or those that somebody has already.

An environment holds the release and its companions alone. PyTorch and all else come from the environment that makes it,
behind its own packages: a path in a `.pth` file. So it takes some 200 MB for TileLang, and no second PyTorch.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mhc.upstream.releases.releases import Release

SECONDS = 900.0
_LAST = 200


class Unavailable(Exception):
    """There is no interpreter with a release; says why."""


@dataclass(frozen=True)
class Interpreters:
    """Where interpreters come from.

    Attributes:
        cache: the folder of the environments that are made.
        given: interpreters that are there already, by release; they are used as they are.
        makes: whether environments are made for the other releases.
    """

    cache: Path
    given: Mapping[str, Path] = field(default_factory=dict)
    makes: bool = True

    def python(self, to: str, release: Release) -> Path:
        """An interpreter that has the release, made if it is not there yet.

        Raises:
            Unavailable: pip does not install it, or none may be made.
        """
        if release.version in self.given:
            return self.given[release.version]
        if not self.makes:
            raise Unavailable("no interpreter was given")
        place = self.cache / _name(to, release)
        if not place.is_dir():
            self.cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.cache, prefix="making-") as making:
                made = Path(making) / "environment"
                _make(made, to, release)
                try:
                    made.rename(place)
                except OSError:  # another process was faster, or it cannot be kept
                    if not place.is_dir():
                        raise
        return place / "bin" / "python"


def cache_folder() -> Path:
    """Where environments are kept if nothing is said: in $MHC_CACHE, or in a folder of the user's cache."""
    given = os.environ.get("MHC_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mhc"
    return base / "releases"


def newest(to: str) -> str:
    """The newest release of a DSL that the registry has.

    Raises:
        Unavailable: it cannot be asked.
    """
    told = _pip(["index", "versions", to])
    line = next((line for line in told.splitlines() if line.startswith(f"{to} (")), "")
    if not line:
        raise Unavailable(f"pip names no newest {to}: {_last(told)}")
    return line.removeprefix(f"{to} (").rstrip(")")


def shared() -> list[str]:
    """The folders of packages that environments have behind their own."""
    return [one for one in dict.fromkeys(sys.path) if Path(one).name in {"site-packages", "dist-packages"}]


def _name(to: str, release: Release) -> str:
    """A folder's name: another one as soon as anything that it is made of is another."""
    parts = (sys.version, sys.base_prefix, *shared(), *(release.companions or ("as the wheel asks",)), *release.preload)
    return f"{to}-{release.version}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:8]}"


def _make(place: Path, to: str, release: Release) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"no virtual environment: {_last(done.stdout + done.stderr)}")
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)}))
    behind = packages / "shared.pth"
    paths = [f"{one}\n" for one in shared()]
    if release.companions is None:  # pip sees what is shared, and adds what the wheel wants otherwise
        behind.write_text("".join(paths), encoding="utf-8")
    options = ["--no-deps"] if release.companions is not None else []
    wanted = [f"{to}=={release.version}", *(release.companions or ())]
    _pip(["--python", str(place / "bin" / "python"), "install", "--quiet", *options, *wanted])
    inside = packages.relative_to(place)  # the environment is moved once it is made
    loads = [f"import ctypes, sys; ctypes.CDLL(f'{{sys.prefix}}/{inside / one}', 256)\n" for one in release.preload]
    behind.write_text("".join([*paths, *loads]), encoding="utf-8")


def _pip(arguments: list[str]) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"pip did not end within {SECONDS:g} s") from late
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise Unavailable("; ".join(errors) or f"pip: {_last(done.stdout + done.stderr)}")
    return done.stdout


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing said"])[-1][:_LAST]
