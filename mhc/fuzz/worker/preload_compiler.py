"""The compiler that every process of a campaign over programs is forked with, where all of them use the same one.

To import TileLang takes a process two seconds, and each finding is confirmed in three new processes.
"""

import os
from collections.abc import Mapping
from contextlib import suppress

from mhc.programs.targets import ProgramTarget, target_named
from mhc.registry import Tested

VARIABLE = "MHC_PRELOADED_COMPILER"
"""Names the target whose compiler the server of processes imports."""


def preload_compiler(tested: Mapping[str, Tested], device: str) -> None:
    """Have the server import the compiler of what is tested; to be called before the first process starts.

    It does so where all use one release of TileLang, with no variables of their own, and no process needs a GPU, which none
    could use after a fork.

    Args:
        tested: by how it was named on the command line.
    """
    targets = [one for one in tested.values() if isinstance(one, ProgramTarget) and one.dsl == "tilelang" and not one.env]
    if device == "cpu" and len(targets) == len(tested) and len({one.site for one in targets}) == 1:
        os.environ[VARIABLE] = next(iter(tested))


def import_compiler() -> None:
    """Import what `preload_compiler` named, in the server. Where that fails, each process says why."""
    spec = os.environ.pop(VARIABLE, None)
    with suppress(Exception):
        target = None if spec is None else target_named(spec)
        if target is not None:
            target.enter()
            target.release()
