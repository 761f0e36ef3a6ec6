"""Limits of a worker process, and its use of memory and disk, as seen from outside."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mhc.fuzz.check.differential import Peer

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"  # PyTorch takes the first that is set
_END = 1 << 16
"""Bytes of output in which the stack of a crash is looked for."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a process.

    Attributes:
        start: seconds to load the implementation. idle: between two cases, to draw the next.
        judge: seconds between two calls, for inputs, reference and gates: a dear tolerance is no hang of a kernel.
        run: seconds of one call in which no compiler was seen. compile: seconds more that a call may take with one.
        parting: seconds to end after its pipe was closed, which is how an end shows first.
        memory: resident bytes. output: bytes on standard output and error, together.
        gpu_share: of a GPU's memory, what PyTorch may allocate in the process; past it a kernel gets an OutOfMemoryError.
    """

    start: float = 180.0
    idle: float = 120.0
    judge: float = 600.0
    compile: float = 120.0
    run: float = 60.0
    parting: float = 10.0
    memory: float = 8 << 30
    output: int = 16 << 20
    gpu_share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Peers:
    """The implementations that a process compares its own with. limits, log, gpu: as for `Process`."""

    peers: tuple[Peer, ...]
    limits: Limits
    log: Path | None
    gpu: int | None


def allocator_share(variables: Mapping[str, str], share: float) -> Mapping[str, str]:
    """Return the variable that configures PyTorch's allocator, with a share of a GPU's memory unless it sets one itself."""
    name = "per_process_memory_fraction"
    configured = next((variables[one] for one in _ALLOCATOR if one in variables), "")
    value = configured if name in configured else ",".join(filter(None, (configured, f"{name}:{share:.4f}")))
    return {_ALLOCATOR[0]: value}


def resident(pid: int | None) -> int:
    """Return the bytes of memory that a process has in use; 0 where /proc does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def size_of(path: Path) -> int:
    """Return the bytes in a file; 0 where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def end_of(path: Path | None) -> str:
    """Return the last text of a file; an empty one where there is no such file."""
    try:
        with (path or Path(os.devnull)).open("rb") as file:
            file.seek(max(0, size_of(path) - _END) if path else 0)
            return file.read().decode(errors="replace")
    except OSError:
        return ""
