"""Property-based differential testing for GPU kernels: any operator whose reference is a plain PyTorch function."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mhc.case import Case, default_case
    from mhc.case_json import CaseError
    from mhc.declaration import operator
    from mhc.implementation import Implementation, ImplementationError, Refused
    from mhc.inputs import Inputs, materialise
    from mhc.notation import DeclarationError
    from mhc.observation import ContractError, Observation, observe
    from mhc.operators.mhc_pre.api import choose, mhc_pre
    from mhc.operators.mhc_pre.tilelang.api import mhc_backward_tilelang, mhc_forward_pre_tilelang
    from mhc.operators.mhc_pre.tilelang.backward_class import MHCBackwardTileLang
    from mhc.operators.mhc_pre.tir.api import mhc_forward_pre_tir
    from mhc.operators.mhc_pre.torch.golden import mhc_forward_pre, mhc_pre_backward_manual
    from mhc.operators.mhc_pre.triton.api import mhc_backward_triton, mhc_forward_pre_triton_optimized
    from mhc.recipe import Layout, Recipe
    from mhc.reference import Reference, reference
    from mhc.registry import load
    from mhc.testing.items import check, parametrize

__all__ = [
    "Case",
    "CaseError",
    "ContractError",
    "DeclarationError",
    "Implementation",
    "ImplementationError",
    "Inputs",
    "Layout",
    "MHCBackwardTileLang",
    "Observation",
    "Recipe",
    "Reference",
    "Refused",
    "check",
    "choose",
    "default_case",
    "load",
    "materialise",
    "mhc_backward_tilelang",
    "mhc_backward_triton",
    "mhc_forward_pre",
    "mhc_forward_pre_tilelang",
    "mhc_forward_pre_tir",
    "mhc_forward_pre_triton_optimized",
    "mhc_pre",
    "mhc_pre_backward_manual",
    "observe",
    "operator",
    "parametrize",
    "reference",
]

_NAMES = {
    "mhc.case": ("Case", "default_case"),
    "mhc.case_json": ("CaseError",),
    "mhc.declaration": ("operator",),
    "mhc.implementation": ("Implementation", "ImplementationError", "Refused"),
    "mhc.inputs": ("Inputs", "materialise"),
    "mhc.notation": ("DeclarationError",),
    "mhc.observation": ("ContractError", "Observation", "observe"),
    "mhc.operators.mhc_pre.api": ("choose", "mhc_pre"),
    "mhc.operators.mhc_pre.tilelang.api": ("mhc_backward_tilelang", "mhc_forward_pre_tilelang"),
    "mhc.operators.mhc_pre.tilelang.backward_class": ("MHCBackwardTileLang",),
    "mhc.operators.mhc_pre.tir.api": ("mhc_forward_pre_tir",),
    "mhc.operators.mhc_pre.torch.golden": ("mhc_forward_pre", "mhc_pre_backward_manual"),
    "mhc.operators.mhc_pre.triton.api": ("mhc_backward_triton", "mhc_forward_pre_triton_optimized"),
    "mhc.recipe": ("Layout", "Recipe"),
    "mhc.reference": ("Reference", "reference"),
    "mhc.registry": ("load",),
    "mhc.testing.items": ("check", "parametrize"),
}
"""The public names by module. A module is imported when one of its names is first used, so that pytest can load
`mhc.pytest_plugin` for everybody without PyTorch."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker would take any name for one of the package

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
        return value


class _Package(ModuleType):
    """The package, in which `operator` and `reference` are functions, though submodules have these names too."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
