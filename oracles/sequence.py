"""The sequence gate: checks that what a kernel keeps from call to call makes no later result wrong.

A kernel may keep a program that was compiled for the first shape, or a buffer of an earlier size. If it finds what it keeps
by too few of the sizes, or not by the dtype, the scalars or the values, the first case of a process is right and the next
one wrong. Or it keeps something computed from a tensor and finds it by the tensor's address or object, which stay the same
when the tensor is rewritten in place. Or its backward reads what the last forward left behind, which may be of other
values. One check of one case shows each of these, so that a fresh process reproduces it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from mhc.case import Case, default_case
from mhc.inputs import Inputs, materialise
from mhc.observation import Observation
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.judge import agree
from mhc.oracles.tolerances import tolerances
from mhc.oracles.trial import Gate, Plan, Run, Trial, hash_below, same_bits
from mhc.oracles.verdict import Status, Verdict, not_applicable
from mhc.reference import reference

NAME = "sequence"
OTHERS = "wrong after others"
"""The symptom of a run of another case; all other verdicts are of the case itself."""
STALE = "stale inputs"
_SEEDLESS = not_applicable(NAME, "case", "its values do not depend on a seed")
SIZES, DTYPE, SCALARS, VALUES = "other sizes", "another dtype", "other scalars", "other values"
REWRITTEN = "rewritten inputs"


def of_other_sizes(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run with other sizes, and then one with the same inputs as the first."""
    case = other_sizes(trial.case)
    if case.shape == trial.case.shape:
        return [not_applicable(NAME, "case", "no axis has another size")]
    return _between(trial, SIZES, materialise(case, trial.inputs.device))


