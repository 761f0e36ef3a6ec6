"""`python -m mhc.bench`: bounds, clocks, accuracy, tables and exit codes, on the CPU with a meter that measures nothing."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor

from mhc import load, materialise, reference
from mhc.bench.cli import main
from mhc.bench.kernels import meter, table
from mhc.bench.kernels.accuracy import allowed, deviations
from mhc.bench.kernels.contenders import measure
from mhc.bench.kernels.meter import host_us, scratch_mib
from mhc.bench.kernels.record import Deviation, Row, Shape, Timing, bounds
from mhc.declared import Declared
from mhc.operators.mhc_pre.table import PRE
from mhc.oracles.bound import tolerances
from tests.support.helpers import scaled_case

CPU = torch.device("cpu")
TINY = Shape(1, 2, 2, 3)
BIG = Shape(4, 2048, 4, 4096)

KERNELS = """
from dataclasses import replace
from mhc import Refused, load

manual = replace(load("manual"), name="mine")

def broken(*args, **kwargs):
    raise RuntimeError("no such luck\\nsecond line")

def wrong(x, *args, **kwargs):
    h_in, h_post, *rest = manual.forward(x, *args, **kwargs)
    return h_in, h_post * 1.001, *rest

GOOD = manual
RAISES = replace(manual, backward=broken)
WRONG = replace(manual, forward=wrong, backward=None)
PICKY = replace(manual, supports=lambda case: Refused("odd D only") if case.sizes["D"] % 2 == 0 else True)
BROKEN_SUPPORTS = replace(manual, supports=lambda case: 1 / 0)
ENV = replace(manual, name="other", env={"MHC_BENCH_TEST": "1"})
"""


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    return path


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The meter measures nothing."""
    monkeypatch.setattr(meter, "milliseconds", lambda call: 0.25)
    monkeypatch.setattr(meter, "host_us", lambda call: float(len(call())))
    monkeypatch.setattr(meter, "scratch_mib", lambda call: 1.5)
    monkeypatch.setattr(meter, "free_bytes", lambda: 1e9)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch, metered: None) -> None:
    """The command measures on the CPU, and the built-in kernels are left out."""
    monkeypatch.setattr("mhc.bench.kernels.cli.DEVICE", CPU)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("mhc.bench.kernels.cli.IMPLEMENTATIONS", ())


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["kernels", *map(str, arguments)])


def render(rows: Sequence[Row]) -> str:
    return table.render(rows, setting="NVIDIA H200", command="python -m mhc.bench kernels", bandwidth=4.3)


def cells(text: str, start: str) -> list[list[str]]:
    """The table rows that begin with `start`, as stripped cells."""
    lines = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(
    ("shape", "stage", "one_pass", "two_pass"),
    [
        (BIG, "forward", 0.078, 0.140),
        (BIG, "backward", 0.140, 0.2185),
        (Shape(1, 1, 1, 1), "forward", 4 / 4.3e9, 6 / 4.3e9),
        (Shape(1, 1, 1, 1), "backward", 6 / 4.3e9, 10 / 4.3e9),
    ],
)
def test_the_bounds_are_the_bytes_that_must_move(shape: Shape, stage: str, one_pass: float, two_pass: float) -> None:
    least = bounds(shape, stage, 4.3)
    assert least == pytest.approx((one_pass, two_pass), rel=0.01)
    assert bounds(shape, stage, 8.6) == pytest.approx((least[0] / 2, least[1] / 2))


def test_host_time_is_that_of_issuing_and_not_of_waiting() -> None:
    now = 0.0

    def pass_time(seconds: float) -> Sequence[Tensor | None]:
        nonlocal now
        now += seconds
        return ()

    spent = host_us(lambda: pass_time(7e-6), synchronize=lambda: pass_time(1e-3), clock=lambda: now)
    assert spent == pytest.approx(7.0)


def test_scratch_is_the_peak_less_what_was_there_and_what_is_returned() -> None:
    memory = SimpleNamespace(
        synchronize=lambda: None,
        reset_peak_memory_stats=lambda: None,
        memory_allocated=lambda: 10 * 2**20,
        max_memory_allocated=lambda: 15 * 2**20,
    )
    assert scratch_mib(lambda: (torch.empty(2**18), None), memory=memory) == 4.0


