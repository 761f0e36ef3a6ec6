"""Misbehaviour towards the state of the process, which affects the next call or the harness."""

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch

from mhc.oracles.mutants.misbehaving.record import Misbehaviour

SETTINGS = "leaves settings of PyTorch changed, the recursion limit, NumPy's errors, the working folder or standard streams, or seeds generators"
PROCESS = "changes umask, environment or sys.path of its process"
SIGNALS = "ignores signals"
PATCHES = "replaces functions of PyTorch or `time`"
THREAD = "starts a thread that raises"
FOLDER = "deletes its folder for temporary files"

PRIVATE = "misbehaving-"
"""Prefix of folders for temporary files that may be deleted."""


def _clear_streams() -> None:
    sys.stdin = sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None  # type: ignore[misc]


def _ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def _settings() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)


def _seed() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _lower_recursion() -> None:
    depth = len(traceback.extract_stack())
    sys.setrecursionlimit(depth + 50)


def _raise(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("a function that the kernel replaced")


def _patch_torch() -> None:
    torch.equal = torch.allclose = torch.isfinite = _raise


def _stop_clocks() -> None:
    time.monotonic = time.perf_counter = time.time = lambda: 0.0


def _start_thread() -> None:
    threading.Thread(target=_raise, daemon=True).start()


def _delete_folder() -> None:
    folder = Path(tempfile.gettempdir())
    if folder.name.startswith(PRIVATE):  # never one that others use
        shutil.rmtree(folder, ignore_errors=True)


_effects = partial(Misbehaviour, kind=SETTINGS, finds=("effects: changed",))
_process = partial(Misbehaviour, kind=PROCESS)
_patches = partial(Misbehaviour, kind=PATCHES, finds=("liveness: *",), must=False, faults=True)

STATE = (
    _effects(name="leaves_settings", act=_settings),
    _effects(name="seeds_generators", act=_seed),
    _effects(name="changes_folder", act=lambda: os.chdir("/")),
    _effects(name="clears_streams", act=_clear_streams),
    _effects(name="lowers_recursion", act=_lower_recursion),
    _process(name="changes_umask", act=lambda: os.umask(0o777)),
    _process(name="clears_environment", act=os.environ.clear),
    _process(name="clears_path", act=sys.path.clear),
    Misbehaviour(name="ignores_signals", kind=SIGNALS, act=_ignore_signals),
    _patches(name="patches_torch", act=_patch_torch),
    _patches(name="stops_clocks", act=_stop_clocks),
    Misbehaviour(name="starts_a_thread_that_raises", kind=THREAD, act=_start_thread),
    Misbehaviour(name="deletes_folder", kind=FOLDER, act=_delete_folder),
)
