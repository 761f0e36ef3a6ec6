"""Shared fixtures and Hypothesis profiles. `--hypothesis-profile=nightly` looks further."""

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
