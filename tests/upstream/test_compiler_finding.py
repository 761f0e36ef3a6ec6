"""Findings on programs, exported for the compiler's maintainers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from mhc.case import default_case
from mhc.fuzz.cli.main import main
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.worker.client import WorkerClient
from mhc.oracles.verdict import Status
from mhc.programs.evaluate import inputs_of
from mhc.programs.grammar import Binary, Buffer, Const, For, If, Load, Program, Store, Unary, Var
from mhc.programs.languages import AnyProgram
from mhc.programs.targets import TARGETS
from mhc.programs.triton import grammar as triton
from mhc.upstream import declared
from mhc.upstream.compiler_finding import export_compiler_finding, symptom_of
from mhc.upstream.declared import text
from mhc.upstream.program_file import form_of
from mhc.upstream.tvm_alone import write_tvm_alone
from mhc.upstream.verify import ExportError, run
from tests.support.needs import needs_tilelang

C = TARGETS["tilelang-to-c"]
Y = Buffer("y", (4,), "int32", written=True)
LOST = Program(
    buffers=(Y,),
    body=(
        For("serial", "i", 2, (Store("y", (Binary("%", Binary("-", Const(0), Var("i")), Const(4)),), Const(0)),), begin=3),
    ),
)
REFUSED = Program(
    buffers=(Buffer("y", (1,), "uint64", written=True),), body=(Store("y", (Const(0),), Unary("-", Const(1, "uint64"))),)
)


def found(program: AnyProgram, name: str = C.name) -> Finding:
    worker = WorkerClient(name, TARGETS[name], "cpu")
    worker.start(program)
    verdict = next(one for one in worker.finish() if one.status is Status.FAIL)
    worker.stop()
    return finding(name, TARGETS[name], program, verdict)


NOUGHT = Const(0, "uint64")
ENDS = Program(  # the compiler divides by 0 in a branch that does not run
    buffers=(Buffer("w", (2,), "uint64", least=0, most=1), Buffer("y", (1,), "int32", written=True)),
    body=(
        For(
            "serial",
            "i",
            2,
            (
                If(
                    Binary("and", Binary(">", Var("i"), Const(0)), Binary("!=", Load("w", (Const(1),)), NOUGHT)),
                    (If(Binary("==", Binary("%", NOUGHT, NOUGHT), NOUGHT), (Store("y", (Const(0),), Const(0)),)),),
                ),
            ),
        ),
    ),
    seed=58,
)
ONES, INDEX = triton.Op(name="v2", op="full", shape=(2,), value=1), triton.Op(name="v1", op="arange", shape=(2,))
REVERSED = triton.TritonProgram(
    buffers=(triton.Buffer(name="y", size=2, written=True, zeroed=True),),
    body=(
        INDEX,
        ONES,
        triton.Op(name="v3", op="cumprod", args=("v2",), flag=True),
        triton.Atomic(buffer="y", index="v1", op="max", value="v3"),
    ),
)
LARGEST = triton.TritonProgram(
    buffers=(triton.Buffer(name="y", size=1, written=True),),
    body=(
        triton.Op(name="v1", op="full", shape=(2,)),
        triton.Op(name="v2", op="topk", args=("v1",), value=1),
        triton.Store(buffer="y", index="v2", value="v2"),
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "program", "seen"),
    [
        ("tilelang-to-c", LOST, "right is [[0, 0, 7, 7]]"),
        ("triton-interpreter", REVERSED, "[[1, 0]], right is [[1, 1]]"),
    ],
)
def test_a_finding_becomes_a_folder_without_this_package(
    target: str, program: AnyProgram, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared, "settings", lambda *_: ())  # each takes a run of its own
    path, folder = tmp_path / "found.json", tmp_path / "issue"
    path.write_text(found(program, target).to_json(), encoding="utf-8")
    ran = CliRunner().invoke(main, ["export", str(path), "--to", TARGETS[target].dsl, "--out", str(folder)])
    assert ran.exit_code == 0, ran.output
    text = (folder / "repro.py").read_text(encoding="utf-8")
    assert {"tilelang": "@T.prim_func", "triton": "@triton.jit"}[TARGETS[target].dsl] in text
    assert "mhc" not in text
    assert seen in json.loads((folder / "export.json").read_text(encoding="utf-8"))["told"]["values"]
    assert "one step simpler | passes" in (folder / "issue.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "program", "seen"),
    [
        ("tilelang-to-c", REFUSED, "cannot make uint"),
        ("tilelang-to-c", ENDS, "SIGFPE"),
        ("tilelang-for-sm_90", REFUSED, "cannot make uint"),
        ("triton-for-sm_90", LARGEST, "'dtype' object has no attribute 'numel'"),
    ],
)
def test_a_program_that_does_not_compile_shows_it_by_itself(
    target: str, program: AnyProgram, seen: str, tmp_path: Path
) -> None:
    form, symptom = form_of(TARGETS[target]), symptom_of(found(program, target))
    path = tmp_path / "program.py"
    path.write_text(form.write("program", program, TARGETS[target]), encoding="utf-8")
    repro = tmp_path / "repro.py"
    repro.write_text(text(f"{path}:program", symptom, "it", form.variables), encoding="utf-8")
    outcome = run(repro)
    assert outcome.reproduced, outcome.output
    assert seen in outcome.values


@pytest.mark.slow
def test_an_index_that_tvm_alone_gets_wrong_has_a_program_of_tvm(tmp_path: Path) -> None:
    section = write_tvm_alone(LOST, tmp_path)
    assert "(0 - i) % 4 at i = 3: expected 1, actual 0" in section
    assert run(tmp_path / "tvm.py").reproduced
    right = (tmp_path / "tvm.py").read_text(encoding="utf-8").replace("Surjective", "Bijective")
    (tmp_path / "right.py").write_text(right, encoding="utf-8")
    assert run(tmp_path / "right.py").healed


@needs_tilelang
def test_a_program_whose_arithmetic_is_right_has_none(tmp_path: Path) -> None:
    assert write_tvm_alone(REFUSED, tmp_path) == ""
    assert not list(tmp_path.iterdir())


@needs_tilelang
def test_what_is_not_exported_says_why(tmp_path: Path) -> None:
    one = found(LOST)
    with pytest.raises(ExportError, match="no program"):
        export_compiler_finding(replace(one, case=default_case()), C, C.name, tmp_path / "a")
    late = replace(one, fingerprint=replace(one.fingerprint, oracle="compiler"), message="cc: error: no int32_t2")
    with pytest.raises(ExportError, match="stage cc"):
        export_compiler_finding(late, C, C.name, tmp_path / "a")
    silent = replace(late, message="lower: nothing that names its type")
    with pytest.raises(ExportError, match="names no exception"):
        export_compiler_finding(silent, C, C.name, tmp_path / "a")
    with pytest.raises(ExportError, match="plain-c is no compiler of others"):
        export_compiler_finding(one, TARGETS["plain-c"], "plain-c", tmp_path / "a")
    path = tmp_path / "found.json"
    path.write_text(one.to_json(), encoding="utf-8")
    ran = CliRunner().invoke(main, ["export", str(path), "--to", "triton"])
    assert ran.exit_code == 2
    assert "program of tilelang" in ran.output


def test_inputs_with_nan_are_written_so_that_they_can_be_read() -> None:
    buffers = (Buffer("u", (9,), "float32", least=1, most=8, special=True), Buffer("y", (9,), "bool", written=True))
    compared = Binary("<", Load("u", (Var("i"),)), Const(2.0, "float32"))
    program = Program(buffers=buffers, body=(For("serial", "i", 9, (Store("y", (Var("i"),), compared),)),), seed=2)
    target = TARGETS["tilelang-to-c"]
    (line,) = [one for one in form_of(target).write("f", program, target).splitlines() if one.strip().startswith("u = ")]
    scope: dict[str, Any] = {"torch": torch}
    exec(line.strip(), scope)  # noqa: S102  # a line that was just written
    assert torch.equal(scope["u"].nan_to_num(9.5), torch.from_numpy(inputs_of(program)["u"]).nan_to_num(9.5))
    assert bool(scope["u"].isnan().any())
