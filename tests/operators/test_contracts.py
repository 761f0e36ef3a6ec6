"""The contracts of docs/mhc-pre.md on the implementations in plain PyTorch and on the call a model makes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import (
    Case,
    Implementation,
    Observation,
    Refused,
    choose,
    materialise,
    mhc_backward_tilelang,
    mhc_backward_triton,
    mhc_forward_pre,
    mhc_forward_pre_tilelang,
    mhc_forward_pre_tir,
    mhc_forward_pre_triton_optimized,
    mhc_pre,
    mhc_pre_backward_manual,
    reference,
)
from mhc.case import with_tensor
from mhc.operator import STORAGE_DTYPES
from mhc.operators.mhc_pre.torch.implementations import GOLDEN, MANUAL
from mhc.oracles.verdict import Status
from tests.support.helpers import ON_CPU, ON_CUDA, bits, failing, forward_arguments, observed, scaled_case, with_layout
from tests.support.helpers import judged as judge_all

every_implementation = pytest.mark.parametrize("implementation", [*ON_CPU, *ON_CUDA], ids=lambda one: one.name)
every_dtype = pytest.mark.parametrize("dtype", STORAGE_DTYPES)


def in_every_dtype(*interpreted: str) -> pytest.MarkDecorator:
    """Return every implementation in every dtype as parameters; those of the interpreter not in `interpreted` are slow."""

    def slow(one: Implementation, dtype: str) -> bool:
        return bool(one.env) and dtype not in interpreted

    pairs = [(one, dtype) for dtype in STORAGE_DTYPES for one in [*ON_CPU, *ON_CUDA]]
    return pytest.mark.parametrize(
        ("implementation", "dtype"),
        [
            pytest.param(one, dtype, id=f"{dtype}-{one.name}", marks=pytest.mark.slow if slow(one, dtype) else ())
            for one, dtype in pairs
        ],
    )


def assert_right(implementation: Implementation, case: Case, *, judged: bool = True) -> Observation:
    """Every gate passes, and, if `judged`, the bound gate had something to say of each output; or its dtype is refused."""
    observation, _, verdicts = judge_all(implementation, case)
    assert not failing(verdicts), verdicts
    if case.dtype not in implementation.dtypes:
        assert observation.refused is not None
    elif judged:
        passes = {verdict.subject for verdict in verdicts if verdict.status is Status.PASS}
        absent = set() if case.has("gamma") else {"dgamma"}
        assert passes == {*observation.outputs, *observation.gradients, "inputs", "results", "settings"} - absent
    return observation


def results(observation: Observation) -> dict[str, Tensor | None]:
    every = {**observation.outputs, **observation.gradients}
    return {name: None if value is None else value.cpu() for name, value in every.items()}


def good_arguments(dtype: str = "float32") -> dict[str, Any]:
    """Arguments of the manual backward; the forward's are among them."""
    inputs = materialise(scaled_case(B=2, S=3, n=2, D=5, dtype=dtype))
    return {**inputs.tensors, **reference(inputs).saved}


FORWARD = ("x", "phi", "alpha", "bias", "gamma")

