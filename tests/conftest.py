"""`--device`, the tests that are left out by default, Hypothesis profiles, shared fixtures, and the summary of a run."""

import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import settings

import mhc
from tests.support import device, profiles

pytest_plugins = ["mhc.pytest_plugin", "pytester"]
profiles.register()

TIERS = {
    "slow": "compiles for long, needs a cluster, or repeats what a quicker test checks once; with --all, -m slow or the "
    "profile nightly",
    "sanitizer": "under compute-sanitizer, on a GPU; with -m sanitizer",
}
"""The markers of tests that are left out by default: what such a test does, and what runs it."""
LEFT_OUT = pytest.StashKey[Counter[str]]()
"""How many tests of each tier were left out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=device.CHOICES,
        default="auto",
        help="auto: on the CPU what runs there, and on a GPU, where there is one, the rest; cpu: as if there was no GPU; "
        "cuda: on a GPU every implementation that runs there, and no other",
    )
    parser.addoption("--all", action="store_true", help="the slow tests too")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let a worker of xdist that has no tests left take some of another's: most tests take a moment, some take seconds."""
    if config.getoption("numprocesses", None) and config.getoption("dist", "no") == "no":
        config.option.dist = "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    for tier, what in TIERS.items():
        config.addinivalue_line("markers", f"{tier}: {what}")
    config.stash[LEFT_OUT] = Counter[str]()
    # Triton 3.6's interpreter on NumPy 2.3
    config.addinivalue_line("filterwarnings", "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning")
    if Path(mhc.__file__).parents[1] != Path(__file__).parents[1]:
        raise pytest.UsageError(f"mhc is {mhc.__file__}, and not of this checkout: run `python -m pytest` in its folder")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a script started the suite in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    device.settle(config.getoption("device", "auto"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is imported and collected out of later garbage collections: they take a tenth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def chosen_tiers(config: pytest.Config) -> set[str]:
    """Return the tiers that this run includes."""
    everything = config.getoption("--all") or settings.get_current_profile_name() == "nightly"
    return {tier for tier in TIERS if tier in config.getoption("markexpr") or (tier == "slow" and everything)}


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return the device, which implementations are tested on it, which are not and why, and which tests are left out."""
    from mhc.registry import built_in  # noqa: PLC0415  by now jaxtyping checks what is imported

    lines = device.header(
        built_in("mhc_pre").values(), device.ASKED.device, gpu=torch.cuda.is_available(), variables=os.environ
    )
    chosen = chosen_tiers(config)
    return [*lines, *(f"left out: {tier} ({what})" for tier, what in TIERS.items() if tier not in chosen)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the tiers that this run does not include."""
    absent = TIERS.keys() - chosen_tiers(config)
    tiers = {item: {mark.name for mark in item.iter_markers()} & absent for item in items}
    left_out = [item for item in items if tiers[item]]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not tiers[item]]
    config.stash[LEFT_OUT].update(min(tiers[item]) for item in left_out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts of a worker of xdist to the process that writes the summary."""
    if hasattr(session.config, "workeroutput"):
        counts: Counter[str] = session.config.stash[LEFT_OUT]
        session.config.workeroutput["left out"] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the counts of a worker of xdist; each worker collects every test."""
    counts: Counter[str] = node.config.stash[LEFT_OUT]
    counts |= Counter(getattr(node, "workeroutput", {}).get("left out", {}))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """xdist runs a process for each core; PyTorch must not start as many threads in each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Switch jaxtyping's checks off, so that bad input reaches the package's own."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write how many tests were left out, what compute-sanitizer advises, and of generated cases what was not judged, how
    many there were, and where their time went.
    """
    from mhc.fuzz.report.unjudged import summary, unjudged  # noqa: PLC0415  by now jaxtyping checks what is imported

    for tier, count in config.stash[LEFT_OUT].items():
        terminalreporter.write_line(f"left out: {count} {tier} ({TIERS[tier]})")
    reports = [one for group in ("passed", "failed") for one in terminalreporter.stats.get(group, [])]
    properties = [pair for one in reports for pair in getattr(one, "user_properties", ())]
    for name, value in properties:
        if name == "advisory":
            terminalreporter.write_line(f"advisory: {value}")
    became: dict[str, Counter[str]] = {}
    for implementation, counts in (value for name, value in properties if name == "outcomes"):
        became.setdefault(implementation, Counter()).update(counts)
    for implementation, counts in became.items():
        if missing := summary(unjudged(counts)):
            terminalreporter.write_line(f"not judged: {implementation}: {missing}")
    clocks = [value for name, value in properties if name == "clock"]
    if not clocks:
        return
    count, running, reference, checking, drawing = (sum(column) for column in zip(*clocks, strict=True))
    whole = checking + drawing
    shares = {
        "implementations": running,
        "reference": reference,
        "inputs and judging": checking - running - reference,
        "drawing": drawing,
    }
    split = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in shares.items())
    terminalreporter.write_line(f"{count} generated cases in {whole:.0f} s: {split}")
