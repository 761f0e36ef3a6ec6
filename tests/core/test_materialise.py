"""Materialising a case: the same bits everywhere, and what each recipe and layout means."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

from mhc import Case, Inputs, default_case, materialise, operator
from mhc import values as mhc_values
from mhc.case import with_tensor
from mhc.inputs import checksum
from mhc.operator import STORAGE_DTYPES, register
from mhc.recipe import RECIPE_KINDS
from mhc.strategies.cases import cases
from tests.support.helpers import ROOT, with_layout

CHECKSUMS = Path(__file__).parents[1] / "checksums.json"

PRINT_CHECKSUMS = (
    "import json; from tests.core.test_materialise import current_checksums; print(json.dumps(current_checksums()))"
)


def checksum_cases() -> dict[str, Case]:
    """One case for each kind and each dtype; sizes that no vector width divides."""
    named = {}
    for kind in RECIPE_KINDS:
        case = default_case(B=2, S=3, n=3, D=37, dtype="float64")
        for spec in case.table.drawn:
            case = with_tensor(case, spec.name, kind=kind, scale=1 / 3)
        named[kind] = case
    for dtype in STORAGE_DTYPES:
        named[dtype] = replace(named["normal"], dtype=dtype)
    literals = (((1, 2, 0, 36), float("nan")), ((0, 0, 2, 0), -math.inf), ((0, 1, 0, 0), 1e-40))
    named["literals"] = with_tensor(named["float32"], "x", literals=literals)
    named["large seed"] = with_tensor(named["float32"], "x", seed=2**64 - 1)
    return named


def current_checksums() -> dict[str, dict[str, str]]:
    return {
        name: {key: checksum(tensor) for key, tensor in materialise(case).tensors.items() if tensor is not None}
        for name, case in checksum_cases().items()
    }


def test_a_stream_does_not_depend_on_those_before_it() -> None:
    for seed, stream, count in ((3, 1 << 33, 5), (3, 1 << 33, 4), (2**64 - 1, 7, 9), (0, 0, 1)):
        key = np.array([seed, stream], dtype=np.uint64)
        assert mhc_values._raw(seed, stream, count).tolist() == np.random.Philox(key=key).random_raw(count).tolist()


def test_the_same_bits_as_on_every_other_machine() -> None:
    """`python -m tests.core.test_materialise` writes the file anew; a change of it breaks every fixture ever saved."""
    assert current_checksums() == json.loads(CHECKSUMS.read_text(encoding="utf-8"))


def test_the_same_bits_on_a_processor_without_vector_units() -> None:
    env = {
        **os.environ,
        "ATEN_CPU_CAPABILITY": "default",
        "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX" if sys.platform == "linux" else "",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRINT_CHECKSUMS],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == json.loads(CHECKSUMS.read_text(encoding="utf-8"))


def test_the_checksums_notice_a_changed_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    restarted = mhc_values._restarted
    monkeypatch.setattr(mhc_values, "_restarted", lambda seed, stream: restarted(seed, stream + 1))
    stored = json.loads(CHECKSUMS.read_text(encoding="utf-8"))
    changed = {name for name, sums in current_checksums().items() if sums != stored[name]}
    assert changed == set(stored) - {"zero", "constant", "alternating"}


def values(case: Case, name: str = "x") -> torch.Tensor:
    tensor = materialise(case).tensors[name]
    assert tensor is not None
    return tensor


def test_normal_is_standard_normal() -> None:
    """Moments within five standard errors of N(0, 1)'s; the fourth is Irwin-Hall's, 3 - 1.2/12."""
    sample = values(default_case(B=1, S=100, n=10, D=100, dtype="float64"))
    root = math.sqrt(sample.numel())
    assert abs(sample.mean()) < 5 / root
    assert abs(sample.square().mean() - 1) < 5 * math.sqrt(2) / root
    assert abs(sample.pow(4).mean() - 2.9) < 5 * math.sqrt(96) / root
    assert len(set(sample.flatten().tolist())) > 0.999 * sample.numel()


def test_kinds() -> None:
    case = default_case(B=2, S=3, n=2, D=8, dtype="float64")
    made = {kind: values(with_tensor(case, "x", kind=kind, scale=3.0)) for kind in RECIPE_KINDS}
    assert not made["zero"].any()
    assert (made["constant"] == 3).all()
    assert made["alternating"].reshape(-1)[:3].tolist() == [3.0, -3.0, 3.0]
    assert set((made["exact"] / 3).flatten().tolist()) <= {0.0, 1.0, -1.0, 0.5, -0.5, 0.25, -0.25}
    rows = (made["row_scaled"] / made["normal"]).log2()
    assert torch.equal(rows, rows.round())
    assert torch.equal(rows, rows[..., :1].expand_as(rows))
    assert len(set(rows.flatten().tolist())) > 1
    columns = (made["column_scaled"] / made["normal"]).log2()
    assert torch.equal(columns, columns[:1, :1, :1].expand_as(columns))
    assert len(set(columns.flatten().tolist())) > 1


def test_two_tensors_of_one_case_never_share_a_stream() -> None:
    case = default_case(B=1, S=2, n=1, D=8, dtype="float64")
    for spec in case.table.drawn:
        case = with_tensor(case, spec.name, seed=5)
    made = materialise(case).tensors
    assert not torch.equal(made["dh_in"].reshape(-1), made["x"].reshape(-1))  # type: ignore[union-attr]
    assert not torch.equal(values(with_tensor(case, "x", seed=6)), values(case))


def storage_gaps(made: Inputs, name: str) -> torch.Tensor:
    """The elements of a tensor's storage that no index reaches."""
    tensor, storage = made.tensors[name], made.storages[name]
    assert tensor is not None
    reached = torch.zeros(storage.shape, dtype=torch.bool)
    reached.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
    return storage[~reached]