BAD_INPUT: dict[str, tuple[str, Callable[[Any], Any], type[Exception], str]] = {
    "not a tensor": ("x", lambda _: [1.0], TypeError, r"x is list; must be a torch.Tensor"),
    "none where required": ("phi", lambda _: None, TypeError, r"phi is NoneType; must be a torch.Tensor"),
    "rank": ("x", lambda x: x[0], ValueError, r"x has shape \(3, 2, 5\); must be \[B, S, n, D\]"),
    "integer": ("x", lambda x: x.int(), TypeError, r"x.dtype is torch.int32; must be one of bfloat16"),
    "complex": ("x", lambda x: x.cfloat(), TypeError, r"x.dtype is torch.complex64"),
    "n is 0": ("x", lambda x: x[:, :, :0], ValueError, r"n = 0; n must be in 1..16"),
    "n is 17": ("x", lambda x: x[:, :, :1].expand(-1, -1, 17, -1), ValueError, r"n = 17; n must be in 1..16"),
    "D is 0": ("x", lambda x: x[..., :0], ValueError, r"D = 0; D must be at least 1"),
    "phi rows": ("phi", lambda phi: phi[:-1], ValueError, r"phi has shape \(7, 10\); must be \[M, K\] = \(8, 10\)"),
    "phi columns": ("phi", lambda phi: phi[:, :-1], ValueError, r"phi has shape \(8, 9\); must be \[M, K\] = \(8, 10\)"),
    "phi dtype": ("phi", lambda phi: phi.double(), TypeError, r"phi.dtype is torch.float64; must be torch.float32"),
    "alpha": ("alpha", lambda alpha: alpha[:2], ValueError, r"alpha has shape \(2,\); must be \[3\]"),
    "bias": ("bias", lambda bias: bias[None], ValueError, r"bias has shape \(1, 8\); must be \[M\] = \(8,\)"),
    "gamma flat": ("gamma", lambda gamma: gamma.reshape(-1), ValueError, r"gamma has shape \(10,\); must be \[n, D\]"),
    "device": ("bias", lambda bias: bias.to("meta"), ValueError, r"bias is on meta; must be on cpu, where x is"),
    "saved": ("h_mix", lambda h_mix: h_mix[..., 1:], ValueError, r"h_mix has shape \(2, 3, 7\); must be \[B, S, M\]"),
    "upstream dtype": (
        "dh_in",
        lambda dh_in: dh_in.half(),
        TypeError,
        r"dh_in.dtype is torch.float16; must be torch.float32",
    ),
    "upstream": ("dh_res", lambda dh_res: dh_res[0], ValueError, r"dh_res has shape \(3, 2, 2\); must be \[B, S, n, n\]"),
}


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_named_before_anything_runs(name: str) -> None:
    argument, spoil, error, message = BAD_INPUT[name]
    arguments = good_arguments()
    arguments[argument] = spoil(arguments[argument])
    backwards: list[Callable[..., Any]] = [mhc_pre_backward_manual, mhc_backward_triton, mhc_backward_tilelang]
    forwards: list[Callable[..., Any]] = [
        mhc_forward_pre,
        mhc_pre,
        mhc_forward_pre_triton_optimized,
        mhc_forward_pre_tilelang,
        mhc_forward_pre_tir,
    ]
    for entry in [*backwards, *(forwards if argument in FORWARD else [])]:
        given = arguments if entry in backwards else {key: arguments[key] for key in FORWARD}
        with pytest.raises(error, match=message):
            entry(**given)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("scalar", "error"), [(-1e-6, ValueError), (float("nan"), ValueError), (float("inf"), ValueError), ("1e-6", TypeError)]
)
@pytest.mark.parametrize("name", ["norm_eps", "hc_eps"])
def test_bad_scalars_are_named(name: str, scalar: Any, error: type[Exception]) -> None:
    arguments = {key: value for key, value in good_arguments().items() if key in FORWARD}
    with pytest.raises(error, match=f"{name} is "):
        mhc_forward_pre(**arguments, **{name: scalar})


@every_implementation
@every_dtype
@pytest.mark.parametrize("gamma", [True, False], ids=["gamma", "nogamma"])
def test_values_shapes_and_dtypes(implementation: Implementation, dtype: str, gamma: bool) -> None:
    """`observe` checks shapes and dtypes against the operator's table; the gates judge the values."""
    absent = frozenset() if gamma else frozenset({"gamma"})
    for n, D, x_scale in ((1, 1, 1.0), (3, 7, 1e-3), (4, 64, 0.1), (16, 5, 64.0)):
        case = scaled_case(x_scale, B=2, S=3, n=n, D=D, dtype=dtype, absent=absent)
        observation = assert_right(implementation, case)
        if implementation.backward is not None and dtype in implementation.dtypes:
            assert (observation.gradients["dgamma"] is None) is not gamma


