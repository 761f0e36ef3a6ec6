"""The worker process: loads its implementation, then answers requests until the pipe closes."""

import faulthandler
import importlib.util
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import forkserver, parent_process, resource_tracker
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NoReturn

from mhc.fuzz.worker import frames
from mhc.fuzz.worker.protocol import STACKS, Check, Fault, Message, Observe, Ready

if TYPE_CHECKING:
    from mhc.fuzz.worker.limits import Peers

# The modules that import PyTorch are imported in `serve`, after the environment variables are in place.


def serve(
    connection: Connection,
    spec: str,
    device: str,
    log: str | None,
    variables: Mapping[str, str],
    peers: "Peers | None" = None,
) -> None:
    """Serve one implementation. An exception of the harness is sent as a `Fault`, and ends the process.

    Args:
        peers: the implementations that it is compared with.
    """
    stacks = _detach(log, connection)
    bare = dict(os.environ)
    os.environ.update(variables)
    import torch  # noqa: PLC0415

    from mhc import triton_interpreter  # noqa: PLC0415
    from mhc.fuzz.worker.compile_count import count_triton  # noqa: PLC0415
    from mhc.fuzz.worker.peer import run, start_peers  # noqa: PLC0415
    from mhc.fuzz.worker.program_session import Programs  # noqa: PLC0415
    from mhc.fuzz.worker.session import run_check, run_session  # noqa: PLC0415
    from mhc.programs.targets import ProgramTarget  # noqa: PLC0415
    from mhc.registry import load_tested  # noqa: PLC0415

    torch.set_num_threads(1)
    triton_interpreter.progress = None if stacks is None else os.memfd_create("programs")
    send = _Sender(connection)
    try:
        implementation = load_tested(spec)
        if isinstance(implementation, ProgramTarget):
            implementation.enter()
            implementation.release()  # imports the compiler
        elif device == "cuda" and importlib.util.find_spec("triton") is not None:
            count_triton()
    except BaseException as error:  # the parent reports it
        send(Fault.of(error))
        return
    _write_stack_at_end()
    programs = Programs(spec, send)
    located = Counter[tuple[str, ...]]()
    running = start_peers(peers, device, bare, send, serve)
    send(Ready(stacks=stacks, programs=triton_interpreter.progress))
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        try:
            if isinstance(implementation, ProgramTarget):
                programs.answer(implementation, request)
            elif isinstance(request, Check):
                if not run_check(implementation, device, request, send, running):
                    _leave()
            elif isinstance(request, Observe):
                text = request.case
                if not run(implementation, text, device, send):
                    _leave()
            elif not run_session(spec, implementation, device, request, send, running, located):
                _leave()
        except BaseException as error:  # `observe` catches what an implementation raises: this is ours
            send(Fault.of(error))
            return


class _Sender:
    """Sends messages. It ends the process if the other end is closed, or if a kernel has forked the process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pid = os.getpid()

    def __call__(self, message: Message) -> None:
        if os.getpid() != self._pid:
            os._exit(1)
        try:
            frames.send(self._connection, message)
        except OSError:
            os._exit(1)


def _detach(log: str | None, connection: Connection) -> int | None:
    """Begin a session, redirect output to `log`, close inherited descriptors, and arrange to die with the parent.

    Signals of the terminal do not reach the new session. What a kernel starts is in it, unless it begins its own.

    Returns:
        the descriptor of an in-memory file for stacks of threads, where the system has such files.
    """
    with suppress(OSError):  # it leads a session already
        os.setsid()
    _keep_only(connection)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if log is not None:
        try:
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW)
        except OSError:  # the disk is full, or may not be written: what a kernel prints is not worth a worker
            handle = os.open(os.devnull, os.O_WRONLY)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.close(handle)
    _write_stack_at_end()
    if sys.platform == "linux":  # also where a kernel loops and never lets another thread run
        import ctypes  # noqa: PLC0415

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    threading.Thread(target=_follow, daemon=True).start()
    if not hasattr(os, "memfd_create"):
        return None
    stacks = os.memfd_create("stacks")
    faulthandler.register(STACKS, file=stacks, all_threads=True)
    return stacks


def _write_stack_at_end() -> None:
    """Write where the process is when a signal ends it, in the place of what TVM does then.

    TVM allocates memory there, so that the same crash ends a process now by SIGSEGV and now by SIGABRT.
    """
    faulthandler.disable()
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    faulthandler.enable(sys.stderr)


def _keep_only(connection: Connection) -> None:
    """Close the descriptors of the fork server: a kernel that writes to them would end the server."""
    server: Any = getattr(forkserver, "_forkserver", None)
    tracker: Any = getattr(resource_tracker, "_resource_tracker", None)
    for owner, name in ((server, "_forkserver_alive_fd"), (tracker, "_fd")):
        inherited = getattr(owner, name, None)
        if inherited is not None and inherited != connection.fileno():
            with suppress(OSError):
                os.close(inherited)
            setattr(owner, name, None)  # a new one is started when it is needed


def _leave() -> NoReturn:
    """End a process whose device is lost without freeing anything: freeing may abort, which would look like a finding."""
    os._exit(0)


def _follow() -> None:
    parent = parent_process()
    while parent is not None and parent.is_alive():
        time.sleep(0.5)
    with suppress(OSError):
        os.killpg(0, signal.SIGKILL)  # with all that was started here
    os._exit(1)
