"""Misbehaviour towards a GPU."""

from functools import partial

import torch

from mhc.oracles.mutants.misbehaving.record import Misbehaviour

ASSERTS = "fails an assertion on the device, which shows only when something waits for it"
WRITES = "writes to memory of the device that is not its own"
HANGS = "launches a kernel that never ends"
MEMORY = "leaks memory of the device, or asks for more than there is"

ABORTS = "liveness: SIGABRT"
"""The symptom where PyTorch aborts as it frees memory of a lost device."""

_KEPT: list[torch.Tensor] = []
_FAR = 1 << 40  # bytes from a tensor, past all that a device has


def _index() -> None:
    torch.zeros(2, device="cuda")[torch.tensor([5], device="cuda")]


def _assert() -> None:
    torch._assert_async(torch.zeros((), device="cuda"))


class _Far:
    """Claims 4 TiB of floats where one is."""

    def __init__(self, one: torch.Tensor) -> None:
        self.__cuda_array_interface__ = {
            "shape": (_FAR,), "typestr": "<f4", "data": (one.data_ptr(), False), "version": 2
        }  # fmt: skip


def _write_far() -> None:
    one = torch.zeros(1, device="cuda")
    torch.as_tensor(_Far(one), device="cuda")[_FAR - 1].fill_(1.0)


def _spin() -> None:
    torch.cuda._sleep(1 << 50)  # type: ignore[no-untyped-call]  # cycles: days


def _leak() -> None:
    _KEPT.append(torch.ones(1 << 28, device="cuda"))  # 1 GiB


def _ask_for_too_much() -> None:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")


_on_cuda = partial(Misbehaviour, device="cuda")

CUDA = (
    _on_cuda(name="cuda_index", kind=ASSERTS, finds=("liveness: kernel crash", ABORTS), act=_index),
    _on_cuda(name="cuda_assert", kind=ASSERTS, finds=("liveness: kernel crash", ABORTS), act=_assert),
    _on_cuda(name="cuda_writes_far", kind=WRITES, finds=("liveness: illegal address", ABORTS), act=_write_far),
    _on_cuda(name="cuda_spins", kind=HANGS, finds=("liveness: hang",), act=_spin),
    _on_cuda(name="cuda_leaks", kind=MEMORY, finds=("liveness: out of memory",), act=_leak, faults=True),
    _on_cuda(name="cuda_asks_for_too_much", kind=MEMORY, finds=("liveness: out of memory",), act=_ask_for_too_much),
)
