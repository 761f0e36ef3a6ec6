"""What a fault is put down to: planted faults of a compiler are named; where nothing heals it, the program is suspected."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from mhc import default_case
from mhc.case import Case, with_tensor
from mhc.fuzz.check.level import Level
from mhc.oracles.verdict import Status, Verdict
from mhc.registry import load
from mhc.upstream.diagnose import neighbours
from mhc.upstream.diagnose.attribution import EVALUATED, Attribution, Elsewhere, Setting, attribute, settings
from mhc.upstream.export import export
from mhc.upstream.verify import Outcome, run
from tests.support.exports import SELDOM, finding, repro
from tests.support.needs import needs_tilelang

FAILS = Outcome(1, "", "REPRODUCED", "")
HEALED = Outcome(0, "", "NOT REPRODUCED", "")

BROKEN = """
import sys
import tilelang
import tilelang.language as T
import torch

@T.prim_func
def kernel(x: T.Tensor((4,), "float32"), y: T.Tensor((4,), "float32")):
    with T.Kernel(1, is_cpu=True):
        for i in T.serial(4):
            y[i] = x[i]

x, y = torch.full((4,), FILL), torch.zeros(4)
made = tilelang.compile(kernel, target="c", execution_backend="cython", OPTIONS)
made(x, y)
wrong = FAULT
print(f"y[0]: expected 1.0, actual {y[0].item()}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(1 if wrong else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "fault", "heals"),
    [
        pytest.param(
            'compile_flags=["-O3"]',
            'not made.pass_configs.get("tir.disable_vectorize")',
            ("vectorisation off",),
            marks=SELDOM,
        ),
        (
            'pass_configs={"tl.disable_out_of_bound_warning": True}',
            'made.pass_configs.get("tl.disable_out_of_bound_warning")',
            ("no pass configs of its own",),
        ),
        ("", "True", ()),
    ],
)
def test_what_heals_a_planted_fault_of_the_compiler_is_named(
    options: str, fault: str, heals: tuple[str, ...], tmp_path: Path
) -> None:
    text = BROKEN.replace("OPTIONS", options).replace("FAULT", fault).replace("FILL", "1.0")
    chosen = {"vectorisation off", "no pass configs of its own"}
    tried = [one for one in settings("tilelang", "cpu") if one.name in chosen]
    made = attribute(repro(tmp_path, text), tried)
    assert made.heals == heals
    assert made.suspect == ("compiler" if heals else "program")
    assert ("the program is the first suspect" in made.text()) == (not heals)


@SELDOM
def test_flags_of_the_c_compiler_are_attributed(tmp_path: Path) -> None:
    kept = "y[i] = T.if_then_else(x[i] < 1.0, 0.0, T.if_then_else(x[i] >= 1.0, 1.0, 2.0))"
    text = BROKEN.replace("y[i] = x[i]", kept).replace("FILL", "float('nan')")
    text = text.replace("OPTIONS", 'compile_flags=["-O3", "-ffast-math"]').replace("FAULT", "y[0].item() != 2.0")
    assert run(repro(tmp_path, text)).reproduced
    made = attribute(repro(tmp_path, text), [Setting(name="-O0", flags=("-O0",)), Setting(name="same")])
    assert made.heals == ("-O0",)


def test_a_setting_under_which_it_fails_otherwise_heals_nothing() -> None:
    made = Attribution({"a": Outcome(2, "", "OTHER: TypeError: no", ""), "b": Outcome(1, "", "REPRODUCED", "")})
    assert made.heals == ()
    assert "| a | fails otherwise: exit 2, OTHER: TypeError: no |" in made.text()
    assert Attribution({}).suspect == "program"


def test_what_is_wrong_compiled_and_right_interpreted_is_the_compiler_s(tmp_path: Path) -> None:
    """A stand-in for a fault of Triton's compiler: it shows wherever TRITON_INTERPRET is not set."""
    text = 'import os\nwrong = os.environ.get("TRITON_INTERPRET") != "1"\nprint("x: expected 1.0, actual 2.0")\n'
    text += 'print("REPRODUCED" if wrong else "NOT REPRODUCED")\nraise SystemExit(wrong)'
    made = attribute(repro(tmp_path, text), settings("triton", "cuda"))
    assert made.heals == ("interpreted",)
    assert made.suspect == "compiler"
    assert [one.name for one in made.settings("triton", "cuda")] == ["interpreted"]
    assert "| LLVM's optimisations off | still fails |" in made.text()


