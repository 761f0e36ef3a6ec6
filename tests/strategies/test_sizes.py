"""Sizes of declared operators: what each is chosen from, and which choice gives which sizes."""

from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from mhc import operator
from mhc.operator import OPERATORS
from mhc.outputs import Outputs
from mhc.strategies import cases as cases_
from mhc.strategies import reach, rounds, shapes, values
from mhc.strategies.reach import log_uniform, model_sizes, rounded_sizes, stretched_sizes
from mhc.strategies.rounds import quiet
from mhc.strategies.shapes import Limit, plain_shapes, present_axes, usual_sizes
from mhc.tensor_spec import TensorSpec


@operator(x="[T, D]", w="[H]", H="2*D", T=(0, 1000), D=(3, 70), tokens="T", production={"D": (64, 16, 5)})
def declared_wide(x: Tensor, w: Tensor) -> Tensor:
    return x * w[: x.shape[1]]


@operator(x="[*B, D]", B=(1, 64), D=(1, 300), tokens="*B")
def declared_lead(x: Tensor) -> Tensor:
    return x.clone()


@operator(x="[*B, D]", D=(1, 8192), tokens="*B")
def declared_norm(x: Tensor) -> Tensor:
    return x.clone()


@operator(x="[A, B, F]", w="[A, G]", A=(1, 320), B=(1, 320), C=(1, 320), F=(1, 1), G="B*C")
def declared_cube(x: Tensor, w: Tensor) -> Tensor:
    return x * w.sum()


@operator(x="[N, F]", N=(1, 40), F=(1, 1))
def declared_row(x: Tensor) -> Tensor:
    return x.clone()


@operator(x="[M, N]", M=(2, 5000), N=(1, 5000))
def declared_matrix(x: Tensor) -> Tensor:
    return x.clone()


@operator(
    logits="[T, V]",
    labels="[T] int64 in 0..V-1 or -100",
    offsets="[O] int64 in 0..L offsets",
    O="T+1",
    T=(1, 9),
    V=(1, 300),
    L=(0, 99),
)
def declared_label(logits: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
    """Without a value where V is 1, since the end of a range is excluded, or where L is 0."""
    return logits * (labels >= 0).unsqueeze(-1) + offsets.sum() * 0


Pick = Callable[[tuple[Any, ...]], Any]


def first(options: tuple[Any, ...]) -> Any:
    return options[0]


def last(options: tuple[Any, ...]) -> Any:
    return options[-1]


def last_but(word: str) -> Pick:
    """Choose the last option, or a word where it is one."""
    return lambda options: word if word in options else options[-1]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, list[Any]]]:
    """Return what makes a draw with `pick` for each choice: it returns the draw, and what each choice was from."""

    def make(strategy: st.SearchStrategy[Any], pick: Pick, *, in_full: bool = False) -> tuple[Any, list[Any]]:
        seen: list[Any] = []

        def choice(options: tuple[Any, ...]) -> Any:
            seen.append(options)
            return st.just(pick(options))

        def numbers(least: int, most: int) -> Any:
            seen.append(("numbers", least, most))
            return st.just(pick((least, most)))

        def logs(least: int, most: int) -> Any:
            seen.append(("log", least, most))
            return st.just(pick((least, most)))

        with monkeypatch.context() as patched:
            for module in (shapes, reach):
                patched.setattr(module, "choice", choice)
            patched.setattr(st, "permutations", lambda some: st.just([*some]))
            patched.setattr(st, "integers", numbers)
            patched.setattr(st, "booleans", lambda: choice((False, True)))
            if not in_full:
                patched.setattr(reach, "log_uniform", logs)
            found: list[tuple[Any, list[Any]]] = []

            @hypothesis.settings(quiet(1))
            @hypothesis.given(strategy)
            def collect(one: Any) -> None:
                found.append((one, [*seen]))

            collect()
        return found[0]

    return make