@given(cases(special=False))
def test_layouts_change_where_not_what(case: Case) -> None:
    made = materialise(case)
    for spec in case.table.drawn:
        recipe, tensor = case.tensors.get(spec.name), made.tensors[spec.name]
        if recipe is None:
            assert tensor is None
            continue
        assert tensor is not None
        assert tuple(tensor.shape) == spec.shape(case.sizes)
        assert tensor.dtype == spec.dtype(STORAGE_DTYPES[case.dtype])
        assert not tensor.isnan().any()
        assert tensor.storage_offset() == recipe.layout.offset
        if not recipe.layout.expand:
            plain = values(with_tensor(case, spec.name, layout=type(recipe.layout)()), spec.name)
            assert torch.equal(plain, tensor)
        if tensor.numel() and not recipe.layout.expand:
            assert storage_gaps(made, spec.name).isnan().all()


def test_a_layout_is_what_slicing_and_transposing_give() -> None:
    case = default_case(B=2, S=3, n=2, D=4)
    base = torch.empty(3, 2, 2, 11).permute(1, 0, 2, 3)[..., 3:11:2]
    strided = with_layout(case, "x", order=(1, 0, 2, 3), step=2, pad=3, offset=3)
    made = values(strided)
    assert (made.stride(), made.storage_offset()) == (base.stride(), base.storage_offset())
    assert values(with_layout(case, "x", expand=(1,))).stride() == (8, 0, 4, 1)


if __name__ == "__main__":
    CHECKSUMS.write_text(json.dumps(current_checksums(), indent=1) + "\n", encoding="utf-8")


def test_values_that_repeat_are_scaled_like_others() -> None:
    one, two = (
        materialise(with_tensor(default_case(B=4, S=8, n=2, D=3), "x", period=12, scale=scale)).tensors["x"]
        for scale in (1.0, 4.0)
    )
    assert one is not None
    assert two is not None
    assert torch.equal(4 * one, two)
    assert torch.equal(one[0, 0], one[0, 2]), "or nothing repeats"


