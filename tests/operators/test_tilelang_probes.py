"""Each probe of TileLang gives what its record says, each step in a process of its own; a changed outcome fails.

The programs are in tests/probes/, one for each question; `python tests/probes/NAME.py` runs one by hand.
"""

import inspect
import os
import re
from pathlib import Path

import pytest

from tests.probes.isolated import Results, isolated
from tests.probes.outcomes import Probe
from tests.probes.records import PROBES
from tests.probes.runner import describe

FOLDER = Path(__file__).parents[1] / "probes"
MACHINERY = {"__init__", "isolated", "limits", "notes", "outcomes", "records", "runner", "table"}


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Results:
    """The outcome of every step of every probe, run once for the whole suite."""
    steps = [(str(FOLDER / f"{probe.name}.py"), step) for probe in PROBES for step in probe.steps]
    environments = {str(FOLDER / f"{probe.name}.py"): dict(probe.environment) for probe in PROBES}
    return isolated("probes", steps, environments, tmp_path_factory, testrun_uid)


@pytest.mark.slow
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_outcome(probe: Probe, results: Results) -> None:
    path = FOLDER / f"{probe.name}.py"
    got = {step: results[str(path), step] for step in probe.steps}
    changed = [
        f"{probe.name}.{step}\n  wanted {wanted}\n  got    {describe(got[step])}"
        for step, wanted in probe.steps.items()
        if got[step]["kind"] != "absent" and not wanted.fits(got[step])
    ]
    assert not changed, "\n".join([*changed, f"python {os.path.relpath(path)}"])
    absent = [f"{step}: {outcome['text']}" for step, outcome in got.items() if outcome["kind"] == "absent"]
    if absent:
        pytest.skip("; ".join(absent))


def test_every_program_has_a_record_and_every_step_is_recorded() -> None:
    files = {path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("triton_")}
    assert files - MACHINERY == {probe.name for probe in PROBES}
    assert len({probe.name for probe in PROBES}) == len(PROBES)
    for probe in PROBES:
        source = (FOLDER / f"{probe.name}.py").read_text()
        assert re.findall(r"^def (\w+)\(\):", source, re.MULTILINE) == list(probe.steps), probe.name


def test_every_failure_says_what_to_write_instead() -> None:
    for probe in PROBES:
        assert probe.reproduces == "no" or any(step.startswith("instead") for step in probe.steps), probe.name
        for text in (probe.reported, probe.why, probe.instead):
            assert text == inspect.cleandoc(text)
            assert text, probe.name
