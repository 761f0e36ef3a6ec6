"""Records of misbehaving implementations: right, except for an action or a result in cases that meet a condition."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from mhc.case import Case
from mhc.implementation import Implementation
from mhc.operators.mhc_pre.torch.implementations import MANUAL

Outputs = tuple[Tensor, ...]


def always(x: Tensor) -> bool:
    """Return True: every case takes part."""
    del x
    return True


def many_tokens(x: Tensor) -> bool:
    """Return whether there are more than four tokens, as in about half of all cases."""
    return x.shape[0] * x.shape[1] > 4


def odd_width(x: Tensor) -> bool:
    """Return whether D is odd, as in a minority of cases and none of the first ten of a campaign."""
    return x.shape[3] % 2 == 1


def _nothing() -> None:
    return


def _as_they_are(outputs: Outputs) -> Outputs:
    return outputs


def _everything(case: Case) -> bool:
    del case
    return True


@dataclass(frozen=True, kw_only=True)
class Misbehaviour:
    """One implementation, and what a campaign must report of it.

    Attributes:
        name: unique, a Python identifier.
        kind: its row in the table of docs/campaigns.md.
        finds: the findings permitted for it, as patterns of `oracle: symptom`; empty: none, and the campaign continues.
        must: one of them must be reported; otherwise a campaign may also report nothing.
        faults: a fault of the harness may be reported too, since it breaks what the harness needs in its process.
        act: called before the forward. result: returns the results in place of the right outputs. supports: as in
            `Implementation`, but with any answer.
        when: selects the cases in which `act` and `result` are applied.
        device: its device, "cpu" or "cuda".
    """

    name: str
    kind: str
    finds: tuple[str, ...] = ()
    must: bool = True
    faults: bool = False
    act: Callable[[], object] = _nothing
    result: Callable[[Outputs], object] = _as_they_are
    supports: Callable[[Case], Any] = _everything
    when: Callable[[Tensor], bool] = many_tokens
    device: str = "cpu"

    def allows(self, oracle: str, symptom: str) -> bool:
        """Return whether a finding is permitted."""
        return any(fnmatchcase(f"{oracle}: {symptom}", pattern) for pattern in self.finds)

    @property
    def missable(self) -> bool:
        """Return whether a campaign may report nothing."""
        return not (self.finds and self.must)


def implementation(one: Misbehaviour) -> Implementation:
    """Return the forward of `manual` with the misbehaviour."""

    def forward(x: Tensor, *arguments: Tensor | None, norm_eps: float, hc_eps: float) -> Any:
        spoilt = one.when(x)
        if spoilt:
            one.act()
        assert MANUAL.forward is not None
        outputs = tuple(MANUAL.forward(x, *arguments, norm_eps=norm_eps, hc_eps=hc_eps))
        return one.result(outputs) if spoilt else outputs

    return replace(MANUAL, name=one.name, forward=forward, backward=None, devices=(one.device,), supports=one.supports)
