"""Exported programs: that they fail by themselves as their finding does, for no other reason, and what heals them.

`--hypothesis-profile=nightly` exports all of them; each runs compilers for ten seconds or more.
"""

import ast
import importlib
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mhc import default_case
from mhc.case import Case, with_tensor
from mhc.recipe import Layout
from mhc.upstream.program.program import make
from mhc.upstream.program.script import OTHER, by_class
from mhc.upstream.source.definitions import closure
from mhc.upstream.verify import ExportError, run
from tests.support.exports import SELDOM, finding, outside, repro
from tests.support.needs import needs_tilelang

TRANSPOSED = with_tensor(default_case(S=3, n=2, D=5, dtype="float32"), "x", layout=Layout(order=(0, 2, 1, 3)))


@pytest.mark.parametrize(
    ("mutant", "subject", "to", "case"),
    [
        pytest.param("c_post_without_its_2", "h_post", "tilelang", default_case(), marks=pytest.mark.slow),
        pytest.param("c_dx_without_gamma", "dx", "tilelang", default_case(S=2, n=2, D=3, dtype="float32"), marks=SELDOM),
        pytest.param("last_column_masked_off", "inv_rms", "triton", default_case(), marks=pytest.mark.slow),
        pytest.param("hc_eps_in_the_slope", "dphi", "triton", default_case(), marks=SELDOM),
        pytest.param("c_strides_ignored", "h_in", "tilelang", TRANSPOSED, marks=SELDOM),
    ],
)
def test_the_program_of_a_mutant_fails_by_itself_at_the_same_element(
    mutant: str, subject: str, to: str, case: Case, tmp_path: Path
) -> None:
    made = make(finding(f"mhc.oracles.mutants.load:{mutant}", subject, case=case), to, "cpu", "cut")
    assert not {"mhc", "oracles", "strategies"} & {word for line in imports(made.text) for word in line.split(".")}
    outcome = run(repro(tmp_path, made.text))
    assert outcome.reproduced, outcome.output
    assert outcome.values.startswith(f"{subject}[")
    healed = run(repro(tmp_path, made.text.replace(f"actual = {actual(made.text)}", "actual = expected")))
    assert healed.healed, healed.output


@SELDOM
def test_a_kernel_from_outside_is_exported_with_its_host_code(tmp_path: Path) -> None:
    found = finding(outside(tmp_path, "WRONG"), "h_res", case=default_case(n=2, dtype="float32"))
    with pytest.raises(ExportError, match="launched 0 kernels of tilelang, and 0 others"):
        make(found, "tilelang", "cpu", "cut")
    made = make(found, "tilelang", "cpu", "host")
    assert "Implementation" not in made.text
    assert "in_a_fragment" not in made.text
    outcome = run(repro(tmp_path, made.text))
    assert outcome.reproduced, outcome.output
    assert run(repro(tmp_path, "import sys\nsys.modules['triton'] = None\n" + made.text)).reproduced


@SELDOM
def test_what_cannot_be_lowered_raises_the_same_by_itself(tmp_path: Path) -> None:
    symptom = "raises InternalError"
    case = default_case(dtype="float32")
    found = finding(outside(tmp_path, "RAISES"), "forward", "liveness", symptom, case)
    with pytest.raises(ExportError, match="raises InternalError while it is recorded"):
        make(replace(found, fingerprint=replace(found.fingerprint, symptom="raises KeyError")), "tilelang", "cpu", "host")
    made = make(found, "tilelang", "cpu", "host")
    outcome = run(repro(tmp_path, made.text))
    assert outcome.reproduced, outcome.output
    assert "expected no exception, actual " in outcome.values
    healed = run(repro(tmp_path, made.text.replace("T.alloc_fragment", "T.alloc_local")))
    assert healed.healed, healed.output
    another = run(repro(tmp_path, made.text.replace("T.alloc_fragment", "T.alloc_nothing")))
    assert another.status == 2, another.output
    assert another.said.startswith("OTHER: AttributeError")


@pytest.mark.slow
@needs_tilelang
def test_numbers_and_paths_in_what_is_raised_may_differ(tmp_path: Path) -> None:
    case = default_case(dtype="float32")
    found = finding(outside(tmp_path, "NOTHING"), "forward", "liveness", "raises ValueError", case)
    text = make(found, "torch", "cpu", "host").text
    assert run(repro(tmp_path, text)).reproduced
    changed = text.replace("raise ValueError(f'no room", "raise ValueError(f'no time")
    assert changed != text
    assert run(repro(tmp_path, changed)).said.startswith("OTHER: ValueError: no time")


WITHOUT_GRADIENTS = """
import torch
from mhc import Implementation

def inferring(a, b):
    return torch.nn.functional.silu(a) * (b if torch.is_grad_enabled() else 2 * b)

IMPL = Implementation(name="inferring", operator="swiglu", function=inferring)
"""


