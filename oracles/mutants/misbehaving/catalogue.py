"""All misbehaving implementations by name, loaded as `mhc.oracles.mutants.load:NAME`; docs/campaigns.md lists the kinds."""

from collections.abc import Mapping
from types import MappingProxyType

from mhc.oracles.mutants.misbehaving.calls import CALLS
from mhc.oracles.mutants.misbehaving.cuda import CUDA
from mhc.oracles.mutants.misbehaving.processes import PROCESSES
from mhc.oracles.mutants.misbehaving.record import Misbehaviour
from mhc.oracles.mutants.misbehaving.state import STATE

ON_CPU: tuple[Misbehaviour, ...] = CALLS + PROCESSES + STATE
MISBEHAVING: Mapping[str, Misbehaviour] = MappingProxyType({one.name: one for one in ON_CPU + CUDA})

assert len(MISBEHAVING) == len(ON_CPU + CUDA), "two misbehaving implementations have one name"

FILES_KIND = "a file that exits, ends the process, raises, or is no Python, when it is imported"
FILES: Mapping[str, bytes] = MappingProxyType(
    {
        "exits_on_import": b"import sys\n\nsys.exit(0)\n",
        "ends_on_import": b"import os\n\nos._exit(0)\n",
        "raises_on_import": b"raise RuntimeError('not today')\n",
        "raises_unprintable_on_import": b"class Odd(Exception):\n    def __str__(self):\n        raise self\n\nraise Odd\n",
        "no_python": b"def forward(:\n",
        "not_utf_8": b"IMPL = '\xff\xfe'\n",
        "null_bytes": b"IMPL = 1\n\0\0\n",
        "no_name": b"OTHER = 1\n",
        "no_implementation": b"IMPL = 1\n",
    }
)
"""Invalid files for `FILE:IMPL`: the command line reports the error and exits with status 2."""
