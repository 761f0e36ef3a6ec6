"""What every worker process is forked from: all that is imported before an implementation is, and no DSL but for programs.

What a first case would import and set up is here too, once for all processes: half a second each.
"""

import atexit
import ctypes
import gc
import os
import signal
import sys
import warnings
from contextlib import suppress

import hypothesis
import torch.distributed.tensor  # noqa: F401  the first operation on a tensor of ours would import it
from hypothesis import strategies
from torch.fx.experimental import symbolic_shapes  # noqa: F401  SymPy's half a second is the first `autograd.grad`'s otherwise

import mhc.fuzz.worker.peer
import mhc.fuzz.worker.session
import mhc.registry  # noqa: F401
from mhc.fuzz.worker.allocator import keep_freed
from mhc.fuzz.worker.forkserver import descendants
from mhc.fuzz.worker.preload_compiler import import_compiler
from mhc.strategies.rounds import quiet


@quiet(1)
@hypothesis.given(strategies.none())
def _drawn(nothing: None) -> None:
    """Run a first test: in it, Hypothesis collects all garbage of the process."""


_drawn()
import_compiler()
keep_freed()
if (
    sys.platform == "linux"
):  # the server gets what its processes leave running; `mhc.fuzz.worker.forkserver.end_orphans` ends it
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1)
    warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")


def _end_all(server: int) -> None:
    """End whatever still runs when the server ends, as it does where the main process was killed."""
    while os.getpid() == server and (left := descendants(server)):
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


atexit.register(_end_all, os.getpid())
gc.freeze()  # no process looks at it again: its pages stay shared