@every_implementation
@pytest.mark.parametrize(("B", "S"), [(0, 3), (2, 0), (0, 0)])
def test_empty_gives_empty_outputs_and_zero_parameter_gradients(implementation: Implementation, B: int, S: int) -> None:
    observation = assert_right(implementation, scaled_case(B=B, S=S, n=3, D=4), judged=False)
    for name in ("h_in", "h_post", "h_res", "inv_rms", "h_mix", "h_pre", *(["dx"] if implementation.backward else [])):
        value = results(observation)[name]
        assert value is not None
        assert value.numel() == 0
    for name in ("dphi", "dalpha", "dbias", "dgamma") if implementation.backward else ():
        gradient = observation.gradients[name]
        assert gradient is not None
        assert gradient.numel() > 0
        assert not gradient.any()


STRIDED: dict[str, dict[str, Any]] = {
    "transposed": {"order": (1, 0)},
    "sliced": {"step": 2},
    "offset": {"offset": 3},
    "padded rows": {"pad": 5},
    "gaps between matrices": {"gap": 2},
    "all of it": {"order": (1, 0), "step": 3, "pad": 2, "offset": 1},
}


@in_every_dtype("bfloat16")
@pytest.mark.parametrize("layout", STRIDED)
def test_a_strided_view_gives_the_result_of_its_contiguous_copy(
    implementation: Implementation, dtype: str, layout: str
) -> None:
    case = scaled_case(B=2, S=3, n=3, D=6, dtype=dtype)
    strided = case
    for spec in case.table.drawn:
        fields = dict(STRIDED[layout])
        if "order" in fields:
            rank = len(spec.symbols)
            fields["order"] = tuple(reversed(range(rank)))
        strided = with_layout(strided, spec.name, **fields)
    assert not forward_arguments(materialise(strided))[0].is_contiguous() or layout == "offset"  # type: ignore[union-attr]
    plain, moved = (results(observed(implementation, one)) for one in (case, strided))
    for name, value in plain.items():
        assert bits(value) == bits(moved[name]), name
    assert_right(implementation, strided)


@every_implementation
@pytest.mark.parametrize("dim", range(4))
def test_an_expanded_view_is_legal(implementation: Implementation, dim: int) -> None:
    case = with_layout(scaled_case(B=2, S=3, n=3, D=6), "x", expand=(dim,))
    assert forward_arguments(materialise(case))[0].stride(dim) == 0  # type: ignore[union-attr]
    assert_right(implementation, case)


@every_implementation
@every_dtype
def test_two_runs_are_bitwise_equal(implementation: Implementation, dtype: str) -> None:
    case = scaled_case(B=3, S=17, n=4, D=33, dtype=dtype)
    first, second = (results(observed(implementation, case)) for _ in range(2))
    for name, value in first.items():
        assert bits(value) == bits(second[name]), name


PER_TOKEN = ("h_in", "h_post", "h_res", "inv_rms", "h_mix", "h_pre", "dx")


@in_every_dtype("bfloat16")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_non_finite_token_stays_alone(implementation: Implementation, dtype: str, value: float) -> None:
    """Its rows have the reference's classes, and every other token's rows are bit for bit what they were."""
    case = scaled_case(B=2, S=5, n=3, D=8, dtype=dtype)
    spoilt = with_tensor(case, "x", literals=(((1, 2, 1, 4), value),))
    clean, dirty = (results(observed(implementation, one)) for one in (case, spoilt))
    others = torch.ones(2, 5, dtype=torch.bool)
    others[1, 2] = False
    for name in [name for name in PER_TOKEN if name in clean]:  # a forward alone has no gradients
        before, after = clean[name], dirty[name]
        assert before is not None
        assert after is not None
        assert bits(before[others]) == bits(after[others]), name
        assert not before[~others].isnan().any()
        assert name in {"inv_rms", "h_pre", "h_post"} or not after[~others].isfinite().all(), name
    assert_right(implementation, spoilt)


EXTREMES = {
    "square beyond float32": {"x": 3e19},
    "x near the largest float32": {"x": 1e37},
    "square below float32": {"x": 1e-30},
    "subnormal x": {"x": 1e-40},
    "phi large": {"phi": 1e30},
    "gates saturated": {"alpha": 1e4},
    "upstream huge": {"dh_post": 1e38, "dh_in": 1e38},
    "upstream tiny": {"dh_post": 1e-38, "dh_in": 1e-38, "dh_res": 1e-38},
}


