"""What a worker process does: load its implementation, then answer request after request until the pipe closes."""

import faulthandler
import importlib.util
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from mhc.fuzz.messages import Begun, Check, Fault, Judged, Message, Observe, Ready, Running

if TYPE_CHECKING:
    from mhc.fuzz.process import Company

# The modules that import PyTorch are imported in `serve`, after the environment variables are in place.


def serve(
    connection: Connection,
    spec: str,
    device: str,
    log: str | None,
    variables: Mapping[str, str],
    company: "Company | None" = None,
) -> None:
    """Serve one implementation. An exception out of the harness is sent as a `Fault`, and ends the process.

    Args:
        company: those that it is compared with.
    """
    _detach(log)
    bare = dict(os.environ)
    os.environ.update(variables)
    import torch  # noqa: PLC0415

    from mhc.case import Case  # noqa: PLC0415
    from mhc.fuzz.check import check  # noqa: PLC0415
    from mhc.fuzz.clock import Clock  # noqa: PLC0415
    from mhc.fuzz.compiles import compiles, listen  # noqa: PLC0415
    from mhc.fuzz.partner import gather, run  # noqa: PLC0415
    from mhc.fuzz.rounds import broken, play  # noqa: PLC0415
    from mhc.registry import load  # noqa: PLC0415

    torch.set_num_threads(1)
    if device == "cuda" and importlib.util.find_spec("triton") is not None:
        listen()
    say = _Saying(connection)
    try:
        implementation = load(spec)
    except Exception as error:  # the parent reports it
        say(Fault(message=f"{type(error).__name__}: {error}"))
        return
    partners = gather(company, device, bare, say)
    say(Ready())
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        text = ""
        try:
            if isinstance(request, Check):
                text = request.case
                before = compiles(implementation)
                say(Begun(case=text, number=0))
                clock = Clock(on_run=lambda nth: say(Running(nth=nth)))
                verdicts = check(
                    implementation,
                    Case.from_json(text),
                    device,
                    request.depth,
                    clock,
                    partners=partners,
                    measure=request.measure,
                )
                say(Judged(verdicts=tuple(verdicts), compiled=compiles(implementation) - before))
                if broken(verdicts):
                    return
            elif isinstance(request, Observe):
                text = request.case
                if not run(implementation, text, device, say):
                    return
            elif not play(implementation, device, request, say, partners):
                return
        except Exception as error:  # `observe` catches what an implementation raises: this is ours
            say(Fault(message=f"{type(error).__name__}: {error} on {text or request}"))
            return


class _Saying:
    """Sends messages; without a listener the process has nothing left to do."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, message: Message) -> None:
        try:
            self._connection.send(message)
        except OSError:
            os._exit(1)


def _detach(log: str | None) -> None:
    """Leave the terminal's signals to the parent, write to `log`, and die with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if log is not None:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.close(handle)
    faulthandler.enable(sys.stderr)
    if sys.platform == "linux":  # also where a kernel loops and never lets another thread run
        import ctypes  # noqa: PLC0415

        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = parent_process()
    while parent is not None and parent.is_alive():
        time.sleep(0.5)
    os._exit(1)
