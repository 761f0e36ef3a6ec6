"""What strategies draw: the choices and their weights, the budget of elements to the last one."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from torch import Tensor

from mhc import Case, default_case, operator
from mhc.operator import OPERATORS, register
from mhc.operators.mhc_pre import shapes as own
from mhc.operators.mhc_pre.table import sizes as sizes_of
from mhc.recipe import Layout, Recipe
from mhc.strategies import cases as cases_
from mhc.strategies import layouts, reach, shapes, values
from mhc.strategies.cases import cases
from mhc.strategies.choice import choice
from mhc.strategies.layouts import laid_out
from mhc.strategies.regions import regions
from mhc.strategies.rounds import ROUND, quiet
from mhc.strategies.rounds import drawn as one_round
from mhc.strategies.schedules import schedules, tiles
from mhc.strategies.values import one_hot, special_values
from mhc.tensor_spec import TensorSpec

TABLE = OPERATORS["mhc_pre"]
NAMES = [spec.name for spec in TABLE.drawn]


def drawn(strategy: st.SearchStrategy[Any], count: int = 300) -> list[Any]:
    """`count` draws in rounds of ten, the same each time, without the first of a round, which is the simplest."""
    found: list[Any] = []
    for at in range(-(-count // 9)):
        here: list[Any] = []
        test = hypothesis.given(strategy)(_into(here))
        hypothesis.seed(at)(hypothesis.settings(quiet(ROUND, phases=(Phase.generate,)))(test))()
        found += here[1:]
    return found[:count]


def _into(found: list[Any]) -> Callable[[Any], None]:
    def look(one: Any) -> None:
        found.append(one)

    return look


@cache
def drawn_cases() -> tuple[Case, ...]:
    return tuple(drawn(cases(spaces={"mine": {"BLOCK": (8, 96), "FAST": (True, False)}}), 700))


def own_shapes(max_n: int, like: tuple[int, int] | None = None, **options: Any) -> st.SearchStrategy[Any]:
    """Shapes (B, S, n, D) of mHC pre with at most `max_n` streams."""
    table = replace(TABLE, draw_sizes=partial(own.draw_sizes, max_n=max_n))
    kept = None if like is None else dict(zip("nD", like, strict=True))
    sizes = reach.own_sizes(table=table, reach=reach.Reach.USUAL, like=kept, **options)
    return sizes.map(lambda sizes: tuple(sizes[name] for name in table.axis_names))


def share(found: Iterable[bool]) -> float:
    told = list(found)
    return sum(told) / len(told)


def test_the_choices_and_their_weights() -> None:
    """A choice that is dropped, or drawn more often, is a change of what campaigns see: make it here too."""
    assert Counter(values.KINDS) == {
        **dict.fromkeys(("constant", "zero", "sign", "exact", "alternating", "column_scaled", "cancelling", "offset"), 1),
        **{"normal": 6, "row_scaled": 2, "sparse": 1, "zero_rows": 1},
    }
    assert values.EXPONENTS == (0, -1, 1, -4, 4, -10, 10, -20, 20)
    assert Counter(str(one) for one in values.SPECIAL) == {
        **{"nan": 3, "inf": 2, "-inf": 2},
        **dict.fromkeys(("10000.0", "65504.0", "1e-40", "3e+38", "-3e+38"), 1),
    }
    assert TABLE.scalar_choices["hc_eps"] == (1e-6, 1e-6, 0.0, 1e-12, 0.125, 1.0, 64.0)
    assert Counter(cases_.UPSTREAM) == {
        "as drawn": 4,
        **dict.fromkeys(("one of them", "one element", "none", "huge", "tiny"), 1),
    }
    assert cases_.DTYPES == ("float32", "bfloat16", "float16", "float64")
    assert (layouts.OFFSETS, layouts.STEPS, layouts.PADS) == ((0, 0, 1, 8, 3), (1, 1, 1, 2, 3), (0, 0, 1, 8, 3))
    assert Counter(layouts.ORDERS) == {"as it stands": 2, "first two swapped": 1, "backwards": 1}
    assert Counter(layouts.EXPANSIONS) == {"none": 3, "first": 1, "last": 1, "all": 1}
    assert Counter(own.BATCH) == {1: 6, 2: 5, 3: 4, 5: 3, 0: 1}
    assert Counter(own.STREAMS) == {**dict.fromkeys(range(1, 17), 1), 4: 3, 8: 2, 16: 2}
    assert shapes.TILES == (8, 16, 32, 64, 128, 256, 512, 1024)
    assert shapes.PRIMES == (43, 61, 97, 131, 199, 251, 509, 1021)
    assert shapes.EIGHT_MOD_SIXTEEN == (40, 56, 72, 88, 104, 136, 200, 264, 520)
    assert own.WIDE == 256
    assert shapes.edges((64, 8)) == (7, 8, 9, 63, 64, 65)


def test_a_round() -> None:
    settings = quiet(7)
    assert (settings.max_examples, settings.database, settings.deadline, settings.print_blob) == (7, None, None, False)
    assert tuple(settings.phases) == (Phase.generate, Phase.shrink)
    assert set(settings.suppress_health_check) == set(hypothesis.HealthCheck)
    assert ROUND == 10


@pytest.mark.parametrize("most", [1, 24, 100, 1 << 10, 1 << 13])
def test_shapes_use_the_budget_and_keep_to_it(most: int) -> None:
    found = drawn(own_shapes(max_n=16, max_elements=most), 300)
    larger = 0
    for B, S, n, D in found:
        sizes = sizes_of(B, S, n, D)
        largest = max(math.prod(spec.shape(sizes)) for spec in TABLE.drawn)
        assert largest <= max(most, 3) or (B * S <= 1 and n == D == 1)
        larger = max(larger, largest)
    assert larger > most // 2 or most < 3
    assert {B for B, *_ in found} >= ({0, 1, 2, 3, 5} if most >= 24 else {1})


def test_widths_streams_and_tokens_are_all_drawn() -> None:
    found = drawn(own_shapes(max_n=16, max_elements=1 << 15), 1500)
    widths, lengths = Counter(D for *_, D in found), Counter(S for _, S, *_ in found)
    wide = share(D > 256 for *_, D in found)
    assert 0.04 < wide < 0.25, "one case in twelve, and what else there is room for"
    assert sum(1 for size in range(1, 41) if widths[size]) >= 36
    assert len([size for size in widths if size > 256]) >= 8
    assert max(widths) >= 1021
    assert {one[2] for one in found} == set(range(1, 17))
    assert 0.02 < share(B == 0 for B, *_ in found) < 0.1
    assert lengths[0] > 20
    assert sum(1 for size in lengths if size > 9) >= 10
    assert share(S in (1, 2, 3) for _, S, *_ in found) > 0.2
    assert {len(one) for one in found} == {4}
    few = drawn(own_shapes(max_n=4, max_elements=1 << 12), 200)
    assert {one[2] for one in few} == {1, 2, 3, 4}
    alike = drawn(own_shapes(max_n=16, max_elements=1 << 10, like=(3, 7)), 200)
    assert {one[2:] for one in alike} == {(3, 7)}
    assert max(B * S for B, S, *_ in alike) * 21 <= 1 << 10
    assert max(B * S for B, S, *_ in alike) > 30
    # of a small budget the gates of B*S*M are the largest where D is 1
    narrow = drawn(own_shapes(max_n=16, max_elements=320, like=(16, 1)), 60)
    assert {B * S for B, S, *_ in narrow} <= {0, 1}


def offered(strategy: Any, monkeypatch: pytest.MonkeyPatch, module: Any = reach, **least: int) -> list[tuple[Any, ...]]:
    """What a draw may choose from, in order; whole numbers are offered as (least, most), and `least` says which is drawn."""
    seen: list[tuple[Any, ...]] = []
    integers = st.integers

    def choice(options: tuple[Any, ...]) -> Any:
        seen.append(options)
        return st.just(options[0])

    def bounded(low: int = 0, high: int = 0) -> Any:
        seen.append((low, high))
        return integers(least.get(f"upto{high}", low), least.get(f"upto{high}", high))

    with monkeypatch.context() as patched:
        patched.setattr(module, "choice", choice)
        patched.setattr(st, "integers", bounded)
        hypothesis.find(strategy, lambda _: True, settings=quiet(1))
    return seen


def test_what_shapes_are_chosen_from(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(most: int, **options: Any) -> list[tuple[Any, ...]]:
        return offered(own_shapes(max_n=16, max_elements=most, **options), monkeypatch)[: 3 if "like" in options else 4]

    assert at(45)[0] == (1, 2, 3), "3 streams have 15 * 3 elements at D = 1"
    assert at(44)[0] == (1, 2)
    batch, lengths = at(30, like=(1, 3), tiles=(10,))[:2]
    assert batch == own.BATCH
    assert lengths == (1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 4, 5, 6, 7, 8, 9, 10), "30 / 3, and beside a tile"
    assert at(29, like=(1, 3), tiles=(10,))[1][-1] == 9
    assert set(at(14, like=(1, 3))[0]) == {0, 1, 2, 3}
    assert set(at(15, like=(1, 3))[0]) == {0, 1, 2, 3, 5}
    assert set(at(1, like=(1, 3))[0]) == {0, 1}
    every = {*range(1, 41), *shapes.edges(shapes.TILES), *shapes.PRIMES, *shapes.EIGHT_MOD_SIXTEEN, *shapes.MIDDLE}
    below = sum(size <= 256 for size in every)
    narrow = offered(own_shapes(max_n=1, max_elements=3 * 300), monkeypatch, upto11=10)
    wide = offered(own_shapes(max_n=1, max_elements=3 * 300), monkeypatch, upto11=11)
    last = sum(size <= 300 for size in every) - 1
    assert narrow[:3] == [(0, 11), (1,), (0, last)]
    assert wide[:3] == [(0, 11), (1,), (below, last)]
    assert offered(own_shapes(max_n=1, max_elements=3 * 257), monkeypatch, upto11=11)[0] == (0, 11)
    assert offered(own_shapes(max_n=1, max_elements=3 * 257 - 1), monkeypatch, upto11=11)[0] == (1,), "no room for it"


def test_what_values_are_chosen_from(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = offered(cases(), monkeypatch, cases_)
    choices = [options for options in seen if len(options) > 2]
    assert choices[0] == cases_.DTYPES
    names = [name for name in NAMES if name != "gamma"]
    assert Counter(choices[1]) == Counter([()] * 7 + [(name,) for name in names] + [tuple(names)])
    assert choices[2:9] == [values.KINDS] * 7
    assert Counter(choices[9]) == Counter([None] * 13 + list(TABLE.regimes))
    assert choices[10] == cases_.UPSTREAM
    assert choices[11:13] == [TABLE.scalar_choices["norm_eps"]] * 2


def test_tiles_are_those_of_the_schedules_or_the_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noted(**options: Any) -> Any:
        asked.append(options["tiles"])
        return reach.own_sizes(**options)

    monkeypatch.setattr(cases_, "own_sizes", noted)
    declared: list[dict[str, Any]] = [{}, {"mine": {"BLOCK": (96, 8)}}]
    for spaces in declared:
        hypothesis.find(cases(spaces=spaces), lambda _: True, settings=quiet(1))
    assert list(dict.fromkeys(asked)) == [shapes.TILES, (8, 96)]


@operator(x="[T, D] storage", order="[T] int32 permutation", place="[T] int32 in 0..9 offsets", w="[D] storage optional")
def ordered_rows(x: Tensor, order: Tensor, place: Tensor, w: Tensor | None) -> Tensor:
    return x * 2


def test_only_the_elements_of_a_permutation_and_of_offsets_must_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    register(ordered_rows)
    asked: list[Any] = []

    def noted(*given: Any, **options: Any) -> Any:
        asked.append((sorted(given[1].items()), options["different"], options["expand"]))
        return laid_out(*given, **options)

    monkeypatch.setattr(cases_, "laid_out", noted)
    drawn(cases(operator="ordered_rows"), 18)
    drawn(cases(operator="ordered_rows", reach=reach.Reach.MODEL), 18)
    always = [("dy", 2), ("order", 1), ("place", 1), ("x", 2)]
    different = ["order", "place"]
    assert {str(one) for one in asked} <= {
        str((ranks, different, expand)) for ranks in (always, sorted([*always, ("w", 1)])) for expand in (True, False)
    }
    assert {expand for *_, expand in asked} == {True, False}
    asked.clear()
    drawn(cases(), 9)
    assert {len(different) for _, different, _ in asked} == {0}


def test_tiles_are_drawn_beside() -> None:
    found = drawn(own_shapes(max_n=1, max_elements=1 << 12, tiles=(100,)), 600)
    assert {99, 100, 101} <= {D for *_, D in found}
    assert {99, 100, 101} <= {S for _, S, *_ in found}
    assert 63 not in {D for *_, D in found}
    spaces: dict[str, Any] = {
        "a": {"BLOCK": (4, 7, 8, 4096, 4097), "NAME": ("x",)},
        "b": {"BLOCK": (96,), "FAST": (True, False)},
    }
    assert tiles(spaces) == (8, 96, 4096)
    assert tiles({}) == ()


def test_schedules_are_few_names_in_half_of_the_cases() -> None:
    space: dict[str, Any] = {"BLOCK": (8, 96), "WARPS": (4, 8), "STAGES": (1, 2), "PATH": ("a", "b")}
    found = drawn(schedules(space), 600)
    assert {len(one) for one in found} == {1, 2}  # none is the simplest, which each round draws first
    names = Counter(name for one in found for name in one)
    assert set(names) == set(space)
    assert 1.5 < names["PATH"] / (sum(names.values()) - names["PATH"]) * 3 < 6, "a path as often as all sizes together"
    assert all(value in space[name] for one in found for name, value in one.items())
    assert {value for one in found for name, value in one.items() if name == "BLOCK"} == {8, 96}
    assert hypothesis.find(schedules({}), lambda _: True, settings=quiet(ROUND)) == {}
    plain = Counter(name for one in drawn(schedules({"A": (1,), "B": (2,)}), 300) for name in one)
    assert 0.7 < plain["A"] / plain["B"] < 1.4


def test_layouts_of_one_tensor_or_all() -> None:
    tensors = {"x": Recipe(), "phi": Recipe(seed=3)}
    found = drawn(laid_out(tensors, {"x": 4, "phi": 2}), 400)
    changed = Counter(tuple(name for name, one in made.items() if one.layout != Layout()) for made in found)
    assert set(changed) == {(), ("x",), ("phi",), ("x", "phi")}
    assert 0.25 < (changed["x", "phi"]) / sum(count for names, count in changed.items() if names) < 0.75
    assert {one["phi"].seed for one in found} == {3}
    assert {one["x"].layout.order for one in found} == {(), (1, 0, 2, 3), (3, 2, 1, 0)}
    assert {one["phi"].layout.order for one in found} == {(), (1, 0)}
    assert {one["x"].layout.expand for one in found} == {(), (0,), (3,), (0, 1, 2, 3)}
    assert {one["x"].layout.step for one in found} == {1, 2, 3}
    assert {one["x"].layout.pad for one in found} == {one["x"].layout.offset for one in found} == {0, 1, 3, 8}


def test_elements_of_what_may_be_written_share_no_memory() -> None:
    tensors = {"x": Recipe(), "cache": Recipe(seed=3)}
    found = drawn(laid_out(tensors, {"x": 2, "cache": 2}, written=["cache"]), 300)
    assert {one["cache"].layout.expand for one in found} == {()}
    assert {one["x"].layout.expand for one in found} == {(), (0,), (1,), (0, 1)}
    assert all(not one.tensors["buffer"].layout.expand for one in drawn(cases(operator="topk_softmax"), 300))


X = TensorSpec("x", ("T", "D"))


def test_special_elements_are_anywhere_in_a_tensor() -> None:
    found = drawn(special_values(X, (2, 3)), 300)
    assert all(len({index for index, _ in one}) == len(one) for one in found)
    single = [one for one in found if len(one) == 1]
    assert len(found) / 3 < len(single) < 3 * len(found) / 4
    assert {index for ((index, _),) in single} == {(i, j) for i in range(2) for j in range(3)}
    assert {str(value) for ((_, value),) in single} == {str(one) for one in values.SPECIAL}
    hot = drawn(one_hot((2, 3)), 100)
    assert {index for ((index, _),) in hot} == {(i, j) for i in range(2) for j in range(3)} - {(0, 0)}  # the simplest
    assert {value for ((_, value),) in hot} == {1.0}
    decays = drawn(special_values(replace(X, within=(-8.0, 0.0)), (2, 3)), 60)
    assert {str(value) for one in decays for _, value in one} == {"nan"}
    positive = drawn(special_values(replace(X, within=(0.0, math.inf)), (2, 3)), 200)
    assert {str(value) for one in positive for _, value in one} == {"nan", "inf", "10000.0", "65504.0", "1e-40", "3e+38"}
    for empty in (special_values(X, (2, 0)), one_hot((0,))):
        assert hypothesis.find(empty, lambda _: True, settings=quiet(ROUND)) == ()


def test_several_special_elements_are_often_beside_the_first() -> None:
    shape = (4, 5, 6)
    found = [one for one in drawn(special_values(replace(X, symbols=("A", "B", "C")), shape), 300) if len(one) > 1]
    assert {len(one) for one in found} == {2, 3, 4}
    differing = [sum(a != b for a, b in zip(one[0][0], other, strict=True)) for one in found for other, _ in one[1:]]
    assert len(differing) / 4 < differing.count(1) < len(differing)
    assert {at for one in found for other, _ in one[1:] for at in range(3) if one[0][0][at] != other[at]} == {0, 1, 2}
    assert any({str(value) for _, value in one} == {"inf", "-inf"} for one in found)
    assert {len(one) for one in drawn(special_values(replace(X, symbols=()), ()), 30)} == {1}


def test_cases_vary_in_everything() -> None:
    found = drawn_cases()
    usual = [TABLE.usual_exponents(case.sizes) for case in found]
    assert 0.15 < share(any(one.layout != Layout() for one in case.tensors.values()) for case in found) < 0.45
    special = [[name for name, one in case.tensors.items() for _, value in one.literals if value != 1.0] for case in found]
    assert 0.12 < share(bool(names) for names in special) < 0.35
    which = Counter(name for names in special for name in names)
    assert set(which) == set(NAMES)
    assert which["x"] > 1.5 * max(which["phi"], which["alpha"])
    assert min(which["dh_in"], which["dh_post"], which["dh_res"]) > 1.2 * min(which["phi"], which["bias"])
    assert {case.dtype for case in found} == set(cases_.DTYPES)
    assert 0.35 < share(case.has("gamma") for case in found) < 0.65
    saturated = share(case.tensors["bias"].scale == 2.0**6 for case in found)
    subnormal = share(case.tensors["x"].scale == 2.0**-130 for case in found)
    assert 0.02 < saturated < 0.12, "one regime of five, in a third of the cases"
    assert 0.02 < subnormal < 0.12
    dead = share(case.tensors["alpha"].kind == "zero" for case in found)
    assert 0.08 < dead < 0.2, "by a regime, besides by chance"
    for name in TABLE.scalars:
        assert {case.scalars[name] for case in found} == set(TABLE.scalar_choices["norm_eps"])
    seeds = [[one.seed for one in case.tensors.values()] for case in found]
    assert all(each == list(range(each[0], each[0] + len(each))) for each in seeds)
    assert len({each[0] for each in seeds}) > 300
    assert max(each[0] for each in seeds) < 1 << 16
    powers = {name: Counter[float]() for name in NAMES}
    for case, exponents in zip(found, usual, strict=True):
        for name, one in case.tensors.items():
            powers[name][math.log2(one.scale) - exponents.get(name, 0)] += 1
    every = {power for counts in powers.values() for power in counts}
    assert {*values.EXPONENTS, -130, 6, 8, 40, -100} <= every <= {*range(-130, 21), 40}
    far = every - {*values.EXPONENTS, -130, 6, 8, 40, -100}
    assert (min(far) < -90, max(far) < 20, len(far) > 40) == (True, True, True), "any power of two, now and then"
    for name, more in (("x", {-130, *range(-74, -59)}), ("bias", {6}), ("alpha", {8}), ("dh_in", {40, -100})):
        assert len(more & set(powers[name])) > len(more) / 2, name
    odd = share(power not in values.EXPONENTS for name in ("gamma", "phi") for power in powers[name].elements())
    assert 0 < odd < 0.1
    assert share(power == 0 for power in powers["gamma"].elements()) > 0.85
    pinned = [dict(case.schedules["mine"]) for case in found if case.schedules]
    assert 0.35 < len(pinned) / len(found) < 0.65
    assert all(pinned), "an empty schedule is none"
    largest = max(math.prod(spec.shape(case.sizes)) for case in found for spec in TABLE.drawn)
    assert 1 << 14 < largest <= 1 << 15


def test_upstream_gradients_are_left_out_one_by_one_and_together() -> None:
    upstream = [spec.name for spec in TABLE.upstream]
    live: Counter[str] = Counter()
    for case in drawn_cases():
        there = [name for name in upstream if case.tensors[name].kind != "zero"]
        ones = [name for name in upstream if case.tensors[name].literals and case.tensors[name].literals[0][1] == 1.0]
        scales = {case.tensors[name].scale for name in upstream}
        what = "one element" if ones and not there else {0: "none", 1: there[0] if there else ""}.get(len(there), "several")
        live[what] += 1
        live["huge"] += scales == {2.0**40}
        live["tiny"] += scales == {2.0**-100}
    count = sum(live[what] for what in live if what not in {"huge", "tiny"})
    for what in ("none", "one element", "huge", "tiny"):
        assert 0.05 < live[what] / count < 0.2, (what, live)
    for name in upstream:
        assert 0.015 < live[name] / count < 0.12, (name, live)
    assert live["several"] > count / 2


def test_hypothesis_hears_of_the_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(cases_, "event", heard.append)
    (case,) = drawn(cases(), 1)
    assert set(heard) >= regions(case)


def test_options_of_cases() -> None:
    plain = drawn(cases(special=False, dtypes=("float16",), max_elements=200), 200)
    assert not [one for case in plain for one in case.tensors.values() for _, value in one.literals if value != 1.0]
    assert {case.dtype for case in plain} == {"float16"}
    assert all(math.prod(spec.shape(case.sizes)) <= 200 for case in plain for spec in TABLE.drawn)
    other = default_case(B=1, S=1, n=3, D=11, dtype="float64", absent=frozenset({"gamma"}), schedules={"a": {"B": 4}})
    alike = drawn(cases(like=other, spaces={"a": {"B": (4, 8)}}), 60)
    assert {
        (case.sizes["n"], case.sizes["D"], case.dtype, case.has("gamma"), str(dict(case.schedules["a"]))) for case in alike
    } == {(3, 11, "float64", False, "{'B': 4}")}
    assert len({case.sizes["N"] for case in alike}) > 5


def test_tensors_are_expanded_but_at_model_sizes() -> None:
    """There inputs repeat anyway, and a tensor of one element in truth would show nothing of a kernel for many."""

    def expanded(kind: reach.Reach) -> bool:
        found = drawn(cases(reach=kind, max_elements=1 << 14), 60)
        return any(one.layout.expand for case in found for one in case.tensors.values())

    assert expanded(reach.Reach.USUAL)
    assert not expanded(reach.Reach.MODEL)


def test_equal_choices_of_other_types_are_drawn_as_they_are() -> None:
    """A scalar's choices and those of a size may be equal: an axis would have the length 1.0."""
    for options in ((1.0, 0.0), (1, 0), (True, False)):
        many = {(type(one), one) for one in one_round(choice(options), 20, 0)}
        assert many == {(type(one), one) for one in options}
