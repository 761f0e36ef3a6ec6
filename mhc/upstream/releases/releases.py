"""List the releases of a DSL on which a repro is run, and what each needs beside it.

A wheel's own requirements do not do: several TileLang releases accept an `apache-tvm-ffi` with which they do not import.
What is listed here was tried, on CPython 3.11 under Linux (docs/filing-upstream.md has the command): with it, TileLang runs
a kernel on the `c` target and lowers one for CUDA, and Triton interprets a kernel and compiles one ahead of time.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_VERSION = re.compile(r"\d+(?:\.\d+)*(?:\.post\d+)?")


@dataclass(frozen=True)
class Release:
    """One release of a DSL.

    Attributes:
        companions: what is installed beside it, pinned; None for a release that has not been tried.
        preload: shared libraries of the companions, under site-packages, that it wants loaded before it.
    """

    version: str
    companions: tuple[str, ...] | None = ()
    preload: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _VERSION.fullmatch(self.version):
            raise ValueError(f"version must be numbers with dots, as 0.1.8 or 0.1.7.post3, was {self.version!r}")

    @property
    def order(self) -> tuple[int, ...]:
        """Return what releases are sorted by."""
        return order(self.version)


@dataclass(frozen=True)
class Port:
    """A change of a DSL's interface, as a change of a program's text.

    Attributes:
        first: the release from which on the old text is refused. reason: what changed, for the reader of a matrix.
    """

    first: str
    old: str
    new: str
    reason: str


NEEDS = {
    "tilelang": ("c", "lower", "cuda"),
    "triton": ("interpreter", "compile", "cuda"),
    "torch": ("cpu", "cuda"),
}
"""What a repro of a DSL can need of a machine, the usual first.

c: the `c` target; lower: for CUDA, without a GPU; interpreter: TRITON_INTERPRET=1; compile: ahead of time, for sm_90.
"""

_Z3 = "z3-solver==4.15.4.0"  # in the environment itself: these two look for it beside themselves
RELEASES: Mapping[str, tuple[Release, ...]] = {
    "tilelang": (
        Release(
            "0.1.7.post3",
            ("apache-tvm-ffi==0.1.9", "nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-runtime-cu12==12.9.79"),
            preload=("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cuda_runtime/lib/libcudart.so.12"),
        ),
        Release("0.1.8", ("apache-tvm-ffi==0.1.9",)),
        Release("0.1.9", ("apache-tvm-ffi==0.1.9",)),
        Release("0.1.10", ("apache-tvm-ffi==0.1.10", _Z3)),
        Release("0.1.11", ("apache-tvm-ffi==0.1.10", _Z3)),
        Release("0.1.12", ("apache-tvm-ffi==0.1.11",)),
        Release("0.1.13", ("apache-tvm-ffi==0.1.12",)),
        Release("0.1.14", ("apache-tvm-ffi==0.1.12",)),
        Release("0.1.15", ("apache-tvm-ffi==0.1.12",)),
    ),
    "triton": tuple(map(Release, ("3.4.0", "3.5.1", "3.6.0", "3.7.0", "3.7.1", "3.8.0", "3.9.0"))),
    "torch": (),  # shared by all environments, and too large for one each: interpreters are given
}

PORTS: Mapping[str, tuple[Port, ...]] = {
    "tilelang": (
        Port("0.1.12", r",\s*is_cpu=True\b", "", "`T.Kernel` takes no `is_cpu` any more"),
        Port(
            "0.1.10",
            r"""\bTarget\((["'])(\w+) -arch=(\w+)\1\)""",
            r'Target({"kind": "\2", "arch": "\3"})',
            "`Target` takes a dictionary where it took options",
        ),
    ),
    "triton": (),
    "torch": (),
}


def order(version: str) -> tuple[int, ...]:
    """Return numbers to compare versions by: 0.1.7 < 0.1.7.post3 < 0.1.8; the part after a `+` is ignored."""
    plain, _, post = version.partition("+")[0].partition(".post")
    return (*(int(part) for part in plain.split(".")), *((0, int(post)) if post else ()))


def release(to: str, version: str) -> Release:
    """Return a release of a DSL: as listed, or without companions if it has not been tried."""
    return next((one for one in RELEASES[to] if one.version == version), Release(version, None))


def chosen(to: str, own: str, newest: str | None) -> list[Release]:
    """Return the releases that a finding's repro is run on by default: its own, each later one, and the newest.

    Args:
        own: the release that the finding was made on. newest: of the registry; None where it was not asked.
    """
    later = [one for one in RELEASES[to] if one.order > order(own)]
    ahead = [release(to, newest)] if newest is not None and order(newest) > order(own) else []
    return ordered([release(to, own), *later, *ahead])


def ordered(releases: Sequence[Release]) -> list[Release]:
    """Return the releases, oldest first, each once."""
    return sorted({one.version: one for one in releases}.values(), key=lambda one: one.order)


def port(to: str, version: str, text: str) -> tuple[str, tuple[str, ...]]:
    """Return a program's text as a release takes it, and why it differs from `text`."""
    reasons = []
    for one in PORTS[to]:
        changed = re.sub(one.old, one.new, text) if order(version) >= order(one.first) else text
        if changed != text:
            reasons.append(f"from {one.first} on, {one.reason}")
        text = changed
    return text, tuple(reasons)