def of_another_dtype(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run with the same sizes in another dtype, and then one with the same inputs as the first."""
    case = another_dtype(trial.case, trial.dtypes)
    if case is None:
        return [not_applicable(NAME, "case", "its tensors have one dtype in all cases")]
    return _between(trial, DTYPE, materialise(case, trial.inputs.device))


def of_other_scalars(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run with the same sizes and other scalars, and then one with the same inputs as the first."""
    case = other_scalars(trial.case)
    if case is None:
        return [not_applicable(NAME, "case", "no scalar has another value")]
    return _between(trial, SCALARS, materialise(case, trial.inputs.device))


def of_other_values(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run with the values of other seeds in tensors of their own, and then one with the same inputs as the first."""
    inputs = _of_other_seeds(trial)
    return _between(trial, VALUES, inputs) if inputs is not None else [_SEEDLESS]


def _of_other_seeds(trial: Trial) -> Inputs | None:
    """Return the tensors of the case with the values of other seeds; None where these have the same values."""
    seeds = {name: replace(one, seed=(one.seed + 1) % 2**64) for name, one in trial.case.tensors.items()}
    inputs = materialise(replace(trial.case, tensors=seeds), trial.inputs.device)
    same = all(bool(same_bits(one, trial.inputs.storages[name]).all()) for name, one in inputs.storages.items())
    return None if same else inputs


def _between(trial: Trial, how: str, inputs: Inputs) -> Plan:
    """Plan a run of another case, and then one with the same inputs as the first."""
    label, again = f"{how}, {inputs.case.id}", f"again after {how}"
    wanted = reference(inputs)

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        allowed = tolerances(inputs, wanted, declared=trial.declared)
        others = agree(NAME, OTHERS, observed[label], allowed)
        stale = _stale(trial, inputs.case, observed[label]) if how == VALUES and _fails(others) else None
        if stale is None:
            others = _told(others, f" (run: {label})", other=inputs.case)
        else:
            why = f", as if {stale} had its values of the call before (run: {how})"
            others = _told(agree(NAME, STALE, observed[label], allowed), why)
        return [*others, *agree(NAME, "changed by others", observed[again], trial.allowed, first=trial.observation)]

    same = Run(label=again, inputs=trial.inputs, saved=trial.reference.saved)
    return Plan(runs=[Run(label=label, inputs=inputs, saved=wanted.saved), same], judge=judge)


def _stale(trial: Trial, case: Case, observation: Observation) -> str | None:
    """Return the tensor that a run of another case seems to have had from the first run: with it the results are right."""
    for name, recipe in trial.case.tensors.items():
        mixed = materialise(replace(case, tensors={**case.tensors, name: recipe}), trial.inputs.device)
        allowed = tolerances(mixed, reference(mixed), declared=trial.declared)
        if not _fails(agree(NAME, STALE, observation, allowed)):
            return name
    return None


def _fails(verdicts: Sequence[Verdict]) -> bool:
    return any(one.status is Status.FAIL for one in verdicts)


def _told(verdicts: Sequence[Verdict], why: str, other: Case | None = None) -> list[Verdict]:
    """Return the verdicts; those that fail with more in their message, and with the other case that they are about."""
    return [
        replace(one, message=f"{one.message}{why}", other=other) if one.status is Status.FAIL else one for one in verdicts
    ]


def another_dtype(case: Case, dtypes: Sequence[str]) -> Case | None:
    """Return a case with plain values, of the same sizes in another dtype; None where its tensors have one in all cases.

    Args:
        dtypes: of cases that the implementation takes.
    """

    def held(dtype: str) -> list[torch.dtype]:
        return [spec.dtype(STORAGE_DTYPES[dtype]) for spec in case.table.drawn]

    others = [dtype for dtype in dtypes if held(dtype) != held(case.dtype)]
    if not others:
        return None
    sizes = {name: case.sizes[name] for name in case.axes}
    return _plain(case, dtype=others[hash_below(case, DTYPE, len(others))], **sizes)


def other_scalars(case: Case) -> Case | None:
    """Return a case with plain values, of the same sizes, in which scalars have their next choice; None where none has.

    Of several a hash of the case decides which ones stay, but not all: a cache may be found by some of them alone.
    """
    scalars = dict(case.scalars)
    for name, choices in case.table.scalar_choices.items():
        at = choices.index(scalars[name]) if scalars[name] in choices else -1
        scalars[name] = choices[(at + 1) % len(choices)]
    changed = [name for name, value in scalars.items() if value != case.scalars[name]]
    if not changed:
        return None
    staying = hash_below(case, SCALARS, 2 ** len(changed) - 1)
    scalars |= {name: case.scalars[name] for at, name in enumerate(changed) if staying >> at & 1}
    return _plain(case, dtype=case.dtype, scalars=scalars, **{name: case.sizes[name] for name in case.axes})


def other_sizes(case: Case) -> Case:
    """Return a case with plain values and with every axis smaller, or each larger by one: a hash of the case decides.

    Where an operator has tokens and streams, only their number changes: the other sizes may be compiled into a program.
    """
    table = case.table
    names = case.axes if table.function is not None else table.tokens
    grows = hash_below(case, NAME, 2)
    sizes = {name: case.sizes[name] for name in case.axes}
    for name in names:
        axis, size = table.axis(name), case.sizes[name]
        fewer = size - axis.least
        if grows or not fewer:
            sizes[name] = min(axis.most, size + 1)
        else:
            sizes[name] = size - 1 - hash_below(case, name, fewer)
    if table.problem(sizes) is not None:
        return case
    return _plain(case, dtype=case.dtype, **sizes)


def _plain(case: Case, **others: Any) -> Case:
    """Return a case with plain values, and with the optional tensors, schedules and, if not given, the scalars of `case`."""
    absent = frozenset(spec.name for spec in case.table.drawn if not case.has(spec.name))
    plain = default_case(operator=case.operator, absent=absent, **{"scalars": case.scalars, **others})
    return replace(plain, schedules=case.schedules)


def rewritten(trial: Trial) -> Plan | list[Verdict]:
    """Plan a run whose tensors had the values of other seeds in a call before, and between its forward and its backward."""
    inputs = _of_other_seeds(trial)
    if inputs is None:
        return [_SEEDLESS]
    # the reference runs also where nothing is saved: it is to blame, and not the kernel, if it does not take these values
    before = {**inputs.storages, **reference(inputs).saved}
    run = Run(label=REWRITTEN, inputs=trial.inputs, saved=trial.reference.saved, before=before)

    def judge(observed: Mapping[str, Observation]) -> list[Verdict]:
        return agree(NAME, STALE, observed[REWRITTEN], trial.allowed, first=trial.observation)

    return Plan(runs=[run], judge=judge)


GATES = (
    Gate(name=NAME, variant=REWRITTEN, plan=rewritten, every=32),
    # last: what another case leaves behind changes all later runs
    Gate(name=NAME, variant=DTYPE, plan=of_another_dtype, every=64),
    Gate(name=NAME, variant=SCALARS, plan=of_other_scalars, every=64),
    Gate(name=NAME, variant=VALUES, plan=of_other_values, every=64),
    Gate(name=NAME, plan=of_other_sizes, every=64),
)
