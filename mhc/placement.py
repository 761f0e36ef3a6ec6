"""Between the host and the device of a run: what an implementation is given goes there, what it did comes back, each once.

Inputs are made and results are judged on the host; the implementation alone runs on its device. For small tensors a wait for
a GPU costs more than what is waited for, and more again where other processes share it: so copies are started together, and
waited for once.
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
        tensors: the inputs, upstream gradients and saved tensors by name, laid out as on the host; an absent one is None.
        memory: for each tensor, the whole allocation that it is a view of.
    """

    tensors: Mapping[str, Tensor | None]
    memory: Mapping[str, Tensor]


def place(inputs: Inputs, saved: Mapping[str, Tensor]) -> Placed:
    """What an implementation is given for `inputs` and the forward's `saved` tensors, on `inputs.device`.

    It is there when this returns: no time of a run is spent on it, on whatever stream the run works.
    """
    originals = {**inputs.storages, **saved}
    memory = {name: whole.to(inputs.device, non_blocking=True, copy=True) for name, whole in originals.items()}
    _wait([inputs.device])
    tensors = {
        name: None if view is None else memory[name].as_strided(view.shape, view.stride(), view.storage_offset())
        for name, view in inputs.tensors.items()
    }
    return Placed(tensors={**tensors, **{name: memory[name] for name in saved}}, memory=memory)


def fetch(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Copies on the host, in memory of their own; those on the host are copied too.

    Raises:
        RuntimeError: the device answers nothing any more.
    """
    there = list(tensors)
    here = [tensor.detach().to("cpu", non_blocking=True, copy=True) for tensor in there]
    _wait([tensor.device for tensor in there])
    return here


def _wait(devices: Iterable[torch.device]) -> None:
    for device in {device for device in devices if device.type == "cuda"}:
        torch.cuda.synchronize(device)