def test_the_weights_of_sizes_and_kinds() -> None:
    """A choice that is dropped, or drawn more often, is a change of what campaigns see: make it here too."""
    assert shapes.FEW == (1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9)
    assert shapes.MIDDLE == (16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384)
    assert (*shapes.FEW * 3, *shapes.MIDDLE) == reach._FEW_OR_MIDDLE
    assert (reach._NEAR, reach._GRAINS) == (("as it comes", "as it comes", "power", "power", "multiple"), (16, 64, 128))
    assert (*(1,) * 6, 4, 8, 16, 32, 64, 128, 256) == reach._ROUNDED
    assert cases_.TRIES == 12
    assert shapes.RANKS == (1, 2, 2, 2, 3, 0)
    assert ((*("any",) * 4, "equal", "most"), (False, True), (0, 0, 1)) == (shapes.FORMS, shapes._ALL, shapes._BELOW)
    assert ((*("one",) * 4, "most", "two"), (1 << 15, 1 << 16)) == (reach.FORMS, reach.COUNTS)
    assert (values.LONG, values.OF_LONG) == (128, ("offset",) * 4)
    assert reach._ODD == (0, 0, 0, 1, -1, 37, -64)
    widths = (1024, 1280, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192)
    assert (*widths, 32_000, 50_257, 128_256) == reach.WIDTHS
    assert reach._BESIDE == (0, 0, 0, 1, -1)
    assert (*(False,) * 7, True) == reach._WHOLE
    assert (reach.STEPS, reach.FIRST, reach.PERIOD, reach.ACTIVE) == (256, 257, 61, 32)
    assert (values.SMALLEST, values.LARGEST) == (-130, 20)
    assert (
        *("constant", "zero", "ascending", "row_constant", "sentinel", *("uniform",) * 5),
        *("repeated", "ends", "blocks", "repeated", "ends", "blocks", "prefix", "suffix", "consecutive", "multiples"),
    ) == values.WHOLE_KINDS
    assert usual_sizes((20,)) == sorted(
        {*range(1, 41), 19, 20, 21, *shapes.PRIMES, *shapes.EIGHT_MOD_SIXTEEN, *shapes.MIDDLE}
    )


def test_what_fits() -> None:
    assert Limit(declared_wide, 100).fits({"T": 10, "D": 10})
    assert not Limit(declared_wide, 99).fits({"T": 10, "D": 10})
    assert Limit(declared_wide, 20).fits({"T": 1, "D": 10}), "of w"
    assert not Limit(declared_wide, 19).fits({"T": 1, "D": 10})
    assert not Limit(operator(x="[T, D]", D="T-3")(lambda x: x.clone()), 99).fits({"T": 2})


def test_a_tensor_has_so_many_leading_axes(made: Callable[..., Any]) -> None:
    for rank in range(4):
        axes, seen = made(present_axes(declared_lead), lambda options, rank=rank: rank)
        assert [axis.name for axis in axes] == [*(f"B{at}" for at in range(rank)), "D"]
        assert seen == [shapes.RANKS]
    assert [axis.name for axis in made(present_axes(declared_matrix), first)[0]] == ["M", "N"]


def test_usual_sizes_are_those_that_fit(made: Callable[..., Any]) -> None:
    sizes, (form, of_t, of_d) = made(plain_shapes(Limit(declared_wide, 36), (10,)), first)
    assert form == shapes.FORMS
    every = [*shapes.FEW, *usual_sizes((10,))]
    assert of_t == (*(one for one in every if one <= 12), *[0] * 4), "D is 3 at least; none comes last"
    assert of_d == tuple(one for one in every if 3 <= one <= 18), "H = 2 * D has 36"
    assert sizes == {"T": 1, "D": 3, "H": 6}
    sizes, (*_, of_d) = made(plain_shapes(Limit(declared_wide, 36)), last_but("any"))
    assert sizes == {"T": 0, "D": 18, "H": 36}
    sizes, seen = made(plain_shapes(Limit(declared_matrix, 1)), first)
    assert seen[1:] == [(2,) * 3, (1,) * 4], "nothing fits but the least"
    sizes, seen = made(plain_shapes(Limit(declared_matrix, 7)), lambda options: "any" if "any" in options else max(options))
    assert (seen[1][-1], sizes) == (7, {"M": 7, "N": 1})


