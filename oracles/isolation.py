"""The isolation gate: checks that a NaN in one token leaves the rows of all other tokens unchanged, bit for bit.

It is part of the non-finite contract. The bound gate cannot see a leak where all tokens are finite, or all are NaN. Of an
input that is declared as finite, a large number takes the place of the NaN.
"""

import math
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from mhc.element import element_name, element_value
from mhc.inputs import edited
from mhc.observation import Observation
from mhc.oracles.trial import Gate, Plan, Run, Trial, hash_below, results, same_bits
from mhc.oracles.verdict import Verdict, failed, first, not_applicable, passed

NAME = "isolation"
LABEL = "one token NaN"
LARGE = 1e4
"""In place of NaN; each dtype has it."""


def plan(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run with NaN or `LARGE` in one element of a token of the first floating-point input, and in its saved rows."""
    case, table = trial.case, trial.case.table
    fitting = [spec.name for spec in table.inputs if spec.floating and table.per_token(spec) and case.has(spec.name)]
    lead, count = next(iter(fitting), None), len(case.lead)
    if case.token_count < 2:
        return [not_applicable(NAME, "case", "fewer than two tokens")]
    if lead is None:
        return [not_applicable(NAME, "case", "no floating-point input has a row for each token")]
    tensor = trial.inputs.tensors[lead]
    assert tensor is not None
    shared = any(size > 1 and by == 0 for size, by in zip(tensor.shape[:count], tensor.stride()[:count], strict=True))
    if shared:
        return [not_applicable(NAME, "case", "tokens share their memory")]
    token = tuple(map(int, np.unravel_index(hash_below(case, LABEL, case.token_count), case.lead)))

    spec = table.argument_specs[lead]
    other = spec.nearest(LARGE, case.sizes) if spec.finite else math.nan
    word = f"{other:g}" if spec.finite else "a NaN"

    def spoil(row: Tensor) -> None:
        flat = tuple(hash_below(case, f"{LABEL} {dim}", size) for dim, size in enumerate(row.shape))
        row[flat] = other

    inputs = edited(trial.inputs, {lead: lambda tensor: spoil(tensor[token])})
    saved = {name: tensor.clone() for name, tensor in trial.reference.saved.items()}
    for rows in saved.values():
        rows[token] = math.nan

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        specs = table.result_specs
        verdicts, after = [], results(observed[LABEL])
        for name, before in results(trial.observation).items():
            if not table.per_token(specs[name]):
                continue
            now = after.get(name)
            if before is None or now is None:
                verdicts.append(not_applicable(NAME, name, "not returned"))
                continue
            leaked = ~same_bits(before, now)
            leaked[token] = False
            if leaked.any():
                at = first(leaked)
                change = f"{element_value(before, at)}, and {element_value(now, at)} with {word} in token {list(token)}"
                verdicts.append(failed(NAME, name, "leak", f"{element_name(name, at)} = {change}"))
            else:
                verdicts.append(passed(NAME, name))
        return verdicts

    return Plan(runs=[Run(label=LABEL, inputs=inputs, saved=saved)], judge=judge)


GATE = Gate(name=NAME, plan=plan, every=8)
