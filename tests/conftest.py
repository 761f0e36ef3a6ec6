"""Shared fixtures, Hypothesis profiles (`--hypothesis-profile=nightly` looks further), and the time of generated cases."""

import os
from collections.abc import Iterator

import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    # before anything imports Triton: its kernels run in the interpreter, so that `triton-interpreted` is tested in-process
    os.environ["TRITON_INTERPRET"] = "1"

settings.register_profile("dev", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.register_profile("nightly", settings.get_profile("dev"), max_examples=2000)
settings.load_profile("ci" if settings.get_current_profile_name() == "ci" else "dev")


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
    """How many cases were generated, and where their time went."""
    reports = [one for group in ("passed", "failed") for one in terminalreporter.stats.get(group, [])]
    told = [value for one in reports for name, value in getattr(one, "user_properties", ()) if name == "clock"]
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