@pytest.mark.slow
def test_a_forward_is_exported_under_no_grad_as_it_is_judged(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(WITHOUT_GRADIENTS)
    case = default_case(operator="swiglu", dtype="float32", D=2)
    found = finding(f"{tmp_path / 'kernel.py'}:IMPL", "y", case=case)
    found = replace(found, fingerprint=replace(found.fingerprint, operator="swiglu"))
    text = make(found, "torch", "cpu", "host").text
    assert "returned = torch.no_grad()(inferring)(" in text
    assert run(repro(tmp_path, text)).reproduced
    assert run(repro(tmp_path, text.replace("torch.no_grad()(inferring)", "inferring"))).healed


def test_a_wrong_class_must_be_the_one_that_was_found(tmp_path: Path) -> None:
    lines = ["import math, os, sys", OTHER, "expected, actual = 1.0, ACTUAL", *by_class("x[0]", math.nan)]
    text = "\n".join([*lines, 'print("REPRODUCED" if wrong else "NOT REPRODUCED")', "sys.exit(wrong)"])
    assert run(repro(tmp_path, text.replace("ACTUAL", "math.nan"))).reproduced
    assert run(repro(tmp_path, text.replace("ACTUAL", "2.0"))).healed
    assert run(repro(tmp_path, text.replace("ACTUAL", "math.inf"))).said == "OTHER: ArithmeticError: inf"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "subject", "to"),
    [
        pytest.param("c_dphi_without_gamma", "dphi", "tilelang", marks=SELDOM),
        ("last_column_masked_off", "inv_rms", "triton"),
    ],
)
def test_what_is_cut_and_folded_computes_the_same(mutant: str, subject: str, to: str, tmp_path: Path) -> None:
    found = finding(f"mhc.oracles.mutants.load:{mutant}", subject, case=default_case(S=2, n=2, D=3))
    cut, whole = (make(found, to, "cpu", form) for form in ("cut", "whole"))
    assert cut.lines < whole.lines - 10
    values = [run(repro(tmp_path, one.text)).values for one in (cut, whole)]
    assert values[0] == values[1] != ""


def imports(text: str) -> list[str]:
    return [
        name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    ]


def actual(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("actual = ")).removeprefix("actual = ")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"oracle": "determinism"}, "dx does not fail while it is recorded: determinism finds nothing wrong"),
        ({"oracle": "memory", "symptom": "overwritten"}, "allocated by the host code, and not by a kernel"),
        pytest.param(
            {"subject": "inputs", "oracle": "memory", "symptom": "written"},
            "nothing of it is seen while it is recorded",
            marks=SELDOM,
        ),
        pytest.param(
            {"subject": "process", "oracle": "liveness", "symptom": "SIGSEGV"},
            "its process does not end while it is recorded",
            marks=SELDOM,
        ),
        ({"oracle": "refusal", "symptom": "unsteady"}, "no program is made for the gate refusal"),
        ({"oracle": "ordering", "symptom": "race"}, "the order is what fails"),
    ],
)
def test_what_is_not_seen_again_or_no_kernel_s_doing_is_refused(changed: dict[str, Any], reason: str) -> None:
    found = finding("tilelang-c", "dx")
    with pytest.raises(ExportError, match=reason):
        make(replace(found, fingerprint=replace(found.fingerprint, **changed)), "tilelang", "cpu", "cut")


@needs_tilelang
def test_what_does_not_fail_is_refused() -> None:
    with pytest.raises(ExportError, match="h_post does not fail while it is recorded: pass"):
        make(finding("tilelang-c", "h_post"), "tilelang", "cpu", "cut")


@needs_tilelang
def test_what_a_kernel_writes_into_its_inputs_does_not_become_the_reference() -> None:
    with pytest.raises(ExportError, match="h_in does not fail while it is recorded: pass"):
        make(finding("mhc.oracles.mutants.load:c_phi_folded_in_place", "h_in"), "tilelang", "cpu", "cut")


def test_an_import_of_a_private_module_inside_of_a_function_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner_import.py").write_text("def forward():\n    from helper_of_mine import x\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("inner_import")
    with pytest.raises(ExportError, match="forward imports helper_of_mine inside of itself"):
        closure([("inner_import", "forward")])


@needs_tilelang
def test_a_stage_that_is_no_function_of_a_module_is_refused() -> None:
    with pytest.raises(ExportError, match=r"functools\.partial.* is not a function at the top level"):
        make(finding("mhc.oracles.mutants.load:c_post_without_its_2", "h_post"), "tilelang", "cpu", "host")


@needs_tilelang
def test_kernels_of_another_language_are_refused() -> None:
    with pytest.raises(ExportError, match="launched 0 kernels of triton, and 1 others"):
        make(finding("mhc.oracles.mutants.load:c_post_without_its_2", "h_post"), "triton", "cpu", "cut")


@needs_tilelang
def test_what_the_host_code_made_is_refused() -> None:
    case = default_case(S=6, D=14, dtype="bfloat16")
    tiny = replace(case, tensors={**case.tensors, "x": replace(case.tensors["x"], scale=2.0**-30)})
    with pytest.raises(ExportError, match="the host code around them has made it"):
        make(finding("mhc.oracles.mutants.load:c_h_in_through_float16", "h_in", case=tiny), "tilelang", "cpu", "cut")


def test_a_program_that_fails_without_a_last_line_says_its_error(tmp_path: Path) -> None:
    outcome = run(repro(tmp_path, "print('begins to compile')\nraise KeyError('mbarrier')"))
    assert (outcome.reproduced, outcome.healed, outcome.said) == (False, False, "KeyError: 'mbarrier'")
    assert run(repro(tmp_path, "import sys\nprint('REPRODUCED')\nsys.exit('one more thing')")).reproduced
