"""TileLang's CUDA target, without a GPU: what is lowered, what nvcc compiles, and how kernels are launched."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from mhc.fuzz.check.program_check import check, run
from mhc.oracles.verdict import Status
from mhc.programs import tilelang_cuda
from mhc.programs.compile_error import CompileError
from mhc.programs.grammar import Binary, Buffer, Cast, Const, Copy, Expr, For, Load, Program, Reduce, Store, Var
from mhc.programs.targets import TARGETS
from tests.support import driver_on_cpu

I, J = Var("i"), Var("j")
X = Buffer("x", (6,), "int32", least=-50, most=50)


def loop(
    value: Expr, dtype: str = "int32", *more: Buffer, count: int = 5, kind: str = "serial", threads: int = 1
) -> Program:
    buffers = (*more, Buffer("y", (count,), dtype, written=True))
    return Program(buffers=buffers, body=(For(kind, "i", count, (Store("y", (I,), value),)),), threads=threads)  # type: ignore[arg-type]


PLAIN = loop(Binary("+", Load("x", (Binary("%", I, Const(4)),)), Const(1)), "int32", X)
PARALLEL = loop(Binary("*", Load("x", (I,)), Const(3)), "int32", X, kind="Parallel", threads=64)
SHARED = Program(
    buffers=(X, Buffer("s", (6,), "int32", scope="shared"), Buffer("y", (6,), "int32", written=True)),
    body=(
        Copy(source="x", source_at=(0,), target="s", target_at=(0,), extents=(6,)),
        For("Parallel", "i", 6, (Store("y", (I,), Load("s", (Binary("-", Const(5), I),))),)),
    ),
    threads=32,
    configs={"tl.disable_tma_lower": True, "tl.disable_warp_specialized": True},
)
LOST_CONSTANT = loop(Load("x", (Binary("%", Binary("-", Const(1), I), Const(4)),)), "int32", X)
NOT_TRUNCATED = loop(
    Cast("int32", Binary("+", Load("x", (I,)), Const(200, "uint8"))), "int32", Buffer("x", (5,), "uint8", least=60, most=255)
)
MANY_SUMS = Program(
    buffers=(
        Buffer("x", (4, 8), "int32", most=9),
        Buffer("f", (4, 8), "int32", scope="fragment"),
        Buffer("r", (4,), "int32", scope="fragment"),
        Buffer("y", (4,), "int32", written=True),
    ),
    body=(
        Copy(source="x", source_at=(0, 0), target="f", target_at=(0, 0), extents=(4, 8)),
        Reduce(op="sum", source="f", target="r", axis=1),
        Copy(source="r", source_at=(0,), target="y", target_at=(0,), extents=(4,)),
    ),
    threads=32,
)


@pytest.fixture
def emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels compiled by g++ and launched on the CPU."""
    (tmp_path / "driver").mkdir()
    monkeypatch.setattr(tilelang_cuda, "DRIVER", str(driver_on_cpu.driver(tmp_path / "driver")))
    monkeypatch.setattr(tilelang_cuda, "here", lambda: "sm_90")
    monkeypatch.setattr(tilelang_cuda, "_nvcc", driver_on_cpu.compiled)
    tilelang_cuda._library.cache_clear()


@pytest.mark.usefixtures("emulated")
def test_kernels_that_share_a_file_are_launched_as_they_were_lowered(tmp_path: Path) -> None:
    """Two bugs of this release reach CUDA, and the last kernel is made to write too far."""
    programs = [PLAIN, PARALLEL, SHARED, LOST_CONSTANT, NOT_TRUNCATED, PARALLEL]
    texts = [tilelang_cuda.lower(one) for one in programs]
    texts[-1] = texts[-1].replace("< 5", "< 6")
    ready = tilelang_cuda.prepare(programs, texts, tmp_path)
    assert [path.name for path in tmp_path.glob("*.cubin")] == ["all.cubin"]
    verdicts = [verdict for program, one in zip(programs, ready, strict=True) for verdict in run(program, one)]
    assert [one.status for one in verdicts] == [Status.PASS] * 3 + [Status.FAIL] * 3
    assert [one.symptom for one in verdicts[3:]] == ["wrong value", "wrong value", "a write outside y"]


@pytest.mark.slow
@pytest.mark.usefixtures("emulated")
def test_two_runs_that_differ_are_a_finding(tmp_path: Path) -> None:
    text = tilelang_cuda.lower(PLAIN)
    start = text.index("{", text.index(") {"))
    changing = f"{text[:start]}{{ static int runs = 0; y[0] = ++runs; return;{text[start + 1 :]}"
    (one,) = tilelang_cuda.prepare([PLAIN], [changing], tmp_path)
    assert not isinstance(one, CompileError)
    with pytest.raises(CompileError, match="two runs differ in y"):
        one(PLAIN)


@pytest.mark.parametrize("program", [SHARED, MANY_SUMS], ids=["shared", "tile"])
def test_lowering_for_a_chip_needs_no_gpu(program: Program) -> None:
    (verdict,) = check(TARGETS["tilelang-for-sm_90"], program)
    assert (verdict.status, verdict.oracle) == (Status.PASS, "compiler")
    text = tilelang_cuda.lower(program, "sm_90")
    assert tilelang_cuda.launch_of(text)["block"][0] >= program.threads


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc here")
def test_nvcc_compiles_kernels_together_or_says_which_it_refuses(tmp_path: Path) -> None:
    texts = [tilelang_cuda.lower(one, "sm_90") for one in (SHARED, MANY_SUMS)]
    assert [path.name for path in tilelang_cuda.cubins(texts, tmp_path, "sm_90") if isinstance(path, Path)] == [
        "all.cubin"
    ] * 2
    bad = texts[0].replace("y[", "nothing[")
    first, second = tilelang_cuda.cubins([texts[0], bad], tmp_path, "sm_90")
    assert isinstance(first, Path)
    assert isinstance(second, CompileError)
    assert second.stage == "cc"
    assert "nothing" in str(second)


def test_a_kernel_with_descriptors_is_launched_by_tilelang_itself(tmp_path: Path) -> None:
    signature = 'extern "C" __global__ void f_kernel(const CUtensorMap x_desc)'
    source = f'// launch: {{"grid": [1, 1, 1]}}\n#include <x.h>\n{signature} {{\n}}\n'
    ready = tilelang_cuda._ready(tmp_path / "no.cubin", 0, source, SHARED)
    assert isinstance(ready, partial)
    assert ready.args[0].func is tilelang_cuda._by_adapter
