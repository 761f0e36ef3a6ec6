"""The program of a finding of each gate: it fails by itself as the gate says, and no more once the fault is mended."""

from pathlib import Path

import pytest

from mhc import default_case, load
from mhc.case import with_tensor
from mhc.fuzz.check.check import check
from mhc.upstream.diagnose.neighbours import depth_of
from mhc.upstream.program.program import make
from mhc.upstream.trace.scene import scene
from mhc.upstream.verify import ExportError, run
from tests.support.exports import SELDOM, faulty, finding, repro

CASE = with_tensor(default_case(S=2, dtype="float32", absent=frozenset({"gamma"})), "x", kind="normal")


@pytest.mark.parametrize(
    ("name", "subject", "oracle", "symptom", "mended", "says"),
    [
        pytest.param("LEAKS", "inv_rms", "isolation", "leak", ("tl.sum(v * 0.0)", "0.0"), "inv_rms[0, ", marks=SELDOM),
        pytest.param("OVERRUNS", "inv_rms", "memory", "overrun", ("t < 3", "t < 2"), "0 elements after out: ", marks=SELDOM),
        pytest.param("WRITES", "inputs", "memory", "written", ("v + 1.0", "v"), "x[0, 0, 0, 0]: ", marks=SELDOM),
        pytest.param(
            "STALE", "inv_rms", "memory", "uninitialised", ("1.0, 2.0)", "1.0, 1.0)"), "inv_rms[0, 0]: ", marks=SELDOM
        ),
        pytest.param("CRASHES", "process", "liveness", "SIGSEGV", ("<< 44", "<< 0"), "actual SIGSEGV", marks=SELDOM),
        pytest.param(
            "ASSERTS",
            "forward",
            "liveness",
            "raises InterpreterError",
            ("static_assert(False", "static_assert(True"),
            "actual AssertionError",
            marks=SELDOM,
        ),
    ],
)
def test_kernels(
    name: str, subject: str, oracle: str, symptom: str, mended: tuple[str, str], says: str, tmp_path: Path
) -> None:
    found = finding(faulty(tmp_path, name), subject, oracle, symptom, CASE)
    made = make(found, "triton", "cpu", "cut")
    assert "mhc" not in made.text
    outcome = run(repro(tmp_path, made.text))
    assert outcome.reproduced, outcome.output
    assert says in outcome.values
    assert mended[0] in made.text
    healed = run(repro(tmp_path, made.text.replace(*mended)))
    assert healed.healed, healed.output


@SELDOM
def test_a_kernel_that_does_not_end_has_a_program_with_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhc.upstream.program.program.HANGS", 3.0)
    made = make(finding(faulty(tmp_path, "HANGS"), "process", "liveness", "hang", CASE), "triton", "cpu", "cut")
    assert "process.wait(20)" in made.text
    outcome = run(repro(tmp_path, made.text.replace("process.wait(20)", "process.wait(3)")))
    assert outcome.reproduced, outcome.output
    assert outcome.values == "process: expected exit 0, actual hang"


@SELDOM
@pytest.mark.parametrize(
    ("name", "subject", "oracle", "symptom", "mended"),
    [
        ("DIFFERS", "h_in", "determinism", "differs", ("torch.rand(())", "1.0")),
        ("DEAD", "process", "liveness", "exit 7", ("os._exit(7)", "pass")),
    ],
)
def test_host_code(name: str, subject: str, oracle: str, symptom: str, mended: tuple[str, str], tmp_path: Path) -> None:
    found = finding(faulty(tmp_path, name), subject, oracle, symptom, CASE)
    with pytest.raises(ExportError):
        make(found, "triton", "cpu", "cut")
    text = make(found, "torch", "cpu", "host").text
    outcome = run(repro(tmp_path, text))
    assert outcome.reproduced, outcome.output
    healed = run(repro(tmp_path, text.replace(*mended)))
    assert healed.healed, healed.output


def test_what_ends_otherwise_than_it_was_found_is_refused(tmp_path: Path) -> None:
    found = finding(faulty(tmp_path, "DEAD"), "process", "liveness", "SIGSEGV", CASE)
    with pytest.raises(ExportError, match="ends otherwise while it is recorded: exit 7"):
        make(found, "torch", "cpu", "host")


WRITES_PHI = """
from dataclasses import replace
from mhc import load

healthy = load("manual")

def forward(x, phi, *args, **kwargs):
    phi.data.mul_(2.0)
    return healthy.forward(x, phi, *args, **kwargs)

IMPL = replace(healthy, name="writes_phi", forward=forward)
"""


def test_what_zeros_hide_is_shown_by_the_first_further_run_that_has_others(tmp_path: Path) -> None:
    file = tmp_path / "writes.py"
    file.write_text(WRITES_PHI, encoding="utf-8")
    case = with_tensor(CASE, "phi", kind="normal")
    for kind, about in (("normal", ""), ("zero", "inputs of the gate ")):
        found = finding(f"{file}:IMPL", "inputs", "memory", "written", with_tensor(case, "phi", kind=kind))
        shown = scene(found, load(found.spec), "cpu")
        assert shown.about.startswith(about)
        assert bool(shown.about) == bool(about)
        phi = shown.inputs.tensors["phi"]
        assert phi is not None
        assert phi.any()
        verdicts = check(load(found.spec), found.operator_case, "cpu", depth_of(found)).verdicts
        assert any(found.fingerprint.fits(one) for one in verdicts), "as found, it is said to pass"


HANGS_BEFORE = """
from dataclasses import replace
from mhc import load

def forward(*args, **kwargs):
    while True:
        pass

IMPL = replace(load("manual"), name="hangs_before", forward=forward)
"""


def test_a_hang_before_any_kernel_is_launched_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhc.upstream.program.program.SECONDS", 2.0)
    file = tmp_path / "hangs.py"
    file.write_text(HANGS_BEFORE, encoding="utf-8")
    with pytest.raises(ExportError, match="no kernel is launched in 2 s while it is recorded: the host code hangs"):
        make(finding(f"{file}:IMPL", "process", "liveness", "hang", CASE), "triton", "cpu", "cut")
