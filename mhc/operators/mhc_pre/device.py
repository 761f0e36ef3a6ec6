"""What launches of every kind ask of a device."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

_TORCH: Any = torch._C


@dataclass(frozen=True)
class Chip:
    """What a default schedule asks of a device: multiprocessors, bytes of shared memory a program may take, and, where it is
    NVIDIA's, its compute capability times ten."""

    cores: int
    shared: int
    capability: int = 0
    interpreted: bool = False


@cache
def chip(device: int) -> Chip:
    """Return the chip of a device index; -1 is the interpreter on the CPU."""
    if device < 0:
        return Chip(cores=1, shared=1 << 30, interpreted=True)
    properties = torch.cuda.get_device_properties(device)
    shared = getattr(properties, "shared_memory_per_block_optin", 64 << 10)
    nvidia = torch.version.hip is None
    capability = 10 * properties.major + properties.minor if nvidia else 0
    return Chip(cores=properties.multi_processor_count, shared=shared, capability=capability)


def stream_of(device: int) -> int:
    """Return the address of the current stream of a CUDA device, as code of Inductor asks for it: without an object."""
    return int(_TORCH._cuda_getCurrentRawStream(device))
