"""A bound may not drift: on fixed operands, each is the recorded one."""

import json
import math
import re
from pathlib import Path

from mhc.oracles import bounds
from mhc.oracles.bounds import (
    addends,
    carried,
    composed,
    derived_scalars,
    deviation_number,
    elementary,
    error_number,
    later,
    made,
    made_nan,
    mask,
    most,
    operation_error,
    place,
    quantum,
    reading,
    reassociation,
    recurrence,
    repeated_terms,
    resampled,
    rounding,
    sampled_number,
    tape,
    together,
    underflow_number,
)
from mhc.oracles.bounds.aten import arithmetic, choices, complexes, moves, order, registry, solves, sums, windows
from tests.oracles import recorded

FIGURES: recorded.Figures = json.loads(recorded.FILE.read_text(encoding="utf-8"))
RECORDED = {
    section: {case: one for group in groups.values() for case, one in group.items()} for section, groups in FIGURES.items()
}
SECTIONS = recorded.sections()
PLAIN = (
    addends,
    carried,
    composed,
    derived_scalars,
    elementary,
    later,
    made,
    made_nan,
    mask,
    most,
    operation_error,
    place,
    quantum,
    reading,
    reassociation,
    recurrence,
    repeated_terms,
    resampled,
    rounding,
    tape,
    together,
)
NUMBERS = (deviation_number, error_number, sampled_number, underflow_number)
RULES = (arithmetic, choices, complexes, moves, order, registry, solves, sums, windows)
_NUMBER = re.compile(r"-?\d[\d.]*(?:e[-+]\d+)?")


def alike(one: str, other: str) -> bool:
    """Return whether two figures are the same but for the last digits of float64, which differ between machines."""
    if one == other:
        return True
    if _NUMBER.sub("", one) != _NUMBER.sub("", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-8, abs_tol=1e-6) for a, b in pairs)


def check(section: str) -> None:
    """Compare the figures of a section with the recorded ones."""
    seen = set()
    with recorded.mode(section):
        for case, call in SECTIONS[section]():
            now, then = recorded.recorded(section, call), RECORDED[section].get(case, ["nothing"])
            same = len(now) == len(then) and all(map(alike, now, then))
            assert same, f"{section}, {case}: allows {now}, recorded is {then}; if that is meant: {recorded.COMMAND}"
            seen.add(case)
    assert seen == {*RECORDED[section]}, recorded.COMMAND


# one function for each section: `python -m mhc.bench framework` gives a fault whole functions, the quickest first


def test_operations_on_operands_without_errors_allow_what_is_recorded() -> None:
    check("examples, exact")


def test_windows_of_operands_without_errors_allow_what_is_recorded() -> None:
    check("composed, exact")


def test_operations_on_operands_with_errors_allow_what_is_recorded() -> None:
    check("examples, plain")


def test_windows_of_operands_with_errors_allow_what_is_recorded() -> None:
    check("composed, plain")


def test_operations_on_operands_that_are_equal_allow_what_is_recorded() -> None:
    check("examples, equal")


def test_windows_of_operands_that_are_equal_allow_what_is_recorded() -> None:
    check("composed, equal")


def test_operations_on_operands_near_underflow_allow_what_is_recorded() -> None:
    check("examples, small")


def test_windows_of_operands_near_underflow_allow_what_is_recorded() -> None:
    check("composed, small")


def test_operations_on_operands_near_overflow_allow_what_is_recorded() -> None:
    check("examples, large")


def test_windows_of_operands_near_overflow_allow_what_is_recorded() -> None:
    check("composed, large")


def test_operations_on_operands_that_are_not_finite_allow_what_is_recorded() -> None:
    check("examples, not finite")


def test_windows_of_operands_that_are_not_finite_allow_what_is_recorded() -> None:
    check("composed, not finite")


def test_what_rounding_decides_is_unsure_where_recorded() -> None:
    check("decided")


def test_compositions_allow_what_is_recorded() -> None:
    check("compositions")


def test_tensors_that_a_function_makes_have_the_recorded_errors() -> None:
    check("made")


def test_formulas_allow_what_is_recorded() -> None:
    check("formulas")


def test_formulas_are_exact_where_recorded() -> None:
    check("quanta")


def test_sums_with_repeats_allow_what_is_recorded() -> None:
    check("repeats")


def test_sampled_numbers_move_as_recorded() -> None:
    check("sampled")


def test_sampled_tolerances_are_the_recorded_ones() -> None:
    check("tolerances")


def test_helpers_return_what_is_recorded() -> None:
    check("helpers")


def test_zeros_beside_what_is_not_finite_allow_what_is_recorded() -> None:
    check("strange")


def test_no_section_and_no_module_is_left_out() -> None:
    """A new module of bounds needs cases in one of the sections."""
    assert {*RECORDED} == {*SECTIONS}
    named = {module.__name__.removeprefix("mhc.oracles.bounds.") for module in (*PLAIN, *NUMBERS, *RULES)}
    folder = Path(*bounds.__path__)
    found = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}
    assert named == {name for name in found if not name.endswith("__init__")}
    rules = {rule.__module__ for rule in registry.RULES.values()}
    assert rules <= {module.__name__ for module in RULES}
