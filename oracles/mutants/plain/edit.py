"""A short way to write a mutant."""

from typing import Any

from mhc.oracles.mutants.record import Mutant


def edit(base: str, file: str, name: str, bug: str, old: str, new: str, **more: Any) -> Mutant:
    """Return the mutant of a base in whose module `file` the text `old` becomes `new`."""
    return Mutant(base=base, file=file, name=name, bug=bug, old=old, new=new, **more)
