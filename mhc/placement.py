"""Copies between the host and the device of a run.

Inputs are made and results are judged on the host; only the implementation runs on its device. For small tensors, waiting
for a GPU costs more than the copy itself, and still more on a shared GPU. So copies start together, with one wait for all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.inputs import Inputs


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Copies on a device, each in memory of its own.

    Attributes:
        tensors: inputs, upstream gradients and saved tensors by name, laid out as on the host; absent ones are None.
        memory: the whole allocation of each tensor.
    """

    tensors: Mapping[str, Tensor | None]
    memory: Mapping[str, Tensor]


def place(inputs: Inputs, saved: Mapping[str, Tensor]) -> Placed:
    """Return copies of `inputs` and of the forward's `saved` tensors on `inputs.device`.

    The copies are complete on return, so that no stream of the run waits for them.
    """
    originals = {**inputs.storages, **saved}
    memory = {name: whole.to(inputs.device, non_blocking=True, copy=True) for name, whole in originals.items()}
    _wait([inputs.device])
    tensors = {
        name: None if view is None else memory[name].as_strided(view.shape, view.stride(), view.storage_offset())
        for name, view in inputs.tensors.items()
    }
    return Placed(tensors={**tensors, **{name: memory[name] for name in saved}}, memory=memory)


def rewrite(memory: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy values into allocations on a device, in place; there are values for each, in its shape."""
    for name, allocation in memory.items():
        allocation.copy_(values[name])


def fetch(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return copies on the host in new memory, also of tensors that are on the host.

    Raises:
        RuntimeError: the device is lost.
    """
    there = list(tensors)
    here = [tensor.detach().to("cpu", non_blocking=True, copy=True) for tensor in there]
    _wait([tensor.device for tensor in there])
    return here


def _wait(devices: Iterable[torch.device]) -> None:
    for device in {device for device in devices if device.type == "cuda"}:
        torch.cuda.synchronize(device)