def test_usual_sizes_have_two_equal_axes_or_all_that_can(made: Callable[..., Any]) -> None:
    def equal(most: int, table: Any, *, together: bool, pick: Pick = last) -> tuple[Mapping[str, int], list[Any]]:
        def chosen(options: tuple[Any, ...]) -> Any:
            return "equal" if "equal" in options else together if options == shapes._ALL else pick(options)

        found: tuple[Mapping[str, int], list[Any]] = made(plain_shapes(Limit(table, most)), chosen)
        return found

    sizes, seen = equal(100, declared_matrix, together=False)
    M, N = declared_matrix.axes
    assert seen[1] == ((M, N),) * 3, "of x, of dy, and once more"
    assert seen[3] == (*(one for one in shapes.FEW if one > 1), *range(2, 11)), "10 x 10 has 100"
    assert sizes == {"M": 10, "N": 10}
    assert equal(3, declared_matrix, together=False)[0] == {"M": 3, "N": 1}, "2 x 2 is too large"
    sizes, seen = equal(64, declared_cube, together=True)
    assert sizes == {"A": 4, "B": 4, "C": 4, "F": 1, "G": 16}
    assert len(seen[1]) == 1 + 3 + 1 + 3, "of x, w and dy, and each once more; F has one size, and B and C make G"
    sizes, seen = equal(64, declared_cube, together=False, pick=first)
    assert sizes == {"A": 2, "B": 2, "C": 1, "F": 1, "G": 2}
    assert equal(64, declared_row, together=True)[0] == {"N": 40, "F": 1}, "nothing to be equal to"


def test_an_axis_has_its_most_or_one_less_where_the_others_leave_room(made: Callable[..., Any]) -> None:
    def most(elements: int, strategy: Any, table: Any, below: int = 0) -> tuple[Mapping[str, int], list[Any]]:
        def chosen(options: tuple[Any, ...]) -> Any:
            return "most" if "most" in options else below if options == shapes._BELOW else options[0]

        found: tuple[Mapping[str, int], list[Any]] = made(strategy(Limit(table, elements)), chosen)
        return found

    sizes, seen = most(3000, plain_shapes, declared_wide)
    assert (seen[1], sizes) == (declared_wide.axes, {"T": 1000, "D": 3, "H": 6})
    assert most(3000, plain_shapes, declared_wide, below=1)[0]["T"] == 999
    sizes, seen = most(2999, plain_shapes, declared_wide)
    assert (seen[1], sizes) == (declared_wide.axes[1:], {"T": 1, "D": 70, "H": 140}), "T has no room"
    assert most(10, plain_shapes, declared_wide)[0] == {"T": 1, "D": 3, "H": 6}, "neither has"
    sizes, seen = most(1 << 14, stretched_sizes, declared_norm)
    assert sizes == {"B0": 8192, "D": 1}
    assert most(1 << 13, stretched_sizes, declared_wide)[0]["T"] == 1000, "D is too short to be stretched"
    assert most(100, stretched_sizes, declared_wide)[0]["T"] == 8, "one axis is long, where none fits"


