"""Loads the implementations that a command line names."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
import torch

from mhc.case import Case
from mhc.fuzz.check.differential import Peer
from mhc.implementation import Implementation, ImplementationError
from mhc.operator import DEFAULT
from mhc.programs.targets import DSLS, TARGETS, ProgramTarget, target_named
from mhc.registry import Tested, built_in, load, load_every


def load_all(
    specs: Sequence[str], device: str, asked_by: str = "--impl", *, here: bool = True, operator: str = DEFAULT
) -> list[tuple[str, Implementation]]:
    """Return the implementations named; without a name, all built-in ones of the operator that run on the device here.

    Args:
        asked_by: the option or file that messages name. here: whether they run on this machine.

    Raises:
        click.UsageError: there is no such device, or one cannot be loaded, or does not run there, or is not available here.
    """
    if here:
        _require_device(device, specs)
    if not specs:
        absent = not_available(device, operator) if here else {}
        return [(name, one) for name, one in built_in(operator).items() if device in one.devices and name not in absent]
    return _load(asked_by, "--impl", specs, device, here=here)


def not_available(device: str, operator: str = DEFAULT) -> dict[str, str]:
    """Return the built-in implementations of an operator that lack something here, with what to install, by name."""
    reasons = {name: one.unavailable() for name, one in built_in(operator).items() if device in one.devices}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def require_available(asked_by: str, spec: str, one: Tested) -> None:
    """Refuse what cannot run in this environment.

    Raises:
        click.UsageError: it cannot; the message says what to install.
    """
    reason = one.unavailable()
    if reason is not None:
        raise click.UsageError(f"{asked_by} {spec}: not available: {reason}")


def load_pairs(
    specs: Sequence[str],
    against: Sequence[str],
    device: str,
    asked_by: str = "--impl",
    *,
    here: bool = True,
    operator: str = DEFAULT,
    compared_by: str = "--against",
) -> tuple[list[tuple[str, Implementation]], tuple[Peer, ...]]:
    """Return the implementations named, and their peers, which are left out of "all built-in ones".

    Args:
        asked_by, here, operator: as for `load_all`. compared_by: the option or file that names `against`.

    Raises:
        click.UsageError: as for `load_all`, or one is to be compared with itself or with one of another operator, or nothing
            is left to check.
    """
    chosen = load_all(specs, device, asked_by, here=here, operator=operator)
    peers = _load(compared_by, "--against", against, device, here=here)
    for spec, peer in peers if specs else ():
        if any(implementation.name == peer.name for _, implementation in chosen):
            raise click.UsageError(
                f"{compared_by} {spec}: {asked_by} names {peer.name!r} too, and nothing is compared with itself"
            )
    for spec, peer in peers:
        for _, one in chosen:
            if one.operator != peer.operator:
                others = f"{one.name} computes {one.operator}, {peer.name} {peer.operator}"
                raise click.UsageError(f"{compared_by} {spec}: only implementations of one operator are compared; {others}")
    names = {peer.name for _, peer in peers}
    chosen = [one for one in chosen if one[1].name not in names]
    if not chosen:
        raise click.UsageError(f"{compared_by}: no implementation is left to compare with {', '.join(names)}; give --impl")
    return chosen, tuple(Peer.of(spec, implementation) for spec, implementation in peers)


def require_operator(path: Path, case: Case, implementation: Implementation) -> None:
    """Refuse an implementation that computes another operator than a file's case is of.

    Raises:
        click.UsageError: it does.
    """
    if implementation.operator != case.operator:
        other = f"{implementation.name} computes {implementation.operator}"
        raise click.UsageError(f"{path} is a case of {case.operator}; {other}")


def load_targets(specs: Sequence[str], device: str | None = None, *, here: bool = True) -> list[tuple[str, ProgramTarget]]:
    """Return the targets of programs that are named; where only a DSL is named, those that run its programs on the device.

    Args:
        device: None: the CPU where only a DSL is named, else any. here: whether they run on this machine.

    Raises:
        click.UsageError: there is no such target, it is not available here, or it does not run on the device.
    """
    if here:
        _require_device(device)
    runs = {name: one.dsl for name, one in TARGETS.items() if one.devices == (device or "cpu",)}
    wanted: list[str] = []
    for spec in specs:
        dsl, at, site = spec.partition("@")
        wanted += [f"{name}{at}{site}" for name, ran in runs.items() if ran == dsl] or [spec]
    found: list[tuple[str, ProgramTarget]] = []
    for spec in dict.fromkeys(wanted):
        try:
            target = target_named(spec)
        except ValueError as error:
            raise click.UsageError(f"--programs {error}") from error
        if target is None:
            raise click.UsageError(f"--programs {spec}: must be one of {', '.join((*DSLS, *TARGETS))}, or NAME@SITE")
        require_available("--programs", spec, target)
        if device is not None and device not in target.devices:
            raise click.UsageError(
                f"--programs {spec}: runs on {', '.join(target.devices)}: give --device {target.devices[0]}"
            )
        found.append((spec, target))
    return found


def elsewhere(implementation: Tested, device: str, option: str = "--impl") -> str:
    """Return what a message adds about another device: the same source that runs there, and what to declare; or nothing."""
    if isinstance(implementation, ProgramTarget):
        return ""
    source = implementation.forward, implementation.backward
    others = [one for one in built_in().values() if device in one.devices and (one.forward, one.backward) == source]
    hints = [
        f"{one.name} is the same source and runs on {device}: give {option} {one.name}"
        for one in others
        if one.name != implementation.name
    ]
    if device == "cpu" and "cuda" in implementation.devices and torch.cuda.is_available():
        hints.append("for the GPU give --device cuda")
    if implementation.origin != "built in" and device not in implementation.devices:
        hints.append(f'where it does, name "{device}" in devices of its record')
    return "".join(f"; {one}" for one in hints)


def _require_device(device: str | None, specs: Sequence[str] = ()) -> None:
    """Refuse a device that is not here, with a hint where one of `specs` runs on the CPU.

    Raises:
        click.UsageError: there is none.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError(f"--device cuda: PyTorch sees no CUDA device here{_without_a_gpu(specs)}")


def _without_a_gpu(specs: Sequence[str]) -> str:
    """Return the same for all `specs`, where there is only the CPU."""
    hints = ""
    for spec in specs:
        with suppress(ImplementationError):
            hints += elsewhere(load(spec), "cpu")
    return f"{hints} without --device" if hints else ""


def _load(asked_by: str, option: str, specs: Sequence[str], device: str, *, here: bool) -> list[tuple[str, Implementation]]:
    """Return the implementations named; of a file without a name those that run on the device, if any does."""
    loaded: list[tuple[str, Implementation]] = []
    wanted: list[tuple[str, Implementation]] = []
    for spec in specs:
        try:
            every = load_every(spec)
        except ImplementationError as error:
            raise click.UsageError(f"{asked_by} {error}") from error
        wanted += [one for one in every if device in one[1].devices] or every
    for spec, implementation in wanted:
        if here:
            require_available(asked_by, spec, implementation)
        if device not in implementation.devices:
            devices = ", ".join(implementation.devices)
            problem = f"{implementation.name} runs on {devices}, not on {device}"
            raise click.UsageError(f"{asked_by} {spec}: {problem}{elsewhere(implementation, device, option)}")
        if any(other.name == implementation.name for _, other in loaded):
            raise click.UsageError(f"{asked_by} {spec}: another one is named {implementation.name!r} too; names must differ")
        loaded.append((spec, implementation))
    return loaded
