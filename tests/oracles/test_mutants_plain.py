"""Mutants of the operators beside mHC pre: each is found within a few drawn cases, and the kernels as they are pass."""

from collections import Counter
from functools import cache

import hypothesis
import pytest
from hypothesis import Phase

from mhc import Case, load
from mhc.bench.detection.hunt import base_subject, drawn_for
from mhc.fuzz.check.check import check
from mhc.oracles.mutants.edit import implementation
from mhc.oracles.mutants.plain.catalogue import PLAIN
from mhc.oracles.mutants.record import BASES, Mutant
from mhc.registry import BUILT_IN
from mhc.strategies.cases import cases
from mhc.strategies.rounds import ROUND, quiet

OF_PLAIN = [name for name, base in BASES.items() if base.operator != "mhc_pre"]
SLOW = {"mhc_sinkhorn", "mhc_layer"}
"""Judged by a sampled tolerance: a second or two for a case."""


@cache
def drawn(operator: str, count: int) -> tuple[Case, ...]:
    """Small cases, in the rounds of a campaign."""
    found: list[Case] = []

    def keep(case: Case) -> None:
        found.append(case)

    for seed in range(count // ROUND):
        settings = quiet(ROUND, phases=(Phase.generate,))
        hypothesis.seed(seed)(settings(hypothesis.given(cases(operator=operator, max_elements=1 << 12))(keep)))()
    return tuple(found)


def killed_at(mutant: Mutant, count: int) -> int | None:
    """The number of the first case that fails."""
    subject = implementation(mutant)
    for number, case in enumerate(drawn(BASES[mutant.base].operator, count), 1):
        if check(subject, case, "cpu").failures:
            return number
    return None


def test_there_are_five_of_each_operator_and_sixty_in_all() -> None:
    counted = Counter(mutant.base for mutant in PLAIN)
    assert set(counted) == set(OF_PLAIN)
    assert min(counted.values()) >= 5
    assert len(PLAIN) >= 60
    assert not [one.name for one in PLAIN if one.gap]
    assert {BASES[name].operator for name in OF_PLAIN} <= {one.operator for one in BUILT_IN}


@pytest.mark.parametrize(
    "mutant", [one for one in PLAIN if one.base not in SLOW and not one.gap], ids=lambda mutant: mutant.name
)
def test_each_is_found(mutant: Mutant) -> None:
    assert killed_at(mutant, 150) is not None, f"{mutant.name} ({mutant.bug}) survives"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [one for one in PLAIN if one.base in SLOW], ids=lambda mutant: mutant.name)
def test_each_of_sinkhorn_is_found(mutant: Mutant) -> None:
    assert killed_at(mutant, 30) is not None, f"{mutant.name} ({mutant.bug}) survives"


@pytest.mark.slow  # the operators' own tests judge each once
@pytest.mark.parametrize("base", [one for one in OF_PLAIN if one not in SLOW])
def test_what_they_are_edits_of_passes(base: str) -> None:
    subject = load(base_subject(base).spec)
    for case in drawn(BASES[base].operator, 30):
        assert not check(subject, case, "cpu").failures, case.id


def test_a_hunt_draws_cases_of_the_base_s_operator() -> None:
    assert {case.operator for case in drawn_for("rope", 12, 0)} == {"rope"}