@pytest.mark.parametrize(
    ("outcomes", "elsewhere", "suspect", "says"),
    [
        ({}, [Elsewhere("golden", passes=True, formula=True)], "program", "No setting of a compiler can be tried"),
        (
            {"-O0": FAILS},
            [Elsewhere("golden", passes=False, formula=True, how="value")],
            "formula",
            "the reference, or the gate",
        ),
        (
            {"-O0": FAILS},
            [Elsewhere("golden", passes=False, formula=True), Elsewhere("manual", passes=True, formula=True)],
            "program",
            "| golden | fails too",
        ),
        ({"-O0": HEALED}, [], "compiler", "Healed by: -O0. What the source says is right"),
        ({}, [Elsewhere("triton-interpreted on cpu", passes=True, source=True)], "compiler", "triton-interpreted on cpu"),
        ({}, [Elsewhere("tilelang-c on cpu", passes=True)], "program", "| tilelang-c on cpu | passes |"),
        ({"-O0": FAILS}, [Elsewhere("schedule a = 2", passes=True)], "program", "It passes with schedule a = 2"),
    ],
)
def test_the_first_suspect(outcomes: dict[str, Outcome], elsewhere: list[Elsewhere], suspect: str, says: str) -> None:
    made = Attribution(outcomes, elsewhere)
    assert made.suspect == suspect
    assert says in made.text()


class Stub:
    """A worker that finds h_in wrong on some implementations, devices or schedules."""

    retired = False
    started: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, wrong: Callable[[str, Case], bool], name: str, device: str) -> None:
        self._wrong, self._name = wrong, name
        self.started.append((name, device))

    def start(self, case: Case, depth: Level) -> None:
        self._case = case

    def finish(self) -> list[Verdict]:
        status = Status.FAIL if self._wrong(self._name, self._case) else Status.PASS
        return [Verdict(oracle="bound", subject="h_in", status=status, symptom="value" if status is Status.FAIL else "")]

    def stop(self) -> None:
        pass


@needs_tilelang
def test_other_implementations_run_where_they_can_and_the_same_kernels_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        neighbours,
        "WorkerClient",
        lambda spec, implementation, device, **_: Stub(lambda name, _: name == "tilelang-c", spec, device),
    )
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    Stub.started = []
    found = {one.what.split()[0]: one for one in neighbours.peers(finding("triton", "h_in"), "cuda", tmp_path / "log")}
    assert found["triton-interpreted"] == Elsewhere("triton-interpreted on cpu", passes=True, source=True)
    assert found["golden"].formula
    assert found["manual"].formula
    assert found["tilelang-c"] == Elsewhere("tilelang-c on cpu", passes=False, how="value")
    assert "triton" not in found
    assert {device for _, device in Stub.started} == {"cpu"}


def test_other_schedules_change_one_choice_each() -> None:
    name, space = "triton-interpreted", load("triton-interpreted").schedule
    key = next(iter(space))
    case = replace(default_case(), schedules={name: {key: space[key][0]}})
    stub = Stub(lambda _, case: case.schedules[name].get(key) == space[key][0], name, "cpu")
    tried = neighbours.schedules(finding(name, "h_in", case=case), lambda _: stub)
    assert len(tried) == neighbours.SCHEDULES
    assert tried[0] == Elsewhere(f"schedule {key} = {space[key][-1]}", passes=True, how="value")
    assert not any(one.passes for one in tried[1:])


@SELDOM
@pytest.mark.parametrize(("mutant", "heals"), [("c_fast_math", "no flags of its own")])
def test_a_flag_that_breaks_a_kernel_is_named_in_the_issue(mutant: str, heals: str, tmp_path: Path) -> None:
    """-ffast-math, as a mutant: the kernel's source is right, and a subnormal number becomes 0."""
    case = default_case(dtype="float32", absent=frozenset({"gamma"}))
    case = with_tensor(case, "x", kind="zero", literals=(((0, 0, 0, 0), 2e-38),))
    found = finding(f"mhc.oracles.mutants.load:{mutant}", "h_in", case=case)
    folder = tmp_path / "out"
    export(found, "tilelang", folder, "cpu")
    document = json.loads((folder / "export.json").read_text())
    assert document["attribution"]["suspect"] == "compiler"
    assert EVALUATED.name in document["attribution"]["heals"]
    assert heals in document["attribution"]["heals"]
    assert f"{EVALUATED.name}; {heals}" in (folder / "issue.md").read_text()
