"""Calls of a function in a process of its own, which an implementation may end or hang."""

import os
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any

import torch

from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.programs.targets import ProgramTarget
from mhc.registry import load_tested

_START_LIMIT = 120.0


class Ended(Exception):
    """The process gave no answer.

    Attributes:
        status: its exit status; None where it hung. seconds: that it had worked.
    """

    def __init__(self, spec: str, status: int | None, seconds: float) -> None:
        super().__init__(f"a process of {spec} {'hung' if status is None else f'ended with {status}'} before it was done")
        self.status, self.seconds = status, seconds


def run_apart(
    function: Callable[..., Any],
    spec: str,
    *arguments: Any,
    limit: float | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Return `function(implementation, *arguments)`, called in a new process that has loaded `spec`.

    Args:
        limit: seconds for the call, after which it hangs. variables: of the environment, beside the implementation's own.

    Raises:
        Ended: the process ended or hung. TimeoutError: it did not start.
    """
    here, there = FORKSERVER.Pipe()
    own = {**load_tested(spec).env, **variables}
    process = FORKSERVER.Process(target=_serve, args=(there, own, function, spec, arguments), daemon=True)
    process.start()
    there.close()
    started = time.perf_counter()
    try:
        if not here.poll(_START_LIMIT):
            raise TimeoutError(f"a process of {spec} did not start in {_START_LIMIT:.0f} s")
        here.recv()
        started = time.perf_counter()
        if here.poll(limit):
            return here.recv()
        raise Ended(spec, None, time.perf_counter() - started)
    except (EOFError, ConnectionResetError):
        seconds = time.perf_counter() - started
        process.join()
        raise Ended(spec, process.exitcode, seconds) from None
    finally:
        process.kill()
        process.join()
        here.close()


def _serve(
    connection: Connection, variables: Mapping[str, str], function: Callable[..., Any], spec: str, arguments: tuple[Any, ...]
) -> None:
    os.environ.update(variables)  # before anything of a DSL is imported
    torch.set_num_threads(1)
    implementation = load_tested(spec)
    if isinstance(implementation, ProgramTarget):
        implementation.enter()
    connection.send(None)
    connection.send(function(implementation, *arguments))
