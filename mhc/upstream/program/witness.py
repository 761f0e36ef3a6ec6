"""Draw other inputs of a stage, on which a smaller program must give the results of the original one."""

import torch
from torch import Tensor

from mhc.inputs import derived
from mhc.reference import reference
from mhc.upstream.trace.recording import Recording

COUNT = 3


def witnesses(recording: Recording) -> list[dict[str, Tensor]]:
    """Return tensors of the same shapes, dtypes and strides: zeros in the same places, numbers of no more digits elsewhere.

    So a statement that changes nothing for the finding, because something is zero or a rounding is exact, changes nothing
    for them either, and one that happens to change nothing for this one number is kept. None where two runs are compared.
    """
    if recording.verdict is None or recording.verdict.subject not in recording.outputs:
        return []
    made = []
    for seed in range(COUNT):
        generator = torch.Generator().manual_seed(seed)
        drawn = {name: None if one is None else _other(one, generator) for name, one in recording.inputs.tensors.items()}
        inputs = derived(recording.inputs, drawn)
        saved = reference(inputs).saved
        given = {name: saved.get(name, drawn.get(name)) for name in recording.given}
        made.append({name: _strided(one, recording.given[name]) for name, one in given.items() if one is not None})
    return made


def _other(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return random numbers, each with no more digits than the one that it replaces."""
    value = tensor.detach().cpu().double()
    mantissa, exponent = torch.frexp(torch.where(value.isfinite(), value, 0.0))
    whole = (mantissa.abs() * 2.0**53).long()
    digits = 53 - torch.log2((whole & -whole).clamp(min=1).double())  # 1 for a power of two
    drawn = 0.5 + 0.5 * torch.rand(value.shape, generator=generator, dtype=torch.float64)
    rounded = torch.ldexp(torch.floor(torch.ldexp(drawn, digits)), -digits)
    moved = torch.randint(-1, 2, value.shape, generator=generator)
    sign = torch.where(torch.rand(value.shape, generator=generator) < 0.5, -1.0, 1.0)
    other = torch.where(value.isfinite() & (value != 0), sign * torch.ldexp(rounded, exponent + moved), value)
    other = other.to(tensor.dtype)
    return torch.where(other.isfinite() | ~tensor.cpu().isfinite(), other, tensor.cpu()).to(tensor.device)


def _strided(tensor: Tensor, like: Tensor | None) -> Tensor:
    """Return a tensor with the strides of the one that it replaces, in a storage of NaN."""
    if like is None or like.is_contiguous():
        return tensor
    reach = 1 + sum((size - 1) * by for size, by in zip(like.shape, like.stride(), strict=True))
    return tensor.new_full((reach,), torch.nan).as_strided(like.shape, like.stride()).copy_(tensor)