@pytest.mark.parametrize("recomputes_forward", [False, True])
def test_the_tolerances_are_those_of_the_bound_gate(recomputes_forward: bool) -> None:
    inputs = materialise(scaled_case(B=1, S=3, n=2, D=5))
    gate = tolerances(inputs, reference(inputs), declared=Declared(recomputes_forward=recomputes_forward))
    ours = allowed(PRE, inputs.tensors, inputs.case.scalars, recomputes_forward=recomputes_forward)
    theirs = {**gate.outputs, **gate.gradients}
    assert list(ours) == list(theirs)
    for name, number in theirs.items():
        assert torch.equal(ours[name].value, number.value), name
        torch.testing.assert_close(ours[name].error, number.error, rtol=2.0**-28, atol=0.0)


def test_a_deviation_is_the_largest_error_and_the_largest_share_of_its_bound() -> None:
    inputs = materialise(scaled_case(B=1, S=3, n=2, D=5))
    wanted = {"h_post": allowed(PRE, inputs.tensors, inputs.case.scalars, recomputes_forward=False)["h_post"]}
    number = wanted["h_post"]
    moved = number.value.clone()
    moved[0, 1, 0] += 3 * number.error[0, 1, 0]
    found = deviations(["h_post", "h_res"], [moved, None], wanted)
    assert set(found) == {"h_post"}
    assert found["h_post"].ratio == pytest.approx(3.0)
    assert found["h_post"].error == pytest.approx(float(3 * number.error[0, 1, 0]))
    moved[0, 0, 0] = torch.nan
    assert deviations(["h_post"], [moved], wanted)["h_post"] == Deviation(torch.inf, torch.inf)


def test_everything_at_a_shape_is_timed_and_judged(metered: None) -> None:
    heard: list[Timing] = []
    row = measure(TINY, [load("manual")], CPU, compiled=False, on_timing=lambda _, timing: heard.append(timing))
    assert list(row.timings) == heard
    assert [(timing.name, timing.stage) for timing in heard] == [
        ("golden", "forward"), ("manual", "forward"), ("golden", "backward"), ("manual", "backward"),
    ]  # fmt: skip
    assert not row.failed
    assert row.note is None
    assert {timing.host_us for timing in heard} == {6.0, 5.0}  # the fake counts what a call returns
    assert [timing.entry_us for timing in heard] == [3.0, 3.0, None, None]
    accuracy = {**heard[1].accuracy, **heard[3].accuracy}
    assert list(accuracy) == [spec.name for spec in (*PRE.outputs, *PRE.gradients)]
    assert all(0 < one.ratio <= 1 for one in accuracy.values()), accuracy
    assert not heard[0].accuracy


def test_where_float64_does_not_fit_the_row_says_so(metered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "free_bytes", lambda: 100.0)
    row = measure(TINY, [load("manual")], CPU, compiled=False)
    assert not any(timing.accuracy for timing in row.timings)
    assert row.note is not None
    assert row.note.startswith("accuracy not measured: float64 needs")
    assert f"1,2,2,3: {row.note}" in render([row])


def test_the_tables_show_what_was_measured() -> None:
    timings = [
        Timing(name="golden", stage="forward", ms=2.0, host_us=300.0, entry_us=310.0, scratch_mib=512.0),
        Timing(name="compile", stage="forward", ms=0.6, host_us=50.0, scratch_mib=3.25),
        Timing(
            name="triton", stage="forward", ms=0.2, host_us=10.25, entry_us=20.5, scratch_mib=6.0,
            accuracy={"h_in": Deviation(0.0156, 0.5)},
        ),
        Timing(name="golden", stage="backward", ms=4.7),
        Timing(name="compile", variant="manual", stage="backward", ms=1.5),
        Timing(name="compile", variant="autograd", stage="backward", ms=1.1),
        Timing(name="triton", stage="backward", refused="no backward for odd days"),
    ]  # fmt: skip
    text = render([Row(shape=BIG, timings=timings)])
    assert "\n\nNVIDIA H200\n\n" in text
    assert "    python -m mhc.bench kernels\n" in text
    forward, backward, *costs, accuracy = cells(text, "4,2048,4,4096")
    assert forward == ["4,2048,4,4096", "2.0000", "0.6000", "0.2000", "3.00", "0.0780", "0.1405", "0.70"]
    assert backward == [
        "4,2048,4,4096", "4.7000", "1.1000 (autograd)", "refused", "-", "0.1405", "0.2185", "-",
    ]  # fmt: skip
    assert costs[2] == ["4,2048,4,4096", "triton", "10.2", "-", "20.5", "6.00", "-"]
    assert accuracy[:4] == ["4,2048,4,4096", "triton", "1.6e-02 (0.5)", "-"]
    assert "- 4,2048,4,4096: triton backward refused: no backward for odd days" in text
    (head,) = cells(text, "B,S,n,D")[:1]
    assert head[4:] == ["x faster than compile", "one-pass bound", "two-pass bound", "two-pass bound / measured"]


