"""The compiler that every process of a campaign over programs is forked with, where all of them use the same one.

To import TileLang and set it up takes a process three seconds, and each finding is confirmed in three new processes.
"""

import os
from collections.abc import Mapping
from contextlib import suppress

from mhc.fuzz.worker.forkserver import start_server
from mhc.programs.targets import ProgramTarget, target_named
from mhc.programs.tilelang_lower import warm_up
from mhc.registry import Tested

VARIABLE = "MHC_PRELOADED_COMPILER"
"""Names the target whose compiler the server of processes imports; set while the server starts."""


def preload_compiler(tested: Mapping[str, Tested], device: str) -> None:
    """Start the server of processes with the compiler of what is tested; one that runs already stays as it is.

    That is done where all use one release of TileLang, with no variables of their own. No process may need a GPU, which none
    could use after a fork.

    Args:
        tested: by how it was named on the command line.
    """
    targets = [one for one in tested.values() if isinstance(one, ProgramTarget) and one.dsl == "tilelang" and not one.env]
    if device == "cpu" and len(targets) == len(tested) and len({one.site for one in targets}) == 1:
        os.environ[VARIABLE] = next(iter(tested))
        try:
            start_server()
        finally:
            del os.environ[VARIABLE]  # which other servers must not see


def import_compiler() -> None:
    """Import what `preload_compiler` named, in the server. Where that fails, each process says why."""
    spec = os.environ.pop(VARIABLE, None)
    with suppress(Exception):
        target = None if spec is None else target_named(spec)
        if target is not None:
            target.enter()
            warm_up()
