"""`check(IMPL)` under pytest: a wrong kernel fails with its smallest case, and nothing judged is no success."""

import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import Case, Implementation, ImplementationError, Refused, operator
from mhc.fuzz.check.check import check as check_case
from mhc.fuzz.findings.finding import read_finding
from mhc.testing import check, run


@operator(x="[T, D]", D=(1, 64))
def row_mean(x: Tensor) -> Tensor:
    return x.float().mean(-1)


def by_sum(x: Tensor) -> Tensor:
    return x.float().sum(-1) / x.shape[-1]


def forgets_past_eight(x: Tensor) -> Tensor:
    return x[:, :8].float().sum(-1) / x.shape[-1]


RIGHT = Implementation(name="by sum", operator=row_mean, function=by_sum)


def test_a_right_kernel_passes() -> None:
    check(RIGHT, cases=20)


def test_its_cases_are_judged_by_a_rare_gate_each_behind_the_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def judged(*arguments: Any, rare: int, **keywords: Any) -> Any:
        asked.append(rare)
        return check_case(*arguments, rare=rare, **keywords)

    monkeypatch.setattr(run, "check_case", judged)
    check(RIGHT, cases=12)
    assert asked == [-1, -1, -1, *range(9)]


def test_a_wrong_kernel_fails_with_its_smallest_case(tmp_path: Path) -> None:
    """No module has it under a name: it is saved, and no command replays it."""
    wrong = Implementation(name="wrong", operator=row_mean, function=forgets_past_eight)
    with pytest.raises(AssertionError) as raised:
        check(wrong, regressions=tmp_path, seed=1)  # in whose first failing case dx is wrong too
    found, where, case, details, _, note, also = str(raised.value).splitlines()
    assert found == "MINIMAL wrong: y: value (bound)"
    assert where.startswith("    y[0] = 0.888888")
    assert case.startswith("    row_mean-T1D9-fp32-")
    assert details.startswith("    x: ")
    assert note.startswith("    no module has it under a name, so no command replays it; ")
    assert also == "    also: dx: value (bound)"
    (fixture,) = tmp_path.iterdir()
    assert read_finding(fixture).reduction is None
    with pytest.raises(AssertionError, match=r"FOUND AGAIN wrong: y: value \(bound\)"):
        check(wrong, regressions=tmp_path)
    check(replace(RIGHT, name="wrong"), cases=5, regressions=tmp_path)
    assert fixture.exists()


def test_nothing_judged_is_no_success() -> None:
    def refuses(case: Case) -> Refused:
        del case
        return Refused("not today")

    with pytest.raises(AssertionError, match="by sum: none of 10 cases was judged: 10 refused: not today"):
        check(replace(RIGHT, supports=refuses), cases=10)


def test_the_environment_that_it_declares_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = replace(RIGHT, env={"SOME_SWITCH": "1"})
    with pytest.raises(ImplementationError, match="'by sum': set SOME_SWITCH=1 before Python starts"):
        check(needs, cases=5)
    monkeypatch.setenv("SOME_SWITCH", "1")
    check(needs, cases=5)


def test_an_interrupt_is_a_failure_where_the_kernel_raises_it_and_else_ends_the_check(
    tmp_path: Path,
) -> None:
    def raises(x: Tensor) -> tuple[Tensor, ...]:
        raise KeyboardInterrupt

    def is_interrupted(x: Tensor) -> tuple[Tensor, ...]:
        signal.raise_signal(signal.SIGINT)  # as Ctrl-C does while the kernel runs
        return (by_sum(x),)

    before = signal.getsignal(signal.SIGINT)
    for folder in (tmp_path / "one", tmp_path / "two"):
        with pytest.raises(AssertionError, match="MINIMAL by sum: forward: raises KeyboardInterrupt"):
            check(replace(RIGHT, forward=raises), cases=5, regressions=folder)
        with pytest.raises(KeyboardInterrupt):
            check(replace(RIGHT, forward=is_interrupted), cases=5, regressions=tmp_path)
        assert signal.getsignal(signal.SIGINT) is before
    with ThreadPoolExecutor() as threads, pytest.raises(KeyboardInterrupt):  # there no signal is received
        threads.submit(check, replace(RIGHT, forward=raises), cases=5, regressions=tmp_path).result()


def test_one_output_and_one_gradient_need_no_tuple_around_them(tmp_path: Path) -> None:
    def alone(x: Tensor) -> Any:
        return by_sum(x)

    def backward(x: Tensor, dy: Tensor) -> tuple[Tensor]:
        return ((dy[:, None] / x.shape[-1]).expand(x.shape).to(x.dtype).contiguous(),)

    def number(x: Tensor) -> Any:
        return float(torch.sum(x))

    check(Implementation(name="alone", operator=row_mean, forward=alone, backward=backward), cases=20)
    bare = Implementation(name="bare", operator=row_mean, forward=alone, backward=lambda x, dy: backward(x, dy)[0])
    check(bare, cases=20)
    check(Implementation(name="in a tuple", operator=row_mean, forward=lambda x: (alone(x),)), cases=20)
    with pytest.raises(AssertionError, match=r"a number\.forward returned float for y; expected \[T\]"):
        check(Implementation(name="a number", operator=row_mean, forward=number), cases=5, regressions=tmp_path)


def test_gradients_of_autograd_may_share_memory_as_autograd_s_do() -> None:
    @operator(a="[T]", b="[T]")
    def added(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    check(Implementation(name="added", operator=added, function=lambda a, b: b + a), cases=20)