def test_a_run_prints_writes_and_exits_0(
    kernels: Path, tmp_path: Path, on_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs/results").mkdir(parents=True)
    arguments = ["--shape", "1,2,2,3", "--no-compile", "--impl", f"{kernels}:GOOD", "--write"]
    result = bench(*arguments)
    assert result.exit_code == 0, result.output
    text = Path("docs/results/kernels.md").read_text(encoding="utf-8")
    assert text in result.output
    assert f"    python -m mhc.bench kernels {' '.join(arguments)}\n" in text
    assert cells(text, "1,2,2,3")[0][1:3] == ["0.2500", "0.2500"]
    assert f" (UTC), CPU, torch {torch.__version__}, Triton " in text


def test_a_kernel_that_raises_is_a_row_that_says_so_and_exit_1(kernels: Path, on_cpu: None) -> None:
    result = bench("--shape", "1,2,2,3", "--no-compile", "--impl", f"{kernels}:RAISES")
    assert result.exit_code == 1
    forward, backward = cells(result.output, "1,2,2,3")[:2]
    assert forward[1:3] == ["0.2500", "0.2500"]
    assert backward[1:3] == ["0.2500", "raised"]
    assert "- 1,2,2,3: mine backward raised: RuntimeError: no such luck\n" in result.output
    broken = bench("--shape", "1,2,2,3", "--no-compile", "--impl", f"{kernels}:BROKEN_SUPPORTS")
    assert broken.exit_code == 1
    assert "mine forward raised: ZeroDivisionError: division by zero" in broken.output


def test_a_refusal_is_shown_and_is_no_failure_and_a_wrong_value_is_seen(kernels: Path, on_cpu: None) -> None:
    result = bench("--shape", "1,2,2,4", "--no-compile", "--impl", f"{kernels}:PICKY")
    assert result.exit_code == 0
    assert "- 1,2,2,4: mine backward refused: odd D only" in result.output
    wrong = bench("--shape", "1,2,2,3", "--no-compile", "--impl", f"{kernels}:WRONG")
    (accuracy,) = [row for row in cells(wrong.output, "1,2,2,3") if row[1] == "mine" and "(" in row[2]]
    ratios = [float(cell.split("(")[1].rstrip(")")) for cell in accuracy[2:8]]
    assert ratios[1] > 1
    assert max(ratios[0], *ratios[2:]) <= 1


def test_a_shape_that_cannot_be_set_up_is_a_row_and_exit_1(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError("out of it")

    monkeypatch.setattr("mhc.bench.kernels.contenders.draw", no_memory)
    result = bench("--shape", "1,2,2,3", "--no-compile")
    assert result.exit_code == 1
    assert "- 1,2,2,3: MemoryError: out of it" in result.output


def test_an_unforeseen_exception_exits_3(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhc.bench.kernels.cli.measure", lambda *_, **__: 1 / 0)
    assert bench("--shape", "1,2,2,3").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "PyTorch sees no CUDA device here"),
        (["--shape", "4,2048,4"], "4,2048,4: must be four integers B,S,n,D"),
        (["--shape", "4,2048,4,many"], "4,2048,4,many: must be four integers B,S,n,D"),
        (["--shape", "4,0,4,8"], "4,0,4,8: each must be at least 1, and n at most 16"),
        (["--shape", "4,1,17,8"], "4,1,17,8: each must be at least 1, and n at most 16"),
        (["--bandwidth", "0"], "--bandwidth"),
    ],
)
def test_bad_usage_exits_2_and_says_why(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = bench(*arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("name", "message"),
    [("ABSENT", "ABSENT"), ("ENV", "so start it with MHC_BENCH_TEST=1"), ("GOOD", "another one is named 'mine' too")],
)
def test_an_implementation_that_cannot_be_measured_exits_2(kernels: Path, on_cpu: None, name: str, message: str) -> None:
    result = bench("--impl", f"{kernels}:GOOD", "--impl", f"{kernels}:{name}")
    assert result.exit_code == 2
    assert message in result.output
