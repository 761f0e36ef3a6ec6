"""Device time, host time and memory of any call, on the current CUDA device."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Call = Callable[[], Sequence[Tensor | None]]

WARMUP_MS = 25
REPEAT_MS = 100
# A launch queue holds about a thousand kernels and then blocks the caller: this many calls of some sixty stay below.
_BATCH = 10
_BATCHES = 1000
_HOST_SECONDS = 0.06  # as a rule what ends a block of them
_BLOCKS = 5  # other work on the host makes a block slower, never faster


def milliseconds(call: Call) -> float:
    """Return the median device time of a call by `triton.testing.do_bench`, which flushes the L2 cache before each call."""
    from triton.testing import do_bench  # noqa: PLC0415  Triton is imported where it is used

    return float(do_bench(call, warmup=WARMUP_MS, rep=REPEAT_MS, return_mode="median"))


def host_us(
    call: Call,
    *,
    synchronize: Callable[[], object] = torch.cuda.synchronize,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the CPU microseconds to issue a call: the median over batches, the device's queue drained between them.

    Of several blocks of batches the quickest, as `timeit` does it.
    """
    call()
    medians = []
    for _ in range(_BLOCKS):
        batches: list[float] = []
        begun = clock()
        while len(batches) < _BATCHES and (len(batches) < 5 or clock() - begun < _HOST_SECONDS):
            synchronize()
            start = clock()
            for _ in range(_BATCH):
                call()
            batches.append((clock() - start) / _BATCH)
        synchronize()
        medians.append(statistics.median(batches))
    return min(medians) * 1e6


def scratch_mib(call: Call, *, memory: Any = torch.cuda) -> float:
    """Return MiB at the peak of a call beyond what was allocated before it and the tensors that it returns."""
    memory.synchronize()
    memory.reset_peak_memory_stats()
    before = memory.memory_allocated()
    results = call()
    memory.synchronize()
    returned = sum(tensor.numel() * tensor.element_size() for tensor in results if tensor is not None)
    return float(memory.max_memory_allocated() - before - returned) / 2**20


def free_bytes() -> float:
    """Return what can still be allocated."""
    gc.collect()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    return float(free)
