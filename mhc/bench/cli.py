"""The command line of `python -m mhc.bench`. Exit codes: 0 measured, 1 a kernel raised, 2 usage, 3 fault of the harness."""

import click

from mhc.bench.coverage import coverage
from mhc.bench.detection.cli import detection
from mhc.bench.framework.cli import framework
from mhc.bench.gallery import gallery
from mhc.bench.history import history
from mhc.bench.kernels.cli import kernels
from mhc.bench.kernels.family import family
from mhc.bench.minimal import minimal
from mhc.bench.operators import operators
from mhc.bench.programs.cli import programs
from mhc.bench.repros import repros
from mhc.bench.soak.cli import soak_
from mhc.bench.throughput.cli import throughput
from mhc.bench.verbs import Verbs


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure the kernels on this machine, the oracles on known-bad implementations, or campaigns."""


for _verb in (
    coverage,
    detection,
    family,
    framework,
    gallery,
    history,
    kernels,
    minimal,
    operators,
    programs,
    repros,
    soak_,
    throughput,
):
    main.add_command(_verb)
