"""Findings on programs, exported for the compiler's maintainers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc.case import default_case
from mhc.fuzz.check.program_check import check
from mhc.fuzz.cli.main import main
from mhc.fuzz.findings.finding import Finding, finding
from mhc.oracles.verdict import Status
from mhc.programs.grammar import Binary, Buffer, Const, For, Program, Store, Unary, Var
from mhc.programs.targets import TARGETS
from mhc.upstream.compiler_finding import export_compiler_finding
from mhc.upstream.verify import ExportError
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


def found(program: Program) -> Finding:
    verdict = next(one for one in check(C, program) if one.status is Status.FAIL)
    return finding("tilelang-to-c", C, program, verdict)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "seen"), [(LOST, "right is [[0, 0, 7, 7]]"), (REFUSED, "cannot make uint")])
def test_a_finding_becomes_a_program_without_this_package(program: Program, seen: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "found.json", tmp_path / "issue"
    path.write_text(found(program).to_json(), encoding="utf-8")
    ran = CliRunner().invoke(main, ["export", str(path), "--to", "tilelang", "--out", str(folder)])
    assert ran.exit_code == 0, ran.output
    text = (folder / "repro.py").read_text(encoding="utf-8")
    assert "@T.prim_func" in text
    assert "mhc" not in text
    assert seen in json.loads((folder / "export.json").read_text(encoding="utf-8"))["told"]["values"]
    assert "one step simpler | passes" in (folder / "issue.md").read_text(encoding="utf-8")


@needs_tilelang
def test_what_is_not_exported_says_why(tmp_path: Path) -> None:
    one = found(LOST)
    with pytest.raises(ExportError, match="no program"):
        export_compiler_finding(replace(one, case=default_case()), C, tmp_path / "a")
    late = replace(one, fingerprint=replace(one.fingerprint, oracle="compiler"), message="cc: error: no int32_t2")
    with pytest.raises(ExportError, match="stage cc"):
        export_compiler_finding(late, C, tmp_path / "a")
    path = tmp_path / "found.json"
    path.write_text(one.to_json(), encoding="utf-8")
    ran = CliRunner().invoke(main, ["export", str(path), "--to", "triton"])
    assert ran.exit_code == 2
    assert "program of tilelang" in ran.output
