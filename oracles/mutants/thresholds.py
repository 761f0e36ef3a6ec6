"""Mutants whose thresholds a seed draws, so that they were unknown when the strategies were written.

Each is a template with a threshold X, log-uniform between `LEAST` and the limit of its symbol, and is named after both, as
in `past_1873_h_in_column`: the name alone is enough to load it.
"""

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from mhc.oracles.mutants.record import Mutant

LEAST = 64
EACH = 2
"""Thresholds that are drawn for each template."""
_NAME = re.compile(r"past_(\d+)_(\w+)")
_formula = partial(Mutant, base="manual", file="formula")


@dataclass(frozen=True, kw_only=True)
class Template:
    """A mutant whose bug and edit have `{X}` in place of the threshold.

    Attributes:
        symbol: what the threshold is of. limit: the largest there is.
    """

    symbol: str
    limit: int
    mutant: Mutant


_WIDTH, _FLAT, _TOKENS = 8192, 32768, 131072

TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {
        one.mutant.name: one
        for one in (
            Template(
                symbol="D",
                limit=_WIDTH,
                mutant=_formula(
                    name="projection_column",
                    bug="the projection without its last column, D >= {X}",
                    old="weighted @ phi.mT",
                    new="weighted[..., : K - (D >= {X})] @ phi[:, : K - (D >= {X})].mT",
                ),
            ),
            Template(
                symbol="D",
                limit=_WIDTH,
                mutant=_formula(
                    name="dphi_column",
                    bug="the last column of dphi never added to, D >= {X}",
                    old="dphi = dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)",
                    new="dphi = dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)\n    dphi[:, K - (D >= {X}) :] = 0",
                ),
            ),
            Template(
                symbol="D",
                limit=_WIDTH,
                mutant=_formula(
                    name="h_in_column",
                    bug="tail mask off by one in h_in, D >= {X}",
                    old="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)",
                    new="h_in = (h_pre.unsqueeze(-1) * v).sum(-2)\n    h_in[..., D - (D >= {X}) :] = 0",
                ),
            ),
            Template(
                symbol="D",
                limit=_WIDTH,
                mutant=_formula(
                    name="bf16_dx_zero",
                    bug="dx = 0 in bfloat16, D >= {X}",
                    old="return Backward(dx.to(x.dtype),",
                    new="dx = dx * (D < {X} or x.dtype != torch.bfloat16)\n    return Backward(dx.to(x.dtype),",
                ),
            ),
            Template(
                symbol="K",
                limit=_FLAT,
                mutant=_formula(
                    name="dx_without_norm",
                    bug="dx without the gradient through inv_rms, K >= {X}",
                    old="dx = (dvec - dnorm)",
                    new="dx = (dvec - dnorm * (K < {X}))",
                ),
            ),
            Template(
                symbol="S",
                limit=_TOKENS,
                mutant=_formula(
                    name="dbias_doubled",
                    bug="dbias doubled, S >= {X}",
                    old="dbias = dgate.reshape(N, M).sum(0)",
                    new="dbias = dgate.reshape(N, M).sum(0) * (1 + (S >= {X}))",
                ),
            ),
            Template(
                symbol="N",
                limit=_TOKENS,
                mutant=_formula(
                    name="rows_lost",
                    bug="h_post is 0 from token {X} on",
                    old="return Forward(h_in.to(x.dtype), h_post,",
                    new="h_post = h_post * (torch.arange(B * S, device=x.device) < {X}).reshape(B, S, 1)\n"
                    "    return Forward(h_in.to(x.dtype), h_post,",
                ),
            ),
            Template(
                symbol="N",
                limit=_TOKENS,
                mutant=_formula(
                    name="dphi_tokens_lost",
                    bug="dphi without the tokens from {X} on",
                    old="dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)",
                    new="dh_mix.reshape(N, M)[:{X}].mT @ weighted.reshape(N, K)[:{X}]",
                ),
            ),
        )
    }
)


def drawn(seed: int) -> tuple[Mutant, ...]:
    """Draw `EACH` mutants of every template, with the thresholds that `seed` draws."""
    luck = random.Random(f"thresholds {seed}")
    found: dict[str, Mutant] = {}
    for name, template in TEMPLATES.items():
        while sum(one.endswith(f"_{name}") for one in found) < EACH:
            mutant = _at(name, round(LEAST * 2 ** luck.uniform(0, math.log2(template.limit / LEAST))))
            found[mutant.name] = mutant
    return tuple(found.values())


def named(name: str) -> Mutant | None:
    """Return the mutant of that name; None where no template has it."""
    parts = _NAME.fullmatch(name)
    return None if parts is None or parts[2] not in TEMPLATES else _at(parts[2], int(parts[1]))


def threshold(mutant: Mutant) -> tuple[str, int]:
    """Return the symbol and the threshold of a mutant out of `drawn`."""
    parts = _NAME.fullmatch(mutant.name)
    assert parts is not None, mutant.name
    return TEMPLATES[parts[2]].symbol, int(parts[1])


def _at(name: str, value: int) -> Mutant:
    mutant = TEMPLATES[name].mutant
    put = {field: getattr(mutant, field).replace("{X}", str(value)) for field in ("bug", "old", "new")}
    return replace(mutant, name=f"past_{value}_{name}", **put)
