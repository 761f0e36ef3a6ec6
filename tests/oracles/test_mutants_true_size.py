"""The mutants at true size: each is wrong at its trigger and right just below it, every other axis small."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mhc import Case, default_case
from mhc.case import with_tensor
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.oracles.mutants.catalogue import ALL
from mhc.oracles.mutants.edit import implementation
from mhc.oracles.mutants.record import Mutant
from mhc.oracles.mutants.true_size import FAR, TRUE_SIZE
from mhc.oracles.verdict import Status
from tests.support.needs import WITHOUT_TILELANG

Sizes = Mapping[str, Any]

_F32 = "float32"
TRIGGERS: Mapping[str, tuple[Sizes, Sizes]] = {
    "wide_projection_column": ({"D": 512}, {"D": 511}),
    "wide_dphi_column": ({"D": 512}, {"D": 511}),
    "wide_h_in_column": ({"D": 512}, {"D": 511}),
    "wide_bf16_dx_zero": ({"D": 1280}, {"D": 1279}),
    "wide_dx_without_norm": ({"D": 2560, "dtype": _F32}, {"D": 2559, "dtype": _F32}),
    "squares_of_4096_columns": ({"D": 4224}, {"D": 4096}),
    "projection_of_16384_columns": ({"D": 8193, "n": 2}, {"D": 8192, "n": 2}),
    "wide_ragged_tail": ({"D": 1281}, {"D": 1280}),
    "config_of_7168": ({"D": 7168}, {"D": 7167}),
    "config_of_4_by_2560": ({"D": 2560, "n": 4}, {"D": 2560, "n": 3}),
    "four_wide_streams": ({"D": 2048, "n": 4}, {"D": 2047, "n": 4}),
    "eight_wide_streams": ({"D": 1024, "n": 8}, {"D": 1023, "n": 8}),
    "wide_odd_element": ({"D": 1025, "dtype": _F32}, {"D": 1023, "dtype": _F32}),
    "dh_pre_of_2048_columns": ({"D": 2049, "dtype": _F32}, {"D": 2048, "dtype": _F32}),
    "even_rows_lose_a_block": ({"D": 4096}, {"D": 4095}),
    "long_dbias_doubled": ({"S": 1026}, {"S": 1025}),
    "many_programs_dbias_doubled": ({"B": 256, "S": 256}, {"B": 255, "S": 257}),
    "last_program_lost": ({"B": 256, "S": 256}, {"B": 255, "S": 257}),
    "rows_past_2048_lost": ({"S": 2049}, {"S": 2048}),
    "dphi_of_4096_tokens": ({"S": 4097}, {"S": 4096}),
    "dgamma_of_8192_tokens": ({"S": 8193}, {"S": 8192}),
    "dalpha_of_32767_tokens": ({"S": 33280}, {"S": 32768}),
    "positions_clamped_at_1024": ({"S": 1026}, {"S": 1025}),
    "positions_wrap_at_4096": ({"S": 4097}, {"S": 4096}),
    "batches_past_65535_lost": ({"B": 65536}, {"B": 65535}),
    "tokens_wrap_at_65536": ({"S": 65537}, {"S": 65536}),
    "offsets_wrap_at_2_20": ({"S": 129, "D": 8192}, {"S": 128, "D": 8192}),
    "squares_flushed": ({"power": -66, "S": 2, "D": 3}, {"power": -50, "S": 2, "D": 3}),
    "mean_flushed": ({"power": -66, "S": 2, "D": 3}, {"power": -60, "S": 2, "D": 3}),
    "t_blocks_past_32": ({"D": 2049}, {"D": 2048}),
    "t_tokens_wrap_at_1024": ({"S": 1025}, {"S": 1024}),
    "t_h_in_past_2048_columns": ({"D": 2049}, {"D": 2048}),
    "t_wide_dx_without_norm": ({"D": 2560, "dtype": _F32}, {"D": 2559, "dtype": _F32}),
    "t_dphi_past_2048_columns": ({"D": 2049}, {"D": 2048}),
    "t_gates_of_32_programs": ({"S": 1025}, {"S": 1024}),
    "c_tokens_past_65535": ({"S": 65536}, {"S": 65535}),
    "c_tiles_past_128": ({"S": 4097}, {"S": 4096}),
    "c_wide_h_in_column": ({"D": 512}, {"D": 511}),
    "c_blocks_past_64": ({"D": 8193, "n": 2}, {"D": 8192, "n": 2}),
    "c_tokens_wrap_at_65536": ({"S": 66560}, {"S": 65536}),
    "c_wide_dx_without_norm": ({"D": 2560, "dtype": _F32}, {"D": 2559, "dtype": _F32}),
}
C_BACKWARD = {"c_tiles_past_128", "c_tokens_wrap_at_65536", "c_wide_dx_without_norm"}


def witness(sizes: Sizes) -> Case:
    """A case of these sizes, 1 where none is given, whose gates are not saturated.

    With `power`, x is near that power of two and no eps is added.
    """
    fields = dict(sizes)
    power = fields.pop("power", None)
    scalars = {} if power is None else {"norm_eps": 0.0}
    case = default_case(**fields, scalars=scalars)
    case = with_tensor(case, "phi", scale=2.0 ** -round(math.log2(case.sizes["K"]) / 2))
    return case if power is None else with_tensor(case, "x", scale=2.0 ** int(power))


def failing(name: str, sizes: Sizes) -> list[str]:
    """What fails on the witness; of TileLang's the forward or the backward alone, which halves what is compiled."""
    subject = implementation(ALL[name])
    if subject.name in C_BACKWARD:
        subject = replace(subject, forward=None)
    elif ALL[name].base == "tilelang":
        subject = replace(subject, backward=None)
    verdicts = check(subject, witness(sizes), "cpu", Level.PLAIN).verdicts
    assert verdicts
    return [f"{one.subject}: {one.message}" for one in verdicts if one.status is Status.FAIL]


