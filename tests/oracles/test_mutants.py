"""Mutants: each edit applies exactly once and loads; of each kind some are killed, and the clean variants are not flagged.

The full matrix is `python -m mhc.bench detection`; docs/results/detection.md has one.
"""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mhc import Case, default_case, load
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.oracles.mutants.catalogue import ALL, CLEAN, MUTANTS, NEEDS_A_GPU
from mhc.oracles.mutants.edit import EditError, implementation, sources
from mhc.oracles.mutants.load import SPEC
from mhc.oracles.mutants.record import BASES, Mutant
from mhc.oracles.verdict import Status
from tests.support.helpers import scaled_case, with_layout
from tests.support.needs import WITHOUT_TILELANG

ids = pytest.mark.parametrize("mutant", ALL.values(), ids=lambda mutant: mutant.name)


def cases(mutant: Mutant) -> list[Case]:
    """A few that reach most of what a mutant changes: several tiles and splits, tails, gamma, eps, two dtypes, views."""
    small = scaled_case(0.1, B=1, S=3, n=2, D=5, dtype="float32", scalars={"norm_eps": 0.125, "hc_eps": 0.125})
    strided = with_layout(scaled_case(3.0, B=2, S=2, n=3, D=24, dtype="float32"), "x", order=(1, 0, 2, 3), pad=1)
    if mutant.base == "tilelang":
        return [small, strided]
    terms = [scaled_case(0.1, B=1, S=17, n=1, D=150, dtype=dtype) for dtype in ("bfloat16", "float16")]
    return [small, strided, *terms, default_case(B=2, S=0, n=5, D=3)]


def killers(mutant: Mutant) -> list[str]:
    """What fails the mutant in a few cases, in this process; at the first case that does.

    Of TileLang's the forward alone, which halves what a compiler has to do.
    """
    subject = implementation(mutant)
    if mutant.base == "tilelang":
        subject = replace(subject, backward=None)
    for case in cases(mutant):
        failures = [one for one in check(subject, case, "cpu", Level.PLAIN).verdicts if one.status is Status.FAIL]
        if failures:
            return [f"{one.subject}: {one.symptom} ({one.oracle}): {one.message}" for one in failures]
    return []


def skip_what_is_missing(base: str) -> None:
    if base == "tilelang" and WITHOUT_TILELANG:
        pytest.skip(WITHOUT_TILELANG)


def test_there_are_enough_of_each_kind() -> None:
    assert len(MUTANTS) >= 60
    counted = Counter(mutant.base for mutant in MUTANTS)
    assert set(counted) == set(BASES)
    assert min(counted["triton"], counted["tilelang"]) >= 15
    assert len({(one.file, one.old, one.new) for one in ALL.values()}) == len(ALL)
    assert all(mutant.clean == (mutant in CLEAN) for mutant in ALL.values())
    assert all(one.bug and one.reason for one in NEEDS_A_GPU)


@ids
def test_the_edit_applies_exactly_once_and_changes_one_module(mutant: Mutant) -> None:
    package = "some_package"
    texts = sources(mutant, package)
    assert {BASES[mutant.base].module, mutant.file} <= set(texts)
    for name, text in texts.items():
        compile(text, name, "exec")
        assert not re.search(rf"mhc\.pre\.{mutant.file}\b", text), f"{name} still leads to the unedited {mutant.file}"


@ids
def test_it_loads_under_its_own_name(mutant: Mutant) -> None:
    """From its own copy; nothing runs."""
    loaded = load(SPEC.format(mutant.name))
    assert loaded.name == mutant.name
    base = load(f"{BASES[mutant.base].package}.{BASES[mutant.base].module}:{BASES[mutant.base].attribute}")
    assert (loaded.devices, loaded.dtypes, loaded.schedule) == (base.devices, base.dtypes, base.schedule)
    assert loaded.forward is not base.forward


def test_an_edit_that_no_longer_applies_is_an_error() -> None:
    some = ALL["post_without_its_2"]
    for old, said in (("no such line", "occurs 0 times"), ("flat", "times in formula.py; it must occur once")):
        with pytest.raises(EditError, match=said):
            sources(replace(some, old=old), "p")
    with pytest.raises(EditError, match="changes nothing"):
        sources(replace(some, new=some.old), "p")
    with pytest.raises(EditError, match=r"does not lead to triton\.forward"):
        sources(replace(some, file="triton.forward"), "p")


def test_a_schedule_goes_to_the_base_under_its_own_name() -> None:
    """What `supports` says of a pinned schedule: the base looks it up under the base's name."""
    mutant = implementation(ALL["split_not_counted"])
    case = default_case(B=1, S=2, n=1, D=3, dtype="float64", schedules={mutant.name: {"forward_presplit": True}})
    refused = mutant.refusal(case, "cpu")
    assert refused is not None
    assert "forward_presplit must be False" in refused.reason


def test_nothing_is_written_where_it_was_written_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MHC_CACHE", str(tmp_path))
    mutant = replace(ALL["res_transposed"], name="res_transposed_again")
    first = implementation(mutant)
    (place,) = (tmp_path / "mutants").iterdir()
    assert [path.name for path in place.iterdir()] == ["mhc_mutant_res_transposed_again"]
    assert implementation(mutant).forward is first.forward
    assert len(list((tmp_path / "mutants").iterdir())) == 1


KILLED = (
    *("eps_outside_the_root", "half_the_squares", "bf16_squares", "gamma_column_major", "pre_without_hc_eps"),
    *("dinv_with_inv_rms_squared", "dgamma_without_inv_rms", "slope_with_hc_eps", "bf16_dh_mix", "dx_all_zero"),
    *("strides_ignored", "phi_folded_in_place", "raises_for_odd_widths", "dbias_added_to_garbage"),
    *("masked_lanes_squared", "split_rounded_down", "two_terms", "gate_boundary", "lost_product_of_terms"),
    *("c_tail_lanes_dropped", "c_one_token_too_many"),
)


@pytest.mark.parametrize("name", KILLED)
def test_a_sample_is_killed_within_a_few_cases(name: str) -> None:
    mutant = ALL[name]
    skip_what_is_missing(mutant.base)
    failures = killers(mutant)
    assert failures, f"{name} ({mutant.bug}) survives"
    assert not any("BuildError" in one for one in failures), failures


@pytest.mark.parametrize("mutant", [one for one in CLEAN if one.base != "tilelang"], ids=lambda mutant: mutant.name)
def test_clean_variants_pass(mutant: Mutant) -> None:
    assert killers(mutant) == []


def test_a_clean_compiled_variant_passes() -> None:
    skip_what_is_missing("tilelang")
    assert killers(ALL["clean_fused"]) == []
