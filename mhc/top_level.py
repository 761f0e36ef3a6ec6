"""Packages whose folders lie beside `mhc` in a checkout, and in `mhc` once installed: `mhc.oracles` and `mhc.strategies`.

In a checkout, `mhc/oracles` is a link to `oracles`, for tools that read files. The former names, `oracles` and `strategies`,
import the same modules.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


def folders_of(package: str, file: str) -> list[str]:
    """Return the `__path__` of a package, from the `__name__` and `__file__` of its `__init__.py`.

    In a checkout that is the folder at top level, so that tracebacks name one file, also in a copy that has no links but
    each folder twice. A source archive has the folder in `mhc` alone. Under its former name a package has no folder: its
    modules are those of the present name.
    """
    present, _, name = package.rpartition(".")
    if not present:
        if not any(isinstance(one, _FormerNames) for one in sys.meta_path):
            sys.meta_path.insert(0, _FormerNames())
        return []
    folder = Path(file).parent
    root = folder.parent.parent
    top = root / name
    return [str(top if (root / "pyproject.toml").is_file() and top.is_dir() else folder)]


class _FormerNames(MetaPathFinder, Loader):
    """Finds `oracles.bound` as `mhc.oracles.bound`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.partition(".")[0] in {"oracles", "strategies"} and path is not None else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(f"mhc.{module.__name__}")
