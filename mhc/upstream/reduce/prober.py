"""Run programs, each in its own fork; a standalone program that reads tasks and writes results, as JSON lines.

It is started where this package cannot be imported (`mhc.upstream.reduce.probe`), and imports what the programs import once.
"""

import ctypes
import hashlib
import json
import mmap
import os
import re
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_GUARD = 1 << 20
"""Protected bytes on either side of a tensor."""


def main() -> None:
    """Answer each task with one line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a program prints is not an answer
    for line in sys.stdin:
        answers.write(json.dumps(tried(json.loads(line))) + "\n")
        answers.flush()


def tried(task: dict[str, Any]) -> dict[str, Any]:
    """Return what a program did: digests of what is observed, the exception that it raised, or how it ended its process."""
    exec(task["imports"], {})  # once for all forks
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            with os.fdopen(writer, "w") as out:
                json.dump(seen(task), out)
        finally:
            os._exit(0)
    os.close(writer)
    said = _read(reader, time.monotonic() + task["seconds"])
    os.close(reader)
    if said is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if said is None:
        return {"died": "hang"}
    if os.WIFSIGNALED(status):
        return {"died": signal.Signals(os.WTERMSIG(status)).name}
    return dict(json.loads(said)) if said else {"died": f"exit {os.WEXITSTATUS(status)}"}


def seen(task: dict[str, Any]) -> dict[str, Any]:
    """Run the program in the fork, on its own inputs and on each witness, until it does something else than wanted."""
    file = Path(task["file"])
    file.write_text(task["definitions"], encoding="utf-8")  # where the DSLs read it
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(file)}
    digests: list[list[str]] = []
    try:
        exec(compile(task["definitions"], str(file), "exec"), namespace)
        exec(task["given"], namespace)
        exec(task["compiled"], namespace)
        runs: list[tuple[dict[str, Tensor], bool | None]] = [({}, None)]
        if task["guarded"]:
            runs = [({}, True), ({}, False)]
        if task["variants"]:
            runs += [(variant, None) for variant in torch.load(task["variants"])]
        for variant, at_end in runs:
            own = {**namespace, **{name: one.to(task["device"]) for name, one in variant.items()}}
            if at_end is not None:
                own.update({name: guarded(one, at_end) for name, one in own.items() if isinstance(one, Tensor)})
            for name, lines in task["made"]:
                exec(lines, own)
                if at_end is not None:
                    own[name] = guarded(own[name], at_end)
            exec(task["body"], own)
            digests.append([digest(eval(one, own)) for one in task["observed"]])
            if task["wanted"] and digests[-1] != task["wanted"][len(digests) - 1]:
                break
    except BaseException as error:  # reported, whatever a program raises
        traceback.print_exc()
        root = error
        while root.__cause__ is not None:
            root = root.__cause__
        first = (str(root).strip().splitlines() or [""])[0]
        return {"raised": f"{type(root).__name__}: " + re.sub(r"0x[0-9a-f]+|/[\w./-]+|\d+", "#", first)}
    return {"seen": digests}


def digest(value: object) -> str:
    """Return the digest of the bits of a tensor, or the text of any other value."""
    if not isinstance(value, Tensor):
        return repr(value)
    flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()


def guarded(tensor: Tensor, at_end: bool) -> Tensor:
    """Return a copy directly before (or after) a protected page: an access outside the tensor ends the process."""
    if tensor.numel() == 0:
        return tensor
    reach = 1 + sum((size - 1) * by for size, by in zip(tensor.shape, tensor.stride(), strict=True))
    size = reach * tensor.element_size()
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    region = libc.mmap(None, whole + 2 * _GUARD, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if libc.mprotect(region + _GUARD, whole, mmap.PROT_READ | mmap.PROT_WRITE) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    place = region + _GUARD + (whole - size if at_end else 0)
    flat = torch.frombuffer((ctypes.c_uint8 * size).from_address(place), dtype=tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride()).copy_(tensor)


def _read(reader: int, deadline: float) -> str | None:
    """Return all that the fork writes; None where it does not end in time."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts).decode()
        parts.append(part)


if __name__ == "__main__":
    main()
