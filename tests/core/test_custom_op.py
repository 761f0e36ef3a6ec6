"""Custom operators of `torch.library` as implementations: what their schema says, their backward, and what is refused."""

import pytest
import torch
from torch import Tensor

from mhc import ImplementationError, Layout, default_case
from mhc.case import with_tensor
from mhc.custom_op import from_custom_op
from tests.support.outside import failing


def reference(x: Tensor, w: Tensor, eps: float) -> Tensor:
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * w


@torch.library.custom_op("mhc_tests::norm", mutates_args=())
def norm(x: Tensor, w: Tensor, eps: float = 1e-6, chunk: int = 4) -> Tensor:
    return reference(x, w, eps)


def _saved(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, Tensor, float, int], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.eps = inputs[2]  # type: ignore[attr-defined]


def _backward(ctx: torch.autograd.function.FunctionCtx, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, w = (one.detach().requires_grad_() for one in ctx.saved_tensors)  # type: ignore[attr-defined]
    with torch.enable_grad():
        y = reference(x, w, ctx.eps)  # type: ignore[attr-defined]
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    return dx, dw * SCALE[0], None, None


SCALE = [1.0]
norm.register_autograd(_backward, setup_context=_saved)


@torch.library.custom_op("mhc_tests::norm_out", mutates_args=("out",), device_types="cpu")
def norm_out(out: Tensor, x: Tensor, w: Tensor, eps: float) -> None:
    n = x.shape[-1] if WHOLE[0] else x.shape[-1] // 4 * 4
    out[..., :n].copy_(reference(x, w, eps)[..., :n])


WHOLE = [True]


@torch.library.custom_op("mhc_tests::add_", mutates_args=("x",), device_types="cpu")
def add_(x: Tensor, b: Tensor | None) -> None:
    x.add_(0.0 if b is None else b)


@torch.library.custom_op("mhc_tests::many", mutates_args=())
def many(x: list[Tensor]) -> Tensor:
    return x[0].clone()


def test_a_functional_operator_with_its_registered_backward() -> None:
    made = from_custom_op("mhc_tests::norm", reference=reference, x="[T, D]", w="[D]", tokens="T")
    assert (made.name, made.devices) == ("mhc_tests::norm", ("cpu", "cuda"))
    assert dict(made.table.scalars) == {"eps": 1e-6}, "an int stays at its default"
    assert failing(made) == []
    SCALE[0] = 1.01
    try:
        assert "dw: value (bound)" in failing(made)
    finally:
        SCALE[0] = 1.0


def test_an_operator_that_writes_its_output() -> None:
    made = from_custom_op(
        "mhc_tests::norm_out", reference=reference, x="[*B, D]", w="[D]", eps=(1e-6, 1e-5), tokens="*B", name="norm_out"
    )
    assert (made.devices, made.backward) == (("cpu",), None)
    assert failing(made) == []
    WHOLE[0] = False
    try:
        assert "y: class (nonfinite)" in failing(made)  # what was not written is NaN
    finally:
        WHOLE[0] = True


def test_an_operator_that_writes_its_input_and_takes_an_optional_one() -> None:
    def added(x: Tensor, b: Tensor | None) -> Tensor:
        return x.clone() if b is None else x + b

    made = from_custom_op("mhc_tests::add_", reference=added, x="[T, D]", b="[D]", tokens="T")
    assert made.table.mutates == {"x"}
    assert [one.optional for one in made.table.inputs] == [False, True]
    assert failing(made) == []
    case = default_case(operator="mhc_tests_add_", T=2, D=3, dtype="float32")
    assert made.refusal(case, "cpu") is None
    shared = with_tensor(case, "x", layout=Layout(expand=(0,)))
    assert str(made.refusal(shared, "cpu")) == "writes x, whose elements share memory"


def test_an_operator_of_pytorch_itself() -> None:
    def silu(self: Tensor) -> Tensor:
        return (self.float() * torch.sigmoid(self.float())).to(self.dtype)

    assert failing(from_custom_op("aten::silu", reference=silu, self="[T, D]")) == []


def test_what_does_not_fit_is_refused() -> None:
    def one(x: Tensor) -> Tensor:
        return x.clone()

    def other(x: Tensor, w: Tensor, eps: float, gain: float) -> Tensor:
        return x * gain

    def two(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        return x * eps, w.clone()

    axes = {"x": "[T, D]", "w": "[D]"}
    for name, reference_, given, message in (
        ("mhc_tests::nowhere", one, {}, "there is no such custom operator; import the module that registers it"),
        ("nowhere", one, {}, "there is no such custom operator"),
        ("mhc_tests::many", one, {"x": "[T]"}, "x is a list of tensors"),
        ("mhc_tests::norm", one, axes, "the operator takes w, and the reference does not"),
        ("mhc_tests::norm", other, axes, "the reference takes gain, and the operator does not"),
        ("mhc_tests::norm", reference, {"x": "[T, D]"}, 'give the notation of w, as in w="[T, D] storage"'),
        ("mhc_tests::norm", two, axes, "it has 1 results, and the reference 2"),
        ("mhc_tests::norm_out", reference, axes, "give the value of eps, which has no default"),
    ):
        with pytest.raises(ImplementationError, match=f"^{name}: ") as caught:
            from_custom_op(name, reference=reference_, **given)
        assert message in str(caught.value)
