"""What a misbehaving implementation is: right, but for what it does to its process or returns where a condition holds."""

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
    """Whether any case will do."""
    del x
    return True


def many_tokens(x: Tensor) -> bool:
    """Whether there are more than four tokens: about half of all cases."""
    return x.shape[0] * x.shape[1] > 4


def odd_width(x: Tensor) -> bool:
    """Whether D is odd: a minority, and none of the first ten cases of a campaign."""
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
    """One implementation, and what a campaign has to say of it.

    Attributes:
        name: unique, a Python identifier.
        kind: what it does, in the words of the table in docs/campaigns.md.
        finds: the findings that may be told of it, as patterns of `oracle: symptom`; empty: none, the campaign goes on.
        must: one of them must be told; else nothing may be.
        faults: a fault of the harness may be told as well: it breaks what the harness needs in its process.
        act: called before the forward. result: what is returned for the forward's right outputs. supports: as in
            `Implementation`, but free to answer anything.
        when: the cases on which `act` and `result` take part.
        device: what it runs on, "cpu" or "cuda".
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
        """Whether a finding is a right one."""
        return any(fnmatchcase(f"{oracle}: {symptom}", pattern) for pattern in self.finds)

    @property
    def missable(self) -> bool:
        """Whether a campaign may say nothing of it."""
        return not (self.finds and self.must)


def implementation(one: Misbehaviour) -> Implementation:
    """The forward of `manual`, which misbehaves."""

    def forward(x: Tensor, *arguments: Tensor | None, norm_eps: float, hc_eps: float) -> Any:
        spoilt = one.when(x)
        if spoilt:
            one.act()
        assert MANUAL.forward is not None
        outputs = tuple(MANUAL.forward(x, *arguments, norm_eps=norm_eps, hc_eps=hc_eps))
        return one.result(outputs) if spoilt else outputs

    return replace(MANUAL, name=one.name, forward=forward, backward=None, devices=(one.device,), supports=one.supports)
