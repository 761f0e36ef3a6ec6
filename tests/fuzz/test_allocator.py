"""The C allocator of workers: freed memory stays for the next tensors, and goes back when it is asked for."""

import multiprocessing
import resource
import sys
from multiprocessing.connection import Connection

import pytest
import torch

from mhc.fuzz.worker.allocator import give_back, keep_freed

_ELEMENTS, _COUNT = 3 << 20, 8  # tensors of 24 MiB in float64


def _faults() -> int:
    """Return the page faults of some tensors that are made, and freed together."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [torch.ones(_ELEMENTS, dtype=torch.float64) for _ in range(_COUNT)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def _measure(connection: Connection) -> None:
    torch.set_num_threads(1)
    keep_freed()
    first, *_, again = [_faults() for _ in range(5)]
    give_back()
    connection.send((first, again, _faults()))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_stays_until_it_is_given_back() -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_measure, args=(there,))
    process.start()
    first, again, after = here.recv()
    process.join()
    pages = _COUNT * 8 * _ELEMENTS // resource.getpagesize()
    assert first > pages / 2
    assert again < pages / 10
    assert after > pages / 2