def test_two_axes_of_a_tensor_have_more_elements_together_than_sixteen_bits_count(made: Callable[..., Any]) -> None:
    def two(elements: int, table: Any, pick: Pick) -> tuple[Mapping[str, int], list[Any]]:
        found: tuple[Mapping[str, int], list[Any]] = made(
            stretched_sizes(Limit(table, elements)), lambda options: "two" if "two" in options else pick(options)
        )
        return found

    sizes, seen = two(1 << 17, declared_matrix, first)
    assert (seen[1], seen[3]) == (reach.COUNTS, ("log", 9, 5000)), "9 x 5000 has 45,000"
    assert sizes == {"M": 9, "N": 4552}, "and 9 x 4552 has 40,960"
    assert two(1 << 17, declared_matrix, last)[0] == {"M": 5000, "N": 17}
    assert two(40_000, declared_matrix, first)[0] == {"M": 257, "N": 1}, "no room"
    sizes = two(1 << 17, declared_cube, last)[0]
    assert sizes == {"A": 320, "B": 256, "C": 1, "F": 1, "G": 256}, "81,920, and w has no room for another C"


def test_a_stretched_case_has_one_long_axis(made: Callable[..., Any]) -> None:
    sizes, seen = made(stretched_sizes(Limit(declared_wide, 1200)), last_but("one"))
    assert seen == [reach.FORMS, reach._FEW_OR_MIDDLE, reach._FEW_OR_MIDDLE, declared_wide.axes, ("log", 3, 3)]
    assert sizes == {"T": 384, "D": 3, "H": 6}, "D = 70 does not fit beside it"
    sizes, seen = made(stretched_sizes(Limit(declared_wide, 1200)), lambda options: options[8 if len(options) > 6 else 0])
    assert (seen[4], sizes) == (("log", 50, 200), {"T": 50, "D": 6, "H": 12}), "1200 // 6, and a quarter of it"
    sizes, seen = made(stretched_sizes(Limit(declared_matrix, 4096)), first)
    assert [axis.name for axis in seen[3]] == ["M", "N"]
    assert seen[4] == ("log", 257, 4096)
    assert sizes == {"M": 257, "N": 1}
    sizes, seen = made(stretched_sizes(Limit(declared_matrix, 10_000)), last_but("one"))
    assert (seen[4], sizes) == (("log", 6, 26), {"M": 384, "N": 26})
    small = operator(x="[M, N]", M=(1, 40), N=(1, 16))(lambda x: x.clone())
    assert [axis.name for axis in made(stretched_sizes(Limit(small, 4096)), first)[1][3]] == ["M"], "N is too short"


def test_a_model_case_has_sizes_of_models_and_tokens_up_to_the_budget(made: Callable[..., Any]) -> None:
    def at(most: int, pick: Pick, table: Any = declared_wide) -> tuple[Mapping[str, int], list[Any]]:
        found: tuple[Mapping[str, int], list[Any]] = made(model_sizes(Limit(table, most)), pick)
        return found

    sizes, seen = at(6400, first)
    assert seen == [(64, 16, 5), reach._ODD, (*shapes.FEW, *shapes.MIDDLE), reach._WHOLE, ("log", 1, 100)]
    assert sizes == {"T": 1, "D": 64, "H": 128}
    sizes, seen = at(6400, last)
    assert sizes == {"T": 1000, "D": 3, "H": 6}, "5 - 64 is below the range; the tokens are as many as there may be"
    assert at(40, first)[1][0] == (16, 5), "w has at most 40"
    assert at(8, first)[1][0] == (4,), "none of them fits: what does"
    assert at(40, lambda options: 37 if 37 in options else options[0])[0]["D"] == 20
    sizes, seen = at(4096, first, declared_matrix)
    assert seen == [*((*shapes.FEW, *shapes.MIDDLE),) * 2, reach._WHOLE, ("log", 2, 4096), ("log", 1, 2048)]
    assert sizes == {"M": 2, "N": 1}
    sizes, _ = at(4096, last, declared_matrix)
    assert sizes == {"M": 4096, "N": 1}, "without axes of tokens all others, one after the other"
    sizes, seen = at(1 << 16, first, declared_norm)
    assert seen[1] == tuple(one for one in reach.WIDTHS if 1024 <= one <= 8192), "widths of models, where none are named"
    assert sizes["D"] == 1024
    assert at(1 << 16, first, declared_lead)[0]["D"] == 1, "no model is so narrow"


