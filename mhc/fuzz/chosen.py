"""The implementations that a command line asks for."""

from collections.abc import Sequence

import click
import torch

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
    loaded: list[tuple[str, Implementation]] = []
    for spec in specs:
        try:
            implementation = load(spec)
        except ImplementationError as error:
            raise click.UsageError(f"--impl {error}") from error
        if device not in implementation.devices:
            devices = ", ".join(implementation.devices)
            raise click.UsageError(f"--impl {spec}: {implementation.name} runs on {devices}, not on {device}")
        if any(other.name == implementation.name for _, other in loaded):
            raise click.UsageError(f"--impl {spec}: another one is named {implementation.name!r} too; names must differ")
        loaded.append((spec, implementation))
    return loaded
