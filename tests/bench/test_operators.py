"""`python -m mhc.bench operators`: what it counts, and that a false alarm is one."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc import load
from mhc.bench import operators
from mhc.bench.apart import Ended
from mhc.bench.cli import main
from mhc.bench.operators import Row, Share, checked, dtypes_of, render

SHARE = Share("swiglu", "bfloat16", 0, 20)


def test_golden_is_judged_and_has_no_false_alarm() -> None:
    row = Row(**checked(load("swiglu.golden"), SHARE, 0, "cpu"))
    assert (row.checked, row.cases, row.alarms) == (20, 20, [])
    assert min(row.judged[name] for name in ("y", "da", "db")) > 10
    assert 0 < max(row.largest.values()) <= 1
    text = render([row], "command", 0, "cpu")
    assert "**0 false alarms in 20 judged cases** of 20 drawn" in text
    assert f"| swiglu | bfloat16 | y | {row.judged['y']} | {row.largest['y']:.3f} | derived |" in text


def test_a_wrong_reference_is_a_false_alarm() -> None:
    golden = load("softmax.golden")
    assert golden.forward is not None
    wrong = replace(golden, forward=lambda x: (golden.forward(x)[0] * 1.01,))  # type: ignore[misc]
    row = Row(**checked(wrong, Share("softmax", "float32", 0, 10), 0, "cpu"))
    text = render([row], "command", 0, "cpu")
    assert "## False alarms" in text
    assert "y: value (bound)" in text


def test_a_run_goes_on_where_it_was_cut_short(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    words = ["operators", "--only", "softmax", "--jobs", "2", "--state", str(state), "--cases"]
    first = CliRunner().invoke(main, [*words, "10"])
    assert first.exit_code == 0, first.output
    again = CliRunner().invoke(main, [*words, "10", "--seconds", "1"])
    assert again.output.count("false alarms in 10 cases") == 0  # all three dtypes are there
    assert "0 false alarms in 30 judged cases" in " ".join(again.output.replace("*", "").split())


def test_a_process_that_ends_is_a_fault_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ends(share: Share, seed: int, device: str) -> Row:
        if share.dtype == "bfloat16":
            raise Ended("softmax.golden", 1, 2.0)
        return Row(share.name, share.operator, share.dtype, 10, 10)

    words = ["operators", "--only", "softmax", "--cases", "10", "--state", str(tmp_path / "state.json")]
    monkeypatch.setattr(operators, "measure", ends)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 3
    assert "fault: softmax bfloat16 0 10: a process of softmax.golden ended with 1" in result.stderr
    assert "0 false alarms in 20 judged cases" in " ".join(result.stdout.replace("*", "").split())
    assert "## Not measured" in result.stdout
    monkeypatch.undo()
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 0, "the state keeps no share that was not measured"


def test_an_operator_without_tensors_in_the_storage_dtype_has_one() -> None:
    assert dtypes_of("mhc_sinkhorn") == ("float32",)
    assert dtypes_of("rms_norm") == ("float32", "bfloat16", "float16")


def test_an_unknown_operator_is_refused() -> None:
    result = CliRunner().invoke(main, ["operators", "--only", "norm"])
    assert result.exit_code == 2
    assert "--only norm: no such operator; known are mhc_pre, mhc_post" in result.output