@in_every_dtype("float32")
@pytest.mark.parametrize("eps", [1e-6, 0.0])
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_values_keep_their_class(implementation: Implementation, dtype: str, eps: float, name: str) -> None:
    case = scaled_case(B=1, S=4, n=2, D=6, dtype=dtype, scalars={"norm_eps": eps, "hc_eps": eps})
    for tensor, scale in EXTREMES[name].items():
        case = with_tensor(case, tensor, scale=scale)
    assert_right(implementation, case, judged=False)


@every_implementation
def test_zero_x_without_eps_is_nan_where_the_mathematics_is(implementation: Implementation) -> None:
    """0 * rsqrt(0) is NaN in float64 and must be in float32."""
    case = with_tensor(scaled_case(B=1, S=2, n=2, D=3, scalars={"norm_eps": 0.0}), "x", kind="zero")
    observation = assert_right(implementation, case)
    inv_rms, h_res = observation.outputs["inv_rms"], observation.outputs["h_res"]
    assert inv_rms is not None
    assert h_res is not None
    assert inv_rms.isposinf().all()
    assert h_res.isnan().all()


@every_implementation
def test_no_gamma_is_gamma_of_ones(implementation: Implementation) -> None:
    ones = with_tensor(scaled_case(B=2, S=3, n=3, D=7), "gamma", kind="constant")
    absent = replace(ones, tensors={name: recipe for name, recipe in ones.tensors.items() if name != "gamma"})
    with_gamma, without = (results(observed(implementation, case)) for case in (ones, absent))
    for name, value in without.items():
        if name == "dgamma":
            assert value is None
        else:
            assert bits(value) == bits(with_gamma[name]), name


def test_outflag_adds_and_changes_nothing() -> None:
    arguments = {name: value for name, value in good_arguments("bfloat16").items() if name in FORWARD}
    for entry in (mhc_forward_pre, mhc_pre):
        short, long = entry(**arguments), entry(**arguments, outflag=True)
        assert (len(short), len(long)) == (3, 6)
        assert [bits(value) for value in short] == [bits(value) for value in long[:3]]


def test_global_precision_settings_do_not_matter_and_are_put_back() -> None:
    arguments = good_arguments()
    given = {name: arguments[name] for name in FORWARD}
    plain = [bits(value) for value in (*mhc_forward_pre(**given, outflag=True), *mhc_pre_backward_manual(**arguments))]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            changed = [
                bits(value) for value in (*mhc_forward_pre(**given, outflag=True), *mhc_pre_backward_manual(**arguments))
            ]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert plain == changed


def test_autograd_through_the_golden_rounds_dx_once() -> None:
    """In bfloat16 the paths to dx are added before the rounding, not after it."""
    assert_right(GOLDEN, scaled_case(1.0, B=2, S=9, n=4, D=50))


def test_choose_says_what_it_took() -> None:
    arguments = good_arguments()
    took = choose(arguments["x"], arguments["gamma"])
    reason = "runs on cuda, not on cpu"
    assert (took.name, took.refused) == ("manual", {"triton": reason, "tilelang": reason})
    assert choose(arguments["x"], impl="golden").name == "golden"


def test_the_entry_refuses_and_never_falls_back() -> None:
    arguments = {name: value for name, value in good_arguments().items() if name in FORWARD}
    picky = Implementation(
        name="picky", forward=lambda *a, **k: (), dtypes=("float32",), supports=lambda case: Refused("odd D")
    )
    with pytest.raises(Refused, match="picky: odd D"):
        mhc_pre(**arguments, impl=picky)
    no_backward = replace(MANUAL, name="forward-only", backward=None)
    arguments["x"].requires_grad_()
    h_in, _, _ = mhc_pre(**arguments, impl=no_backward)
    with pytest.raises(Refused, match="forward-only has no backward"):
        torch.autograd.backward(h_in.sum())
