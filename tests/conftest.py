"""`--device`, the tier of compute-sanitizer, Hypothesis profiles, shared fixtures, and what the terminal says of them."""

import os
from collections import Counter
from collections.abc import Iterator

import jaxtyping
import pytest
import torch

from tests.support import device, profiles

profiles.register()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=device.CHOICES,
        default="auto",
        help="auto: on the CPU what runs there, and on a GPU, where there is one, the rest; cpu: as if there was no GPU; "
        "cuda: on a GPU every implementation that runs there, and no other",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """With xdist, a worker that has nothing left takes tests of another: some compile for a minute, most take a moment."""
    if config.getoption("numprocesses", None) and config.getoption("dist", "no") == "no":
        config.option.dist = "worksteal"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sanitizer: under compute-sanitizer, on a GPU; only with -m sanitizer")
    # Triton 3.6's interpreter on NumPy 2.3
    config.addinivalue_line("filterwarnings", "ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning")
    device.settle(config.getoption("device", "auto"))


def pytest_report_header() -> list[str]:
    """The device, and which implementations are tested on it, which are not and why."""
    from mhc.registry import BUILT_IN  # noqa: PLC0415  by now jaxtyping checks what is imported

    return [
        *device.header(BUILT_IN, device.ASKED.device, gpu=torch.cuda.is_available(), variables=os.environ),
        "compute-sanitizer: only with -m sanitizer",
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tier of compute-sanitizer, which takes minutes and a GPU, unless -m names it."""
    if "sanitizer" in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("sanitizer") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What compute-sanitizer advises; of generated cases what was not judged, how many, and where their time went."""
    from mhc.fuzz.report.unjudged import summary, unjudged  # noqa: PLC0415  by now jaxtyping checks what is imported

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
    told = [value for name, value in properties if name == "clock"]
    if not told:
        return
    count, running, reference, checking, drawing = (sum(column) for column in zip(*told, strict=True))
    whole = checking + drawing
    shares = {
        "implementations": running,
        "reference": reference,
        "inputs and judging": checking - running - reference,
        "drawing": drawing,
    }
    split = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in shares.items())
    terminalreporter.write_line(f"{count} generated cases in {whole:.0f} s: {split}")