def test_sizes_are_rounded_up_to_multiples_or_down_where_a_tensor_would_be_too_large(made: Callable[..., Any]) -> None:
    def rounded(sizes: Mapping[str, int], grain: int, most: int, table: Any = declared_wide) -> Mapping[str, int]:
        found: Mapping[str, int] = made(rounded_sizes(Limit(table, most), sizes), lambda options: grain)[0]
        return found

    assert rounded({"T": 10, "D": 9}, 8, 1 << 15) == {"T": 16, "D": 16, "H": 32}
    assert rounded({"T": 10, "D": 9}, 8, 1) == {"T": 8, "D": 8, "H": 16}, "no larger than it was"
    assert rounded({"T": 10, "D": 9}, 1, 1) == {"T": 10, "D": 9, "H": 18}
    assert rounded({"T": 990, "D": 65}, 64, 1 << 20) == {"T": 960, "D": 64, "H": 128}, "T is at most 1000, D at most 70"
    assert rounded({"D": 9}, 16, 100, declared_lead) == {"D": 16}
    assert rounded({"M": 3, "N": 5}, 16, 1, declared_matrix) == {"M": 3, "N": 5}, "neither is possible"


@operator(q="[B, S, D] storage", k="[B, S, D, E] storage optional", S=(1, 4096), D=(1, 512), E=(8, 8), tokens="B")
def declared_scores(q: Tensor, k: Tensor | None) -> Tensor:
    return q @ q.mT @ (q if k is None else k.sum(-1))


@operator(x="[N, C, L] storage", N=(1, 64), C=(1, 64), L=(1, 4096))
def declared_padded(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (0, 0, 2, 2))[:, 2:-2]


def test_an_axis_that_is_padded_is_not_taken_for_another_of_that_size() -> None:
    sizes = [Outputs(declared_padded)._sizes(at, {}) for at in (0, 1)]
    assert any(one["C"] + 4 == one["L"] for one in sizes), "a call in which it has the size of another axis"
    assert declared_padded.intermediates() == ()


def test_what_a_function_makes_on_its_way_counts_and_absent_tensors_do_not() -> None:
    assert declared_scores.intermediates() == (("B", "S", "S"),)
    least = {"B": 1, "S": 1, "D": 16, "E": 8}
    assert Limit(declared_scores, 1 << 12).most(least, declared_scores.axis("S")) == 32, "S * 16 * 8 of k"
    assert Limit(declared_scores, 1 << 12, frozenset({"k"})).most(least, declared_scores.axis("S")) == 64, "S * S"


@pytest.mark.parametrize(
    ("least", "most", "step", "near", "beside", "wanted"),
    [
        (4, 4, 0, "as it comes", 0, 4),
        (4, 0, 0, "as it comes", 0, 1),
        (0, 0, 0, "as it comes", 0, 1),
        (1, 4096, 0, "as it comes", 0, 1),
        (1, 4096, 256, "as it comes", 0, 4096),
        (1, 4096, 128, "as it comes", 0, 64),
        (3, 3 * 2**8, 96, "as it comes", 0, 24),
        (3, 3 * 2**8, 96, "power", 0, 16),
        (3, 3 * 2**8, 96, "power", 1, 17),
        (3, 3 * 2**8, 96, "power", -1, 15),
        (1, 4096, 256, "power", 1, 4096),
        (257, 300, 0, "power", 0, 257),
        (3, 3 * 2**8, 128, "multiple", 16, 48),
        (257, 300, 256, "multiple", 64, 300),
        (257, 400, 0, "multiple", 64, 320),
    ],
)
def test_a_size_is_log_uniform_or_near_a_power_of_two_or_a_multiple(
    made: Callable[..., Any], least: int, most: int, step: int, near: str, beside: int, wanted: int
) -> None:
    def pick(options: tuple[Any, ...]) -> Any:
        return near if options == reach._NEAR else step if options == (0, 256) else beside

    assert made(log_uniform(least, most), pick, in_full=True)[0] == wanted