@operator(
    **{"i": "[T, D] int64 in 3..7 or -1", "s": "[T, D] int32 in 0..9 sorted"},  # type: ignore[arg-type]
    **{"p": "[T, D] int64 permutation", "b": "[T, D] bool", "w": "[T, D] int32 in 0..5000"},  # type: ignore[arg-type]
    o="[T, D] int32 in 0..9 offsets",
    T=(0, 99),
    D=(0, 99),
)
def declared_integers(i: Tensor, s: Tensor, p: Tensor, b: Tensor, w: Tensor, o: Tensor) -> Tensor:
    return i + p


register(declared_integers)


def integers(name: str, kind: str, T: int = 3, D: int = 6, **changes: Any) -> list[list[int]]:
    case = with_tensor(default_case(operator="declared_integers", T=T, D=D), name, kind=kind, **changes)
    found: list[list[int]] = materialise(case).tensors[name].tolist()  # type: ignore[union-attr]
    return found


def test_kinds_of_integers_without_chance() -> None:
    assert integers("i", "zero") == [[3] * 6] * 3
    assert integers("i", "constant") == [[6] * 6] * 3
    assert integers("i", "sentinel") == [[-1] * 6] * 3
    assert integers("i", "ascending") == [[3, 4, 5, 6, 3, 4]] * 3
    assert integers("s", "ascending", D=11) == [sorted([*range(9), 0, 1])] * 3
    assert integers("o", "ascending", D=4) == [[0, 1, 2, 8]] * 3
    assert integers("o", "constant") == [[0, 8, 8, 8, 8, 8]] * 3
    assert integers("o", "zero", D=2) == [[0, 8]] * 3
    assert integers("o", "uniform", D=1) == [[0]] * 3
    assert integers("p", "ascending") == [[0, 1, 2, 3, 4, 5]] * 3
    assert integers("p", "constant") == [[0, 1, 2, 3, 4, 5]] * 3
    assert integers("b", "zero") == [[False] * 6] * 3
    assert integers("b", "constant") == [[True] * 6] * 3
    assert integers("b", "ascending") == [[False, True] * 3] * 3
    assert integers("i", "zero", T=0) == []
    assert integers("i", "uniform", D=0) == [[], [], []]
    assert integers("i", "ascending", period=5) == [[3, 4, 5, 6, 3, 3], [4, 5, 6, 3, 3, 4], [5, 6, 3, 3, 4, 5]]


def test_kinds_of_integers_in_runs() -> None:
    """Runs as long as a tile: padding on the left or right, tokens without a target, sequences of one expert."""
    lengths: list[float] = []
    for seed in range(12):
        rows = integers("b", "prefix", T=40, D=30, seed=seed)
        assert all(row == sorted(row) for row in rows)
        assert len({sum(row) for row in rows}) > 10, "of any length, and each row another one"
        assert all(row == sorted(row, reverse=True) for row in integers("b", "suffix", T=40, D=30, seed=seed))
        for kind, ends in (("prefix", slice(None)), ("suffix", slice(None, None, -1))):
            for row in integers("i", kind, T=9, D=30, seed=seed):
                missing = row.count(-1)
                assert row[ends][:missing] == [-1] * missing
                assert set(row) <= {-1, 3, 4, 5, 6}
        rows = integers("i", "blocks", T=99, D=99, seed=seed)
        flat = [one for row in rows for one in row]
        changes = sum(one != other for one, other in pairwise(flat))
        lengths.append(len(flat) / (1 + changes))
        assert {-1, 3, 4, 5, 6} >= set(flat)
        assert lengths[-1] > 64 or 0.1 < flat.count(-1) / len(flat) < 0.6
        common = math.gcd(*(one for row in integers("w", "multiples", T=30, D=30, seed=seed) for one in row))
        assert common in (8, 16, 32, 64, 128)
        for row in integers("w", "consecutive", T=9, D=20, seed=seed):
            assert row == [*range(row[0], row[0] + 20)]
    assert 8 < min(lengths) < 16
    assert 128 < max(lengths) < 400, "8 to 256 on average, and some are equal to the next"
    assert len({row[0] for row in integers("w", "consecutive", T=99, D=20)}) > 90
    assert integers("i", "consecutive", D=5) == [[3, 4, 5, 6, 3]] * 3, "there is no room for another first one"
    assert integers("i", "prefix", T=9, D=99, seed=1, period=20)[0][:40] == 2 * integers("i", "prefix", T=1, D=20, seed=1)[0]


