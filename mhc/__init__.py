"""Property-based differential testing for GPU kernels: any operator whose reference is a plain PyTorch function."""

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
    "reference",
]