def test_inputs_of_a_declared_operator_with_a_long_axis_have_numbers_near_1_more_often() -> None:
    (x,), (dy,) = declared_matrix.inputs, declared_matrix.upstream
    assert values.kinds_of(declared_matrix, x, (1, 128)) == values.kinds_of(declared_matrix, dy, (1, 129)) == values.KINDS
    assert values.kinds_of(declared_matrix, x, (129, 1)) == (*values.KINDS, *values.OF_LONG)
    table = OPERATORS["mhc_pre"]
    assert values.kinds_of(table, table.inputs[0], (1, 1, 4, 4096)) == values.KINDS


def test_a_tensor_without_elements_has_no_literal() -> None:
    found = hypothesis.find(values.special_values(TensorSpec("x", ("T", "D")), (3, 0)), lambda _: True, settings=quiet(1))
    assert found == hypothesis.find(values.one_hot((0,)), lambda _: True, settings=quiet(1)) == ()
    assert hypothesis.find(values.one_hot(()), lambda _: True, settings=quiet(1)) == (((), 1.0),)


@pytest.mark.parametrize(
    ("table", "like", "wanted"),
    [
        (declared_wide, {"T": 20, "D": 7}, {*range(17, 33)} - {32}),
        (declared_wide, {"T": 48, "D": 7}, {48, 64}),
        (declared_wide, {"T": 1, "D": 7}, {1}),
        (declared_wide, {"T": 0, "D": 7}, {0}),
        (declared_wide, {"T": 600, "D": 7}, {size for size in range(513, 1001) if size % 16}),
        (declared_matrix, {"M": 20, "N": 3}, {20}),
    ],
)
def test_sizes_like_others_keep_what_programs_depend_on(table: Any, like: Any, wanted: set[int]) -> None:
    """A kernel may depend on whether there is one token, on the next power of 2, and on whether 16 divides the number."""
    sizes = rounds.drawn(reach.alike_sizes(Limit(table, 1 << 20), like), 300, 0)
    assert {one[next(iter(like))] for one in sizes} <= wanted
    assert len({one[next(iter(like))] for one in sizes}) >= min(len(wanted), 12)
    assert {tuple(one[axis] for axis in like if axis != "T") for one in sizes} == {
        tuple(size for axis, size in like.items() if axis != "T")
    }
    assert all(one == table.sizes(one) for one in sizes)


def test_sizes_like_others_keep_the_class_of_all_tokens_and_the_limit() -> None:
    table = OPERATORS["mhc_pre"]
    like = {"B": 5, "S": 21, "n": 2, "D": 8}
    tight, wide = (rounds.drawn(reach.alike_sizes(Limit(table, most), like), 200, 0) for most in (16, 1 << 20))
    assert {(7, 18), (5, 25), (6, 17)} <= {(one["B"], one["S"]) for one in wide}
    assert {reach.token_class(table, one) for one in wide} == {reach.token_class(table, like)}
    assert max(one["B"] * one["S"] for one in tight) == 105, "no more tokens than there"


@pytest.mark.parametrize("sizes_of", [plain_shapes, stretched_sizes, model_sizes])
def test_sizes_that_leave_an_index_no_value_are_not_drawn(sizes_of: Callable[[Limit], st.SearchStrategy[Any]]) -> None:
    """Where the least sizes do, the other axes still have more than their least."""
    drawn = [sizes for seed in range(4) for sizes in rounds.drawn(sizes_of(Limit(declared_label, 20000)), 10, seed)]
    assert all(one["V"] > 1 and one["L"] > 0 for one in drawn)
    assert min(len({one[name] for one in drawn}) for name in "TVL") > 3
