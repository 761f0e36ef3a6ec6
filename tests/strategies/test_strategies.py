"""Strategies: what they shrink to, that the whole space is reached, and that what they draw fits."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import fields

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, find, given, seed, settings

from mhc import Case, default_case, materialise
from mhc.bench.cli import main
from mhc.case import with_tensor
from mhc.operator import OPERATORS
from mhc.operators.mhc_pre.shapes import MODEL_TOKENS
from mhc.recipe import CONTIGUOUS, Layout, Recipe
from mhc.strategies.cases import cases
from mhc.strategies.reach import ACTIVE, PERIOD, Reach, log_uniform, own_sizes
from mhc.strategies.regions import labels, regions
from mhc.strategies.schedules import tiles
from mhc.strategies.shapes import edges

SPACE = {"mine": {"BLOCK": (64, 96), "WARPS": (4, 8), "FAST": (True, False)}}

QUIET = settings(max_examples=2000, database=None, deadline=None, suppress_health_check=list(HealthCheck))


def smallest(condition: Callable[[Case], bool], **options: object) -> Case:
    """What the strategy shrinks to where `condition` holds."""
    return find(cases(**options), condition, settings=QUIET)  # type: ignore[arg-type]


def test_without_a_condition_it_is_one_token_of_one_number() -> None:
    case = smallest(lambda case: True)
    assert (case.sizes["B"], case.sizes["S"], case.sizes["n"], case.sizes["D"], case.dtype) == (1, 1, 1, 1, "float32")
    assert not case.has("gamma")
    assert dict(case.scalars) == {"norm_eps": 1e-6, "hc_eps": 1e-6}
    assert not case.schedules
    assert {recipe.kind for recipe in case.tensors.values()} == {"constant"}
    assert {recipe.scale for recipe in case.tensors.values()} == {1.0}
    assert {recipe.layout for recipe in case.tensors.values()} == {CONTIGUOUS}
    assert [recipe.seed for recipe in case.tensors.values()] == list(range(len(case.tensors)))


def _changes(layout: Layout) -> int:
    """In how many ways it is not contiguous."""
    return sum(getattr(layout, field.name) != getattr(CONTIGUOUS, field.name) for field in fields(Layout))


SMALLEST: dict[str, tuple[Callable[[Case], bool], Callable[[Case], object], object]] = {
    "streams and width": (
        lambda c: c.sizes["n"] >= 3 and c.sizes["D"] >= 5,
        lambda c: (c.sizes["B"], c.sizes["S"], c.sizes["n"], c.sizes["D"]),
        (1, 1, 3, 5),
    ),
    "tokens": (lambda c: c.sizes["N"] > 4, lambda c: (c.sizes["N"] <= 6, c.sizes["n"], c.sizes["D"]), (True, 1, 1)),
    "no tokens": (
        lambda c: c.sizes["S"] == 0,
        lambda c: (c.sizes["B"], c.sizes["S"], c.sizes["n"], c.sizes["D"]),
        (1, 0, 1, 1),
    ),
    "beyond a tile": (lambda c: c.sizes["D"] > 64, lambda c: (c.sizes["n"], c.sizes["D"]), (1, 65)),
    "16 bits": (lambda c: c.dtype.endswith("16"), lambda c: c.dtype, "bfloat16"),
    "gamma": (lambda c: c.has("gamma"), lambda c: c.tensors["gamma"], Recipe(kind="constant", seed=4)),
    "no value": (lambda c: c.tensors["x"].kind != "constant", lambda c: c.tensors["x"], Recipe(kind="zero")),
    "signs": (lambda c: c.tensors["x"].kind not in {"zero", "constant"}, lambda c: c.tensors["x"].kind, "sign"),
    "large": (
        lambda c: c.tensors["x"].scale > 8,
        lambda c: (c.tensors["x"].scale, {recipe.scale for name, recipe in c.tensors.items() if name != "x"}),
        (16.0, {1.0}),
    ),
    "strided": (
        lambda c: c.tensors["x"].layout != CONTIGUOUS,
        lambda c: (_changes(c.tensors["x"].layout), {recipe.layout for name, recipe in c.tensors.items() if name != "x"}),
        (1, {CONTIGUOUS}),
    ),
    "transposed": (lambda c: bool(c.tensors["x"].layout.order), lambda c: c.tensors["x"].layout, Layout(order=(1, 0, 2, 3))),
    "an outlier": (
        lambda c: any(abs(value) > 1 for recipe in c.tensors.values() for _, value in recipe.literals),
        lambda c: [(set(index), value) for recipe in c.tensors.values() for index, value in recipe.literals],
        [({0}, math.inf)],
    ),
    "no eps": (lambda c: c.scalars["norm_eps"] == 0, lambda c: dict(c.scalars), {"norm_eps": 0.0, "hc_eps": 1e-6}),
    "one upstream gradient": (
        lambda c: c.tensors["dh_post"].kind != "zero" and c.tensors["dh_in"].kind == c.tensors["dh_res"].kind == "zero",
        lambda c: c.tensors["dh_post"].kind,
        "constant",
    ),
    "a schedule": (lambda c: bool(c.schedules), lambda c: {**c.schedules["mine"]}, {"BLOCK": 64}),
}


QUICK = ("16 bits", "gamma", "no eps", "a schedule", "beyond a tile", "an outlier")


@pytest.mark.parametrize("name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in SMALLEST])
def test_what_it_shrinks_to(name: str) -> None:
    condition, seen, wanted = SMALLEST[name]
    assert seen(smallest(condition, spaces=SPACE)) == wanted


EXPECTED = {
    *(f"streams: {n}" for n in range(1, 17)),
    *(f"tokens: {size}" for size in ("0", "1", "2..8", "9..64", "65..1024", "1025..8192", "over 8192")),
    *(f"width: {size}" for size in ("1", "2..8", "9..64", "65..1024", "1025..8192", "8 mod 16")),
    *(f"{name}: {size}" for name in ("tokens", "width") for size in ("a tile", "beside a tile")),
    *(f"dtype: {dtype}" for dtype in ("float32", "bfloat16", "float16", "float64")),
    *(f"layout: {word}" for word in ("contiguous", "offset", "stepped", "padded", "gaps", "transposed", "expanded")),
    *(f"{name}: {size}" for name in ("norm_eps", "hc_eps") for size in ("0", "tiny", "usual", "large")),
    *(f"upstream: {live}" for live in ("none", "one", "several", "one element", "with a special value")),
    *(f"special: {kind}" for kind in ("NaN", "infinity", "outlier")),
    *(
        f"x: {kind}"
        for kind in ("zero", "constant", "sign", "exact", "normal", "alternating", "row_scaled", "column_scaled")
    ),
    *(f"x: {kind}" for kind in ("cancelling", "sparse", "zero_rows", "large", "small")),
    *("bias: large", "alpha: large", "alpha: zero", "dh_in: large", "dh_in: small", "phi: large", "phi: small"),
    "gamma: absent",
    "schedule: pinned",
    *("x: NaN", "x: infinity", "dh_in: infinity"),
}


@pytest.mark.slow
def test_every_region_is_reached() -> None:
    """In 1,800 cases, each many times over; in rounds of ten as campaigns draw them: a long one repeats what it drew."""
    seen: Counter[str] = Counter()
    for at in range(180):
        reach = Reach.USUAL if at < 150 else Reach.STRETCHED if at % 2 else Reach.MODEL
        most = {Reach.USUAL: 1 << 13, Reach.STRETCHED: 1 << 20, Reach.MODEL: 1 << 22}[reach]

        @seed(at)
        @settings(QUIET, max_examples=10, phases=[Phase.generate])
        @given(cases(max_elements=most, spaces=SPACE, reach=reach))
        def look(case: Case) -> None:
            seen.update(regions(case))

        look()
    assert not {label: seen[label] for label in EXPECTED if seen[label] < 5}
    listed = {*labels(OPERATORS["mhc_pre"]), "schedule: pinned"}
    assert set(seen) <= listed
    rare = {label for label in listed if label.endswith((": NaN", ": infinity", ": outlier"))}  # of one tensor
    assert not listed - set(seen) - rare
    assert seen["upstream: several"] > sum(seen.values()) / len(seen) / 4


@settings(QUIET, max_examples=100)
@given(cases(max_elements=1 << 10))
def test_it_keeps_to_the_budget_and_makes_what_it_says(case: Case) -> None:
    for spec in case.table.drawn:
        assert math.prod(spec.shape(case.sizes)) <= 1 << 10, spec.name
    assert regions(Case.from_json(case.json)) == regions(case)
    made = materialise(case)
    assert {name for name, tensor in made.tensors.items() if tensor is not None} == set(case.tensors)


def test_tiles_come_from_the_schedules() -> None:
    assert tiles(SPACE) == (8, 64, 96)
    assert edges((8, 64)) == (7, 8, 9, 63, 64, 65)
    sizes = own_sizes(table=OPERATORS["mhc_pre"], reach=Reach.USUAL, max_elements=1 << 15, tiles=tiles(SPACE))
    # one draw in 290: 2,000 would miss it once in a thousand runs
    beside = find(sizes, lambda sizes: sizes["D"] == 97, settings=settings(QUIET, max_examples=20_000))
    assert [beside[name] for name in ("B", "S", "n", "D")] == [1, 1, 1, 97]


def test_regions_of_a_case() -> None:
    case = default_case(B=2, S=32, n=4, D=24, absent=frozenset({"gamma"}))
    assert {"streams: 4", "width: 8 mod 16", "tokens: a tile", "tokens: 9..64", "gamma: absent"} <= regions(case)
    assert {"upstream: several", "layout: contiguous", "x: normal"} <= regions(case)
    for name, wanted in zip(("dh_in", "dh_post", "dh_res"), ("several", "one", "none"), strict=True):
        case = with_tensor(case, name, kind="zero")
        assert f"upstream: {wanted}" in regions(case)
    assert {"upstream: one element", "special: outlier"} <= regions(
        with_tensor(case, "dh_res", literals=(((0, 0, 0, 0), 1.0),))
    )


def test_coverage_is_a_table_of_shares() -> None:
    result = CliRunner().invoke(main, ["coverage", "--cases", "40", "--impl", "triton"])
    assert result.exit_code == 0, result.output
    lines = dict(line.strip("| ").split(" | ") for line in result.output.splitlines() if line.startswith("|"))
    assert set(lines) >= {"of 40 cases", "x", "dtype", "streams", "tokens", "width", "schedule", "upstream"}
    shares = [float(region.rsplit(" ", 1)[1]) for region in lines["dtype"].split(", ")]
    assert sum(shares) == pytest.approx(100, abs=len(shares) / 2)  # each is a whole number


def drawn(reach: Reach, rounds: int, max_elements: int) -> list[Case]:
    """Cases of so many rounds."""
    found: list[Case] = []
    for at in range(rounds):

        @seed(at)
        @settings(QUIET, max_examples=10, phases=[Phase.generate])
        @given(cases(max_elements=max_elements, reach=reach))
        def look(case: Case) -> None:
            found.append(case)

        look()
    return found


@pytest.mark.slow
def test_stretched_cases_reach_past_every_size_and_have_one_long_axis() -> None:
    found = drawn(Reach.STRETCHED, 240, 1 << 20)
    for symbol, past, least in (
        ("S", 1025, 0.15),
        ("S", 65535, 0.03),
        ("B", 65535, 0.015),
        ("D", 4095, 0.03),
        ("K", 2560, 0.1),
    ):
        share = sum(case.sizes[symbol] > past for case in found) / len(found)
        assert share > least, (symbol, past, share)
    for case in found:
        assert sum(size > 256 for size in (case.sizes["B"], case.sizes["S"], case.sizes["D"])) <= 1, case.id
        specs = (*case.table.drawn, *case.table.outputs)
        assert max(math.prod(spec.shape(case.sizes)) for spec in specs) <= 1 << 20, case.id


def test_model_cases_have_the_shapes_of_models_and_little_to_judge() -> None:
    found = drawn(Reach.MODEL, 40, 1 << 22)
    assert {case.sizes["n"] for case in found} == {1, 2, 4, 8}
    widths = {case.sizes["D"] for case in found}
    assert min(widths) >= 1024 - 64
    assert max(widths) > 8192 - 64
    assert {1280, 4096, 7168} <= widths
    assert sum(width % 2 for width in widths) > 3, "odd ones"
    assert max(case.sizes["N"] for case in found) > 1024
    for case in found:
        assert math.prod(case.table.inputs[0].shape(case.sizes)) <= 1 << 22, case.id
        x, dh_in = case.tensors["x"], case.tensors["dh_in"]
        many = case.sizes["N"] > PERIOD
        assert (x.period, dh_in.rows) == ((PERIOD * case.sizes["K"], ACTIVE) if many else (0, 0)), case.id
        parameters = [
            case.tensors[spec.name] for spec in case.table.drawn if "S" not in spec.symbols and case.has(spec.name)
        ]
        assert len(parameters) >= 3
        assert all(one.period == one.rows == 0 for one in parameters), "they have no tokens"


def test_some_model_cases_have_all_the_elements_there_may_be() -> None:
    """More tokens than a model has, where the user asks for them: offsets wrap at a number of elements."""
    most = 1 << 28
    found = drawn(Reach.MODEL, 40, most)
    full = [case for case in found if math.prod(case.table.inputs[0].shape(case.sizes)) > 0.999 * most]
    assert 0.05 < len(full) / len(found) < 0.25
    assert max(case.sizes["N"] for case in full) > MODEL_TOKENS
    assert {case.sizes["B"] for case in full} >= {1, 2}


def test_model_cases_keep_to_a_small_budget() -> None:
    """Their parameters may have twice as many elements as x; with many streams no width leaves room for them."""
    found = drawn(Reach.MODEL, 25, 1 << 17)
    assert {case.sizes["n"] for case in found} == {1, 2, 4}
    assert {case.sizes["B"] for case in found} == {1, 2, 4}
    for case in found:
        assert math.prod(case.table.inputs[0].shape(case.sizes)) <= 1 << 17, case.id
        assert max(math.prod(spec.shape(case.sizes)) for spec in case.table.inputs) <= 2 << 17, case.id
    assert (
        max(case.sizes["D"] for case in found if case.sizes["n"] == 4)
        < 2730
        < max(case.sizes["D"] for case in found if case.sizes["n"] == 2)
    )


def test_a_size_is_as_likely_in_each_factor_of_two() -> None:
    sizes: list[int] = []

    @seed(0)
    @settings(QUIET, max_examples=1000, phases=[Phase.generate])
    @given(log_uniform(257, 1 << 17))
    def look(size: int) -> None:
        sizes.append(size)

    look()
    assert (min(sizes), max(sizes)) == (257, 1 << 17)
    shares = [sum(257 * 2**k <= size < 257 * 2 ** (k + 1) for size in sizes) / len(sizes) for k in range(8)]
    assert all(0.05 < share < 0.25 for share in shares), shares
    assert {1 << 10, (1 << 10) + 1, (1 << 10) - 1} <= set(sizes)


@pytest.mark.slow
def test_squares_below_the_normal_range_without_an_eps_are_drawn() -> None:
    found = [case for case in drawn(Reach.USUAL, 60, 1 << 10) if case.scalars["norm_eps"] == 0]
    assert any(2.0**-70 <= case.tensors["x"].scale <= 2.0**-62 for case in found)
