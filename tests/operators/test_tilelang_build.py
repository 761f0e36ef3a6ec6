"""Compiled TileLang programs: what they depend on, that the disk keeps them, and what is said where they cannot be had."""

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from mhc import Refused, default_case, environment, load, materialise, mhc_forward_pre_tilelang
from mhc.operators.mhc_pre.tilelang.compile import cache, dependencies
from mhc.operators.mhc_pre.tilelang.compile.cache import BuildError, Counts, kernel_source, prebuild, program
from tests.support.helpers import ROOT, forward_arguments, started
from tests.support.needs import needs_tilelang

KERNELS = """
import tilelang.language as T
from scaling import factor

def scale(*, n):
    N = T.dynamic("N", "int64")

    @T.prim_func
    def main(a: T.Tensor((N, n), "float32"), s: T.float32, b: T.Tensor((N, n), "float32")):
        with T.Kernel(N, is_cpu=True) as t:
            for j in T.serial(n):
                b[t, j] = a[t, j] * s * factor.FACTOR

    return main

def wrong(*, n):
    raise ValueError("no such kernel")
"""


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """An empty cache, and a package of a factory's module and one that it imports; the function rewrites the latter."""
    monkeypatch.setenv("MHC_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "scaling"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "kernels.py").write_text(KERNELS)

    def rewrite(text: str) -> None:
        (package / "factor.py").write_text(text)
        for name in ("scaling", "scaling.kernels", "scaling.factor"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        for cached in (cache._program, dependencies.digest):
            cached.cache_clear()

    rewrite("FACTOR = 2.0\n")
    return rewrite


def scaled(n: int = 3) -> float:
    """What the program makes of 1, scaled by 5."""
    a, b = torch.ones(4, n), torch.empty(4, n)
    program("scaling.kernels:scale", "c", {"n": n})(a.data_ptr(), 5.0, b.data_ptr(), 4)
    assert torch.equal(b, torch.full_like(b, float(b[0, 0])))
    return float(b[0, 0])


def compiled(function: Callable[[], Any]) -> int:
    before = Counts.compiled
    function()
    return Counts.compiled - before


@needs_tilelang
@pytest.mark.slow
def test_a_program_is_compiled_for_what_it_depends_on_and_nothing_else(fresh: Callable[[str], None]) -> None:
    assert scaled() == 10.0
    assert compiled(scaled) == 0  # it is in memory
    fresh("FACTOR = 2.0\n")
    assert compiled(scaled) == 0  # it is on disk
    assert compiled(lambda: scaled(n=2)) == 1
    fresh("FACTOR = 3.00\n")  # in a module that the factory's imports
    assert compiled(scaled) == 1
    assert scaled() == 15.0


@needs_tilelang
def test_the_source_of_a_kernel_is_kept_until_what_it_is_made_of_changes(
    fresh: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {"factory": "scaling.kernels:scale", "target": "c", "constants": {"n": 3}}
    before = kernel_source(**arguments)
    assert "2.0" in before
    lowered = mock.Mock(wraps=cache._prim_func)
    monkeypatch.setattr(cache, "_prim_func", lowered)
    fresh("FACTOR = 2.0\n")
    assert kernel_source(**arguments) == before
    assert not lowered.called
    fresh("FACTOR = 3.00\n")
    assert "3.0" in kernel_source(**arguments) != before
    kernel_source(**arguments | {"constants": {"n": 2}})
    assert lowered.call_count == 2
    assert len(list((tmp_path / "cache" / "tilelang").glob("*.source"))) == 3


@needs_tilelang
def test_what_a_call_takes_is_kept_with_the_library(fresh: Callable[[str], None], tmp_path: Path) -> None:
    assert program("scaling.kernels:scale", "c", {"n": 3}).arguments == (
        ("a", "handle"), ("s", "float32"), ("b", "handle"), ("N", "int64"),
    )  # fmt: skip
    (record,) = (tmp_path / "cache" / "tilelang").glob("*.json")
    kept = json.loads(record.read_text())
    assert kept["constants"] == {"n": 3}
    assert kept["versions"] == {"tilelang": "0.1.8", "apache-tvm-ffi": "0.1.9"}
    del fresh


@needs_tilelang
@pytest.mark.slow
def test_a_program_can_be_built_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another process, which `program` waits for; this one only loads it."""
    monkeypatch.setenv("MHC_CACHE", str(tmp_path))
    job: dict[str, Any] = {"factory": "mhc.operators.mhc_pre.tilelang.kernels.cpu:forward", "target": "c"}
    job["constants"] = {"dtype": "float32", "max_n": 2}
    cache._program.cache_clear()
    assert compiled(lambda: prebuild(**job)) == 1
    cache._BESIDE[-1].wait()
    assert compiled(lambda: program(**job)) == 0
    assert compiled(lambda: prebuild(**job)) == 0
    assert {path.suffix for path in (tmp_path / "tilelang").iterdir()} == {".so", ".json", ".lock"}


@needs_tilelang
def test_a_factory_that_fails_is_named(fresh: Callable[[str], None]) -> None:
    with pytest.raises(BuildError, match=r"scaling\.kernels:wrong\(\{'n': 3\}\) for c: ValueError: no such kernel"):
        program("scaling.kernels:wrong", "c", {"n": 3})
    del fresh


def test_a_call_that_fails_is_an_error() -> None:
    class Library:
        def call(self) -> int:
            return 1

        def get_last_error(self) -> bytes:
            return b"too many resources requested for launch"

    broken: Any = Library()
    with pytest.raises(BuildError, match="kernel: too many resources requested"):
        cache.Program("kernel", (), broken)()


@needs_tilelang
@pytest.mark.slow
def test_two_processes_compile_one_program_once(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import torch
        from mhc import default_case, load, materialise, observe, reference
        from mhc.operators.mhc_pre.tilelang.compile.cache import Counts
        inputs = materialise(default_case(dtype="float16"))
        assert observe(load("tilelang-c"), inputs, reference(inputs).saved).failure is None
        print(Counts.compiled, Counts.loaded)
    """)
    environment = {**os.environ, "MHC_CACHE": str(tmp_path)}
    words = [sys.executable, "-c", script]
    with started(words, cwd=ROOT, env=environment) as one, started(words, cwd=ROOT, env=environment) as other:
        counts = [tuple(int(word) for word in process.communicate()[0].split()) for process in (one, other)]
    assert [sum(pair) for pair in counts] == [2, 2]  # forward and backward, in each
    assert sum(pair[0] for pair in counts) == 2  # each compiled once, by the one or the other


def test_importing_the_package_does_not_import_tilelang() -> None:
    script = "import sys, mhc, mhc.registry, mhc.fuzz.cli.main; assert not {'tilelang', 'tvm', 'triton'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("package", "found", "reason"),
    [
        ("tilelang", "0.1.9", "tilelang 0.1.9 is installed, 0.1.8 is needed: pip install 'mhc-fuzz[tilelang]'"),
        ("apache-tvm-ffi", "0.1.15", "apache-tvm-ffi 0.1.15 is installed, 0.1.9 is needed"),
        ("tilelang", None, "tilelang is not installed: pip install 'mhc-fuzz[tilelang]'"),
    ],
)
def test_another_version_is_refused_with_what_to_install(
    package: str, found: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name == package and found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found if name == package and found is not None else environment.TILELANG[name]

    caches = (dependencies.unusable, dependencies.missing, cache._program)
    monkeypatch.setattr(environment, "version", version)
    for cached in caches:
        cached.cache_clear()
    try:
        case = default_case()
        refusal = load("tilelang-c").refusal(case, "cpu")
        assert refusal is not None
        assert refusal.reason.startswith(reason)
        arguments = forward_arguments(materialise(case))
        with pytest.raises(Refused, match="tilelang-c: "):
            mhc_forward_pre_tilelang(*arguments)  # type: ignore[arg-type]
        with pytest.raises(Refused):
            program("mhc.operators.mhc_pre.tilelang.kernels.cpu:forward", "c", {})
        assert load("manual").refusal(case, "cpu") is None  # the rest still works
    finally:
        for cached in caches:
            cached.cache_clear()


@needs_tilelang
def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "compiler_path", lambda target: None)
    dependencies.missing.cache_clear()
    try:
        refusal = load("tilelang-c").refusal(default_case(), "cpu")
        assert refusal is not None
        assert refusal.reason == "TileLang compiles with g++; there is none on the path"
    finally:
        dependencies.missing.cache_clear()
