"""A library of which single files are loaded, from a checkout that the user names, without installing it."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import torch

from mhc.adapters.library import Library, everything
from mhc.case import Case
from mhc.implementation import Implementation, Refused
from mhc.operator import Operator


def stand_in(**names: Any) -> ModuleType:
    """Return a module with these names, in place of one that a file imports and that is not installed."""
    module = ModuleType("stand_in")
    vars(module).update(names)
    return module


def without_gpu() -> None:
    """Let libraries in this process ask for the current GPU where there is none: it does nothing, with four processors."""
    if torch.cuda.is_available():
        return
    properties = SimpleNamespace(multi_processor_count=4)
    stand_ins: dict[str, Callable[..., Any]] = {
        "device": lambda *_: nullcontext(),
        "get_device_capability": lambda *_: (9, 0),
        "is_bf16_supported": lambda *_: True,
        "get_device_properties": lambda *_: properties,
    }
    for name, function in stand_ins.items():
        setattr(torch.cuda, name, function)


@contextmanager
def _there(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """Have these modules in `sys.modules` for the block."""
    before = {one: sys.modules.get(one) for one in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for one, there in before.items():
            if there is None:
                del sys.modules[one]
            else:
                sys.modules[one] = there


@dataclass(frozen=True)
class Checkout(Library):
    """A library whose files are in the directory that the environment variable `MHC_CHECKOUT_{NAME}` names.

    Attributes:
        package: what messages call it.
        file: the file without which a directory is no checkout of it.
    """

    file: str = ""

    @property
    def variable(self) -> str:
        """Return the environment variable that names the directory."""
        return f"MHC_CHECKOUT_{self.name.upper()}"

    def unavailable(self) -> str | None:
        """Return that the checkout is not named, or that it has not the file, or None."""
        directory = os.environ.get(self.variable)
        if directory is None:
            return f"needs {self.variable}=DIR, a checkout of {self.package}"
        return None if Path(directory, self.file).is_file() else f"{self.variable}={directory} has no file {self.file}"

    def load(self, module: str, stand_ins: Mapping[str, ModuleType] | None = None) -> Any:
        """Return the module of a file, executed now, while `stand_ins` are there for what it imports.

        Raises:
            FileNotFoundError: the checkout is not named, or has no such file.
        """
        path = Path(os.environ.get(self.variable, self.variable), module).resolve()
        name = f"{self.variable}/{module}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        with _there(stand_ins or {}):
            spec.loader.exec_module(loaded)
        return loaded

    def importable(self, name: str, folder: str) -> None:
        """Let modules of a package be imported from a folder, without its `__init__.py`, which may import much more."""
        sys.modules[name] = stand_in(__path__=[str(Path(os.environ[self.variable], folder))])

    def imported(self, module: str, packages: str, stand_ins: Mapping[str, ModuleType] | None = None) -> Any:
        """Return a module, imported by its name, which may import others relative to itself.

        Args:
            module: its name, as in `unsloth.kernels.swiglu`.
            packages: the names of the packages that it is in, and imports from: importable, of the folders of their names.
            stand_ins: what is there for what it imports, until it is imported.
        """
        for one in packages.split():
            self.importable(one, one.replace(".", "/"))
        with _there(stand_ins or {}):
            return importlib.import_module(module)

    def on(
        self,
        devices: tuple[str, ...],
        name: str,
        operator: str | Operator,
        supports: Callable[[Case], Literal[True] | Refused] = everything,
        **record: Any,
    ) -> tuple[Implementation]:
        """Return `LIBRARY:NAME` for these devices: of TileLang kernels, which need a GPU, or of plain PyTorch."""
        record = {"operator": operator, "supports": supports, "unavailable": self.unavailable, **record}
        return (Implementation(name=f"{self.name}:{name}", devices=devices, **record),)
