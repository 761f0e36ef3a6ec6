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
    memory = {name: _copy(whole, inputs.device) for name, whole in originals.items()}
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


def fetch(tensors: Iterable[Tensor], compared: Iterable[Tensor] = ()) -> list[Tensor]:
    """Return copies on the host in new memory, also of tensors that are on the host.

    Args:
        compared: further tensors, which are only looked at before anything else runs: not copied where they are on the host.

    Raises:
        RuntimeError: the device is lost.
    """
    there, others = list(tensors), list(compared)
    here = [_copy(tensor.detach(), _HOST) for tensor in there]
    here += [tensor.detach() if tensor.is_cpu else _copy(tensor.detach(), _HOST) for tensor in others]
    _wait([tensor.device for tensor in (*there, *others) if not tensor.is_cpu])
    return here


_HOST = torch.device("cpu")


def _copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a tensor on a device; it may not be complete before `_wait`."""
    if type(tensor) is Tensor and tensor.is_cpu and device.type == "cpu":
        return tensor.clone()  # half the time of `to`
    return tensor.to(device, non_blocking=True, copy=True)


def _wait(devices: Iterable[torch.device]) -> None:
    for device in {device for device in devices if device.type == "cuda"}:
        torch.cuda.synchronize(device)
