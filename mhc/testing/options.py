"""What the command line of pytest says of a test, or else the test itself."""

from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
import torch

from mhc.implementation import Implementation
from mhc.pytest_plugin import running


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one test.

    Attributes:
        device: that of --mhc-device; empty without it.
        folder: of fixtures; None if nothing is saved. root: the folder that stored names of files start from.
        here: the folder that pytest was started in: printed commands work there.
    """

    cases: int
    seed: int | str
    device: str
    folder: Path | None
    root: Path
    here: Path

    @classmethod
    def of(cls, cases: int | None, seed: int, folder: Path | None) -> "Options":
        """Return the options of the test that runs; `cases`, `seed` and `folder` are the test's own."""
        usual = hypothesis.settings().max_examples if cases is None else cases
        item = running()
        if item is None:
            return cls(cases=usual, seed=seed, device="", folder=folder, root=Path.cwd(), here=Path.cwd())
        config = item.config
        here, chosen = config.invocation_params.dir, config.getoption("--mhc-regressions")
        below = config.rootpath / config.getini("mhc_regressions") if chosen is None else here / chosen
        return cls(
            cases=config.getoption("--mhc-cases") or usual,
            seed=_seed(config.getoption("--hypothesis-seed", None), seed),
            device=config.getoption("--mhc-device") or "",
            folder=folder or below,
            root=config.rootpath,
            here=here,
        )


def _seed(asked: str | None, otherwise: int) -> int | str:
    """Return the seed of the command line, which Hypothesis takes as a number if it is one."""
    if asked is None:
        return otherwise
    return int(asked) if asked.isdecimal() else asked


def place(implementation: Implementation, device: str, options: Options) -> str:
    """Return the device to run on; skip the test if the implementation does not run there, or the device is not there."""
    __tracebackhide__ = True
    name, devices = implementation.name, implementation.devices
    wanted = options.device or device
    if wanted and wanted not in devices:
        raise _skipped(f"{name} runs on {', '.join(devices)}, not on {wanted}")
    there = [one for one in devices if one == "cpu" or torch.cuda.is_available()]
    if (wanted or "cuda") in there or (there and not wanted):
        return wanted or there[0]
    if options.device:
        pytest.fail(f"--mhc-device {options.device}: PyTorch sees no CUDA device here", pytrace=False)
    raise _skipped(f"{name} runs on cuda, and PyTorch sees no CUDA device here")


def _skipped(reason: str) -> BaseException:
    """Return the exception that skips a test, whose line the summary then shows instead of one of this file."""
    return pytest.skip.Exception(reason, _use_item_location=True)
