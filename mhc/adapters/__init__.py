"""Other libraries' kernels: a few files a library, named in `MODULES`. A kernel is `LIBRARY:KERNEL`: `liger:rms_norm`.

In: nothing of these libraries. Their modules are imported at the first call of a kernel. Out: records of implementations.
`liger.py` shows what a file holds: for each kernel a call, the operator that it computes, and what the library refuses.
Some libraries are not installed: their files are loaded from a checkout (`checkout.py`).
"""

import functools
import importlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from mhc.implementation import Implementation, ImplementationError

_MHC = ("flaggems", "megatron", "sglang", "tilekernels", "tilelang", "transformerengine", "vllm")
_CHECKOUTS = (*_MHC, "cce", "mamba", "mlstm", "unsloth", "xformers")
MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "liger": ("liger", "liger_losses", "liger_chunked"),
        "fla": ("fla", "fla_losses"),
        **{one: (one,) for one in _CHECKOUTS},
    }
)


@functools.cache
def kernels(library: str) -> Mapping[str, Implementation]:
    """Return the records of a library's kernels by name; this declares their operators, and does not import the library."""
    modules = [importlib.import_module(f"{__name__}.{one}") for one in MODULES[library]]
    found = [replace(one, origin=one.name) for module in modules for one in module.IMPLEMENTATIONS]
    return MappingProxyType({one.name: one for one in found})


def kernel_named(spec: str) -> Implementation | None:
    """Return the kernel `LIBRARY:KERNEL`, or None for a name of another form.

    Raises:
        ImplementationError: the library has no such kernel; the message lists them.
    """
    library, _, name = spec.partition(":")
    if library not in MODULES or not name:
        return None
    there = kernels(library)
    if spec not in there:
        raise ImplementationError(f"{spec}: {library} has no kernel {name!r} here; it has {', '.join(there)}")
    return there[spec]
