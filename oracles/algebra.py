"""The algebra gate: what must follow from one result for another (metamorphic relations), within the derived tolerance.

A run on moved inputs is judged against the moved reference with the moved tolerance: rounding error analysis knows no order
of tokens or streams, so that no second tolerance has to be derived.
"""

from collections.abc import Mapping

import torch

from mhc.observation import Observation
from oracles.judge import agree
from oracles.relabel import Relabelling
from oracles.trial import Gate, Plan, Trial, pick
from oracles.verdict import Verdict, not_applicable

NAME = "algebra"


def permuted_tokens(trial: Trial) -> Plan | list[Verdict]:
    """Tokens in another order: their rows move along, and the parameter gradients stay."""
    case = trial.case
    if case.N < 2:
        return [not_applicable(NAME, "permuted tokens", "fewer than two tokens")]
    order = torch.randperm(case.N, generator=torch.Generator().manual_seed(pick(case, "tokens", 2**32)))
    move = Relabelling(table=case.table, tokens=order.reshape(case.B, case.S), axes={})

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        return agree(NAME, "permuted tokens", observed["permuted tokens"], move.tolerances(trial))

    return Plan(runs=[move.run("permuted tokens", trial)], judge=judge)


GATE = Gate(name=NAME, plan=permuted_tokens, every=2)
