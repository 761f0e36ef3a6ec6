"""docs/examples/liger_mhc.py, the worked example of a kernel from outside, in Triton's interpreter."""

import importlib.util
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from mhc import Case, default_case, load
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli.main import main
from mhc.fuzz.worker.client import WorkerClient
from mhc.oracles import refusal
from mhc.oracles.verdict import Status, Verdict
from tests.support.helpers import ROOT, symptoms

EXAMPLE = ROOT / "docs" / "examples" / "liger_mhc.py"

installed = pytest.mark.skipif(
    importlib.util.find_spec("liger_kernel") is None, reason="liger-kernel is not installed: pip install mhc-fuzz[liger]"
)


def case(dtype: str, n: int = 2, *, gamma: bool = False) -> Case:
    return default_case(B=1, S=3, n=n, D=5, dtype=dtype, absent=frozenset() if gamma else frozenset({"gamma"}))


@pytest.fixture(scope="module")
def workers() -> Iterator[dict[str, WorkerClient]]:
    made = {name: WorkerClient(f"{EXAMPLE}:{name}", load(f"{EXAMPLE}:{name}"), "cpu") for name in ("IMPL", "WIDE")}
    yield made
    for one in made.values():
        one.stop()


def checked(worker: WorkerClient, case: Case) -> list[Verdict]:
    worker.start(case, Level.PLAIN)
    return worker.finish()


@installed
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_it_is_right_but_for_dx_which_is_rounded_twice(dtype: str, workers: dict[str, WorkerClient]) -> None:
    """And in float32, or where Liger is given float32, once: docs/results/liger.md."""
    wide, verdicts = checked(workers["WIDE"], case(dtype)), checked(workers["IMPL"], case(dtype))
    assert symptoms(wide) == set()
    assert symptoms(verdicts) == ({("bound", "dx", "value")} if dtype == "float16" else set())
    assert refusal.refused(verdicts) == (dtype == "bfloat16")  # the interpreter has it wrong
    judged = {one.subject for one in wide if one.oracle == "bound" and one.status is Status.PASS}
    assert judged == {"h_in", "h_post", "h_res", "inv_rms", "h_pre", "dx", "dphi", "dalpha", "dbias"}


@installed
def test_the_page_shows_what_it_finds(workers: dict[str, WorkerClient]) -> None:
    page = (ROOT / "docs" / "bring-your-own.md").read_text(encoding="utf-8")
    (failure,) = [one for one in checked(workers["IMPL"], case("float16")) if one.status is Status.FAIL]
    shown = f"        {failure.message}\n        {case('float16').id}\n"
    assert f"    FOUND liger-interpreted: dx: value (bound)\n{shown}" in page


@installed
@pytest.mark.parametrize(("n", "gamma", "reason"), [(3, False, "n must be a power of two"), (2, True, "there is no gamma")])
def test_what_liger_has_not_is_refused(n: int, gamma: bool, reason: str, workers: dict[str, WorkerClient]) -> None:
    verdicts = checked(workers["IMPL"], case("float32", n, gamma=gamma))
    assert refusal.refused(verdicts)
    assert [one.message for one in verdicts] == [reason]


def test_without_liger_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("liger_kernel", "liger_kernel.ops"):
        monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(main, ["--cases", "1", "--impl", f"{EXAMPLE}:IMPL"])
    assert result.exit_code == 2
    assert "liger_mhc.py: cannot be imported: ModuleNotFoundError" in result.output
    assert "liger_kernel" in result.output
