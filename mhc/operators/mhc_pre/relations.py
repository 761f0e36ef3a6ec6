"""Metamorphic relations of mHC Forward Pre: what must follow where its inputs are scaled. docs/oracles.md derives them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mhc.operator import Relation

Factors = Mapping[str, Tensor | float]


def _scaled(sizes: Mapping[str, int], power: float) -> Factors:
    """Multiply x by c and norm_eps by c*c: the normalised x and all gates stay. dh_in / c gives dx / c."""
    del sizes
    return {"x": power, "inv_rms": 1 / power, "h_mix": power, "h_in": power, "dh_in": 1 / power, "dx": 1 / power}


def _folded(sizes: Mapping[str, int], power: float) -> Factors:
    """Move a power of two for each column from phi into gamma."""
    columns = torch.arange(sizes["K"], dtype=torch.float64) % 3 - 1
    weight = torch.where(columns == 0, 1.0, torch.where(columns > 0, power, 1 / power))
    into = weight.reshape(sizes["n"], sizes["D"])
    return {"gamma": into, "phi": 1 / weight, "dphi": weight, "dgamma": 1 / into}


def _ungated(sizes: Mapping[str, int], power: float) -> Factors:
    """Set alpha to 0: the gates depend on the bias alone, and the gradients of phi and gamma are 0."""
    del sizes, power
    return {"alpha": 0.0, "dphi": 0.0, "dgamma": 0.0}


def _silenced(sizes: Mapping[str, int], power: float) -> Factors:
    """Set the upstream gradients to 0: every gradient is 0."""
    del sizes, power
    return dict.fromkeys(("dh_in", "dh_post", "dh_res", "dx", "dphi", "dalpha", "dbias", "dgamma"), 0.0)


RELATIONS = (
    Relation(name="scaled x", factors=_scaled, scalars=lambda power: {"norm_eps": power * power}),
    Relation(name="gamma folded", factors=_folded, ones=frozenset({"gamma"})),
    Relation(
        name="alpha zero",
        factors=_ungated,
        powers=(1.0,),
        silent=frozenset({"h_in", "h_post", "h_res", "h_pre", "dx", "dalpha", "dbias"}),
    ),
    Relation(name="upstream zero", factors=_silenced, powers=(1.0,)),
)
