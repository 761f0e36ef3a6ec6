"""`python -m mhc.bench operators`: what it counts, and that a false alarm is one."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from mhc import load
from mhc.bench import operators
from mhc.bench.cli import main
from mhc.bench.operators import measure, render


def test_golden_is_judged_and_has_no_false_alarm() -> None:
    row = measure("swiglu", "bfloat16", 20, 0)
    assert (row.cases, row.alarms) == (20, [])
    assert min(row.judged[name] for name in ("y", "da", "db")) > 10
    assert 0 < max(row.largest.values()) <= 1
    text = render([row], "command", 0)
    assert "**0 false alarms in 20 checks**" in text
    assert f"| swiglu | bfloat16 | y | {row.judged['y']} | {row.largest['y']:.3f} | derived |" in text


def test_a_wrong_reference_is_a_false_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    golden = load("softmax.golden")
    assert golden.forward is not None
    wrong = replace(golden, forward=lambda x: (golden.forward(x)[0] * 1.01,))  # type: ignore[misc]
    monkeypatch.setattr(operators, "load", lambda _: wrong)
    result = CliRunner().invoke(main, ["operators", "--only", "softmax", "--cases", "10"])
    assert result.exit_code == 1, result.output
    assert "## False alarms" in result.output
    assert "y: value (bound)" in result.output


def test_an_unknown_operator_is_refused() -> None:
    result = CliRunner().invoke(main, ["operators", "--only", "norm"])
    assert result.exit_code == 2
    assert "--only norm: no such operator; known are mhc_pre, mhc_post" in result.output