def test_every_one_that_runs_on_the_cpu_has_a_trigger() -> None:
    assert set(TRIGGERS) == {mutant.name for mutant in TRUE_SIZE if mutant.device == "cpu"}
    assert all(mutant.device == "cuda" for mutant in FAR)


QUICK = {"c_wide_h_in_column"}
"""Of those in Triton's interpreter and those that TileLang compiles, which take seconds each, the ones that are not slow."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=pytest.mark.slow if ALL[one].base in {"triton", "tilelang"} and one not in QUICK else ())
        for one in TRIGGERS
    ],
)
def test_it_is_wrong_at_its_trigger_and_right_below(name: str) -> None:
    if ALL[name].base == "tilelang" and WITHOUT_TILELANG:
        pytest.skip(WITHOUT_TILELANG)
    at, below = TRIGGERS[name]
    assert failing(name, below) == []
    assert failing(name, at)


FAR_AT: Mapping[str, tuple[str, str]] = {
    "offsets_wrap_at_2_24": ("0xFFFFFF", "0xFFF"),
    "bytes_wrap_at_2_31": ("2**31", "2**13"),
    "offsets_wrap_at_2_31": ("2**31", "2**12"),
}
"""What of a mutant's edit is its threshold, and a smaller one for 4,096 bfloat16 elements."""


@pytest.mark.parametrize("mutant", FAR, ids=lambda mutant: mutant.name)
def test_what_needs_a_gpu_is_wrong_past_a_smaller_threshold(mutant: Mutant) -> None:
    """The edit itself, which cannot run at its true size here."""
    true, small = FAR_AT[mutant.name]
    assert true in mutant.new
    smaller = implementation(replace(mutant, name=f"{mutant.name}_small", new=mutant.new.replace(true, small)))
    for subject, S, wrong in ((smaller, 64, False), (smaller, 65, True), (implementation(mutant), 65, False)):
        verdicts = check(subject, witness({"S": S, "D": 64}), "cpu", Level.PLAIN).verdicts
        assert any(one.status is Status.FAIL for one in verdicts) == wrong, (subject.name, S)
