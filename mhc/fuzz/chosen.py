"""The implementations that a command line asks for."""

from collections.abc import Sequence

import click
import torch

from mhc.fuzz.messages import Partner
from mhc.implementation import Implementation, ImplementationError
from mhc.registry import built_in, load


def load_all(specs: Sequence[str], device: str) -> list[tuple[str, Implementation]]:
    """The implementations asked for; all built-in ones that run on the device where none is.

    Raises:
        click.UsageError: there is no such device, or one cannot be loaded, or does not run there.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: PyTorch sees no CUDA device here")
    if not specs:
        return [(name, implementation) for name, implementation in built_in().items() if device in implementation.devices]
    return _load("--impl", specs, device)


def load_pairs(
    specs: Sequence[str], against: Sequence[str], device: str
) -> tuple[list[tuple[str, Implementation]], tuple[Partner, ...]]:
    """The implementations asked for, and those that each is compared with; these are left out of "all built-in ones".

    Raises:
        click.UsageError: as for `load_all`, or one is to be compared with itself, or nothing is left to check.
    """
    chosen = load_all(specs, device)
    partners = _load("--against", against, device)
    for spec, partner in partners if specs else ():
        if any(implementation.name == partner.name for _, implementation in chosen):
            raise click.UsageError(
                f"--against {spec}: --impl names {partner.name!r} too, and nothing is compared with itself"
            )
    names = {partner.name for _, partner in partners}
    chosen = [one for one in chosen if one[1].name not in names]
    if not chosen:
        raise click.UsageError(f"--against: no implementation is left to compare with {', '.join(names)}; give --impl")
    return chosen, tuple(Partner.of(spec, implementation) for spec, implementation in partners)


def _load(option: str, specs: Sequence[str], device: str) -> list[tuple[str, Implementation]]:
    loaded: list[tuple[str, Implementation]] = []
    for spec in specs:
        try:
            implementation = load(spec)
        except ImplementationError as error:
            raise click.UsageError(f"{option} {error}") from error
        if device not in implementation.devices:
            devices = ", ".join(implementation.devices)
            raise click.UsageError(f"{option} {spec}: {implementation.name} runs on {devices}, not on {device}")
        if any(other.name == implementation.name for _, other in loaded):
            raise click.UsageError(f"{option} {spec}: another one is named {implementation.name!r} too; names must differ")
        loaded.append((spec, implementation))
    return loaded
