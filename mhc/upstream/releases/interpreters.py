"""Interpreters that have a release of a DSL: virtual environments, made once and kept, or given; and what runs in them.

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

from mhc.upstream.releases.releases import Release, port
from mhc.upstream.verify import SECONDS, Outcome, run

INSTALL_SECONDS = 900.0
_LAST = 200
_COMPANIONS = {"tilelang": ("apache-tvm-ffi", "torch"), "triton": ("torch",), "torch": ()}
_HAS, _READY = "HAS", "READY"
_FIRST = """\
from importlib.metadata import PackageNotFoundError, version

def have(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return ""

"""
_TILELANG_C = """\
import tilelang
import tilelang.language as T
import torch

@T.prim_func
def trial(x: T.Tensor((4,), "float32"), y: T.Tensor((4,), "float32")):
    with T.Kernel(1, is_cpu=True) as _:
        for i in T.serial(4):
            y[i] = x[i] + x[i]

x, y = torch.ones(4), torch.zeros(4)
tilelang.compile(trial, target="c", execution_backend="cython")(x, y)
assert y.tolist() == [2.0] * 4, y
"""
_TILELANG_GPU = """\
import tilelang
import tilelang.language as T
import torch
from tvm.target import Target

@T.prim_func
def trial(y: T.Tensor((32,), "float32")):
    with T.Kernel(1, threads=32) as _:
        for i in T.Parallel(32):
            y[i] = 2.0

"""
_LOWERED = """\
target = Target("cuda -arch=sm_90")
with target:
    assert "__global__" in tilelang.lower(trial, target=target).kernel_source
"""
_ON_CUDA = """\
y = torch.zeros(32, device="cuda")
tilelang.compile(trial)(y)
assert y.tolist() == [2.0] * 32, y
"""
_INTERPRETED = """\
import os
os.environ["TRITON_INTERPRET"] = "1"
"""
_TRITON = """\
import torch
import triton
import triton.language as tl

@triton.jit
def trial(x, y, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i) + tl.load(x + i))

"""
_LAUNCHED = """\
x, y = torch.ones(4, device=DEVICE), torch.zeros(4, device=DEVICE)
trial[(1,)](x, y, n=4)
assert y.tolist() == [2.0] * 4, y
"""
_COMPILED = """\
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

source = ASTSource(trial, {"x": "*fp32", "y": "*fp32", "n": "constexpr"}, {"n": 4})
assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
"""
_SUM = """\
import torch

assert torch.ones(4, device=DEVICE).sum().item() == 4
"""
_TRIALS = {
    ("tilelang", "c"): _TILELANG_C,
    ("tilelang", "lower"): _TILELANG_GPU + _LOWERED,
    ("tilelang", "cuda"): _TILELANG_GPU + _ON_CUDA,
    ("triton", "interpreter"): _INTERPRETED + _TRITON + _LAUNCHED.replace("DEVICE", "'cpu'"),
    ("triton", "compile"): _TRITON + _COMPILED,
    ("triton", "cuda"): _TRITON + _LAUNCHED.replace("DEVICE", "'cuda'"),
    ("torch", "cpu"): _SUM.replace("DEVICE", "'cpu'"),
    ("torch", "cuda"): _SUM.replace("DEVICE", "'cuda'"),
}


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
        """Return an interpreter that has the release, made if it is not there yet.

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
    """Return where environments are kept by default: in $MHC_CACHE, or in a folder of the user's cache."""
    given = os.environ.get("MHC_CACHE")
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mhc"
    return base / "releases"


def newest(to: str) -> str:
    """Return the newest release of a DSL that the registry has.

    Raises:
        Unavailable: it cannot be asked.
    """
    printed = _pip(["index", "versions", to])
    line = next((line for line in printed.splitlines() if line.startswith(f"{to} (")), "")
    if not line:
        raise Unavailable(f"pip names no newest {to}: {_last(printed)}")
    return line.removeprefix(f"{to} (").rstrip(")")


def shared() -> list[str]:
    """Return the folders of packages that environments have behind their own."""
    return [one for one in dict.fromkeys(sys.path) if Path(one).name in {"site-packages", "dist-packages"}]


def _name(to: str, release: Release) -> str:
    """Return a folder's name, which depends on everything that the environment is made of."""
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"pip did not end within {INSTALL_SECONDS:g} s") from late
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        raise Unavailable("; ".join(errors) or f"pip: {_last(done.stdout + done.stderr)}")
    return done.stdout


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:_LAST]


def installed(python: Path, to: str) -> str | None:
    """Return the release of a DSL that an interpreter has; None if it has none."""
    return _tell(python, to, "", SECONDS)[0].get(to)


def check_ready(python: Path, to: str, version: str, need: str, *, seconds: float = SECONDS) -> tuple[str, dict[str, str]]:
    """Run the trivial program of a need; return why a repro cannot run here ("" if it can), and the installed versions.

    Args:
        version: the release that the interpreter must have.
    """
    text, _ = port(to, version, _TRIALS[to, need])
    packages, outcome = _tell(python, to, text, seconds)
    has = packages.get(to)
    if packages and has != version:
        return (f"has {to} {has}" if has else f"has no {to}"), packages
    if outcome.status == 0 and outcome.said == _READY:
        return "", packages
    last = (outcome.output.strip().splitlines() or [str(outcome)])[-1]
    return f"no trivial program runs ({need}): {last[:_LAST]}", packages


def _tell(python: Path, to: str, text: str, seconds: float) -> tuple[dict[str, str], Outcome]:
    """Return the versions of a DSL and its companions that an interpreter has, and the outcome of a program there."""
    says = f"print({_HAS!r}, *(f'{{name}}={{have(name)}}' for name in {(to, *_COMPANIONS[to])!r}), flush=True)\n"
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "trial.py"
        program.write_text(f"{_FIRST}{says}{text}print({_READY!r})\n", encoding="utf-8")
        outcome = run(program, python=(str(python),), seconds=seconds)
    printed = next((line.split()[1:] for line in outcome.output.splitlines() if line.startswith(f"{_HAS} ")), [])
    pairs = (one.split("=", 1) for one in printed)
    return {one: version.partition("+")[0] for one, version in pairs if version}, outcome