def test_masked_values_have_infinities_in_a_run_and_never_only_these() -> None:
    ends = set()
    for seed in range(6):
        case = with_tensor(default_case(B=2, S=3, n=4, D=64), "x", kind="masked", seed=seed, scale=2.0)
        x = materialise(case).tensors["x"]
        assert x is not None
        masked, plain = x == -math.inf, materialise(with_tensor(case, "x", kind="normal")).tensors["x"]
        assert plain is not None
        assert torch.equal(x[~masked], plain[~masked])
        assert masked.any()
        assert not masked.all(-1).any()
        first, last = ((runs.diff(dim=-1) <= 0).all().item() for runs in (masked.int(), masked.int().flip(-1)))
        assert first != last, "of all rows at the beginning, or of all at the end"
        ends.add(last)
    assert ends == {True, False}


def test_kinds_of_integers_at_random() -> None:
    def counted(kind: str, name: str = "i") -> tuple[list[list[int]], Counter[int]]:
        rows = integers(name, kind, T=64, D=64, seed=5)
        return rows, Counter(one for row in rows for one in row)

    for kind, inside in (
        ("uniform", {3, 4, 5, 6}),
        ("ends", {3, 6}),
        ("repeated", {3, 4, 5, 6}),
        ("row_constant", {3, 4, 5, 6}),
    ):
        rows, counts = counted(kind)
        assert set(counts) == {*inside, -1}, kind
        assert 0.1 < counts[-1] / 4096 < 0.15, "one in eight is the sentinel"
        assert min(counts[one] for one in inside) > 0.5 * (4096 - counts[-1]) / len(inside)
        if kind == "row_constant":
            assert {len({*row} - {-1}) for row in rows} == {1}
    flat = [one for row in counted("repeated", "s")[0] for one in row]
    assert flat != sorted(flat)
    plain = [one for row in integers("b", "uniform", T=64, D=64) for one in row]
    runs = 1 + sum(one != other for one, other in pairwise(plain))
    held = [one for row in integers("b", "repeated", T=64, D=64) for one in row]
    changes = 1 + sum(one != other for one, other in pairwise(held))
    assert 1850 < runs < 2250
    assert 420 < changes < 620, "runs of four on average, of which half are equal to the next"
    rows, counts = counted("uniform", "p")
    assert {tuple(sorted(row)) for row in rows} == {tuple(range(64))}
    assert len({tuple(row) for row in rows}) == 64
    assert integers("i", "uniform", seed=5) != integers("i", "uniform", seed=6)


def test_a_few_rows_keep_their_values_the_first_and_the_last_among_them() -> None:
    case = default_case(B=1, S=40, n=1, D=4, dtype="float64")
    every = values(case).reshape(40, 4)
    for rows, most in ((1, 2), (2, 2), (3, 3), (6, 6)):
        counts = set()
        for seed in range(8):
            made = values(with_tensor(case, "x", rows=rows, seed=seed)).reshape(40, 4)
            kept = made.any(-1).nonzero().flatten().tolist()
            assert {0, 39} <= {*kept}
            counts.add(len(kept))
        assert max(counts) == most
    for rows in (0, 40, 41):
        assert torch.equal(values(with_tensor(case, "x", rows=rows)).reshape(40, 4), every)
