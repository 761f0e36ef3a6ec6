"""The mutants whose thresholds a seed draws: reproducible, within limits, loadable by name, wrong from the threshold on."""

import math
from typing import Any

import pytest

from mhc import Case, default_case, load
from mhc.case import with_tensor
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.oracles.mutants.catalogue import ALL
from mhc.oracles.mutants.edit import implementation
from mhc.oracles.mutants.load import SPEC
from mhc.oracles.mutants.thresholds import EACH, LEAST, TEMPLATES, drawn, named, threshold
from mhc.oracles.verdict import Status


def case_of(symbol: str, size: int) -> Case:
    """A case whose `symbol` has that size, with gates that are not saturated."""
    axis = {"K": "D", "N": "S"}.get(symbol, symbol)
    fields: dict[str, Any] = {axis: size}
    case = default_case(**fields, dtype="bfloat16" if symbol == "D" else "float32")
    return with_tensor(case, "phi", scale=2.0 ** -round(math.log2(case.sizes["K"]) / 2))


def fails(mutant_name: str, case: Case) -> bool:
    mutant = named(mutant_name)
    assert mutant is not None
    return any(one.status is Status.FAIL for one in check(implementation(mutant), case, "cpu", Level.PLAIN).verdicts)


def test_a_seed_draws_the_same_mutants_and_another_seed_others() -> None:
    mutants = drawn(7)
    assert mutants == drawn(7)
    assert len({mutant.name for mutant in mutants}) == EACH * len(TEMPLATES)
    others = {mutant.name for mutant in drawn(8)}
    assert len(others & {mutant.name for mutant in mutants}) < 4
    assert not others & set(ALL)


def test_thresholds_are_spread_over_every_octave_up_to_the_limit() -> None:
    values = [threshold(mutant)[1] for seed in range(40) for mutant in drawn(seed) if mutant.name.endswith("dbias_doubled")]
    limit = TEMPLATES["dbias_doubled"].limit
    assert all(LEAST <= value <= limit for value in values)
    octaves = {int(math.log2(value / LEAST)) for value in values}
    assert octaves >= set(range(int(math.log2(limit / LEAST))))


def test_a_name_is_enough_to_load_one() -> None:
    assert load(SPEC.format("past_512_h_in_column")).name == "past_512_h_in_column"
    assert named("past_512_nothing") is None
    assert named("h_in_column") is None


@pytest.mark.parametrize("template", TEMPLATES)
def test_it_is_wrong_from_its_threshold_on(template: str) -> None:
    value = 512
    symbol = TEMPLATES[template].symbol
    past = value + 64 if template == "dphi_tokens_lost" else value + 1 if symbol == "N" else value
    assert not fails(f"past_{value}_{template}", case_of(symbol, past - 64 if template == "dphi_tokens_lost" else past - 1))
    assert fails(f"past_{value}_{template}", case_of(symbol, past))
