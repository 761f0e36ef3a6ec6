"""Other libraries' kernels are found by name, are named where the library is missing, and find what is wrong in it."""

import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from mhc import adapters, operator
from mhc.adapters import liger, liger_losses
from mhc.adapters.library import Library
from mhc.case import Case, default_case, with_sizes, with_tensor
from mhc.fuzz.check.check import check
from mhc.fuzz.cli.main import main
from mhc.implementation import ImplementationError
from mhc.operator import OPERATORS
from mhc.operators.eager import eager
from mhc.recipe import Layout
from mhc.registry import load, load_tested
from mhc.strategies.cases import cases
from mhc.strategies.rounds import drawn

KERNELS = {name: one for library in adapters.MODULES for name, one in adapters.kernels(library).items()}
ON_CPU = [name for name, one in KERNELS.items() if "cpu" in one.devices]


@operator(x="[T] float32", T=(1, 8))
def doubled_by_a_library(x: Tensor) -> Tensor:
    return 2.0 * x


def failures(name: str, case: Case) -> list[str]:
    pytest.importorskip("liger_kernel", reason="Liger-Kernel is not installed: pip install 'mhc-fuzz[liger]'")
    return [f"{one.oracle}: {one.subject}" for one in check(load(name), case, "cpu").failures]


def test_a_kernel_of_a_library_is_loaded_by_name() -> None:
    one = load_tested("liger:rms_norm")
    assert (one.name, one.operator, one.devices) == ("liger:rms_norm", "rms_norm", ("cpu",))
    assert load("liger:rms_norm[matmul=tf32]").precision == {"matmul": "tf32"}
    with pytest.raises(ImplementationError, match="liger has no kernel 'nosuch' here; it has liger:rms_norm, "):
        load("liger:nosuch")


def test_a_module_of_another_name_is_no_library() -> None:
    assert adapters.kernel_named("nosuch:rms_norm") is None
    assert adapters.kernel_named("liger") is None


@pytest.mark.parametrize("name", ON_CPU)
def test_the_reference_of_a_kernel_keeps_its_own_bounds(name: str) -> None:
    table = OPERATORS[str(KERNELS[name].operator)]
    case = default_case(operator=table.name, dtype="float32")
    assert not check(eager(table), case, "cpu").failures


def test_each_kernel_of_triton_is_there_for_the_cpu_and_compiled() -> None:
    interpreted = {name for name, one in KERNELS.items() if "TRITON_INTERPRET" in one.env}
    assert {name for name in KERNELS if name.endswith("-compiled")} == {f"{name}-compiled" for name in interpreted}
    assert all("bfloat16" not in KERNELS[name].dtypes for name in interpreted)


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "unavailable", lambda self: f"needs pip install 'mhc-fuzz[{self.name}]'")
    library = Library("fake", "mhc_no_such_package")
    (one, _) = library.kernel(
        "doubled_by_a_library", doubled_by_a_library, function=lambda x: library.load("kernels").doubled_by_a_library(x)
    )
    assert one.unavailable() == "needs pip install 'mhc-fuzz[fake]'"


def test_the_list_has_them_whether_they_are_installed_or_not() -> None:
    rows = CliRunner().invoke(main, ["list"]).output.splitlines()
    absent = {row.split()[0] for row in rows if "not available: " in row}
    for name, one in KERNELS.items():
        assert any(row.split()[0] == name for row in rows)
        assert (name in absent) == (one.unavailable() is not None)


def test_a_library_is_imported_at_the_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mhc_fake_library"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kernels.py").write_text("def doubled_by_a_library(x):\n    return x + x\n")
    monkeypatch.syspath_prepend(tmp_path)
    library = Library("fake", "mhc_fake_library")
    one, _ = library.kernel(
        "doubled_by_a_library", doubled_by_a_library, function=lambda x: library.load("kernels").doubled_by_a_library(x)
    )
    assert one.unavailable() is None
    assert "mhc_fake_library.kernels" not in sys.modules
    assert not check(one, default_case(operator="doubled_by_a_library", dtype="float32"), "cpu").failures
    assert "mhc_fake_library.kernels" in sys.modules


def test_liger_is_right_where_it_is() -> None:
    assert failures("liger:layer_norm", default_case(operator="layer_norm", dtype="float32", D=5)) == []


def test_what_is_wrong_in_liger_is_found() -> None:
    """When this fails, Liger has mended it: docs/results/field/liger.md."""
    case = default_case(operator="cross_entropy_mean", dtype="float32")
    case = with_sizes(case, T=3, V=2)
    assert failures("liger:cross_entropy_mean", case) == []
    strided = with_tensor(case, "x", layout=Layout(order=(1, 0)))
    assert "bound: dx" in failures("liger:cross_entropy_mean", strided)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("bias_gelu", {"T": 3, "D": 5}),
        ("normalized", {"B": 2, "S": 4, "H": 3, "D": 5, "E": 2}),
        ("grpo_with_old", {"P": 3, "S": 4}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_fla_is_right_where_it_is(name: str, sizes: dict[str, int]) -> None:
    pytest.importorskip("fla", reason="flash-linear-attention is not installed: pip install 'mhc-fuzz[fla]'")
    case = with_sizes(default_case(operator=name, dtype="float32"), **sizes)
    assert check(load(f"fla:{name}"), case, "cpu").failures == []


@pytest.mark.parametrize("name", ["jsd", "cross_entropy_each", "cross_entropy_mean", "linear_jsd"])
def test_logits_are_drawn_so_far_apart_that_probabilities_underflow(name: str) -> None:
    """In jsd 0.8.2 that made NaN, where both do; a scale of 64 is enough for exp(-104)."""
    logits = ["frozen_x", "x"] if name == "linear_jsd" else ["target", "x"] if name == "jsd" else ["x"]
    strategy = cases(operator=name, dtypes=("float32",), max_elements=512)
    there = [case for seed in range(6) for case in drawn(strategy, 10, seed)]
    assert sum(all(case.tensors[one].scale >= 64.0 for one in logits) for case in there) >= 8


def test_an_option_is_left_out_where_a_release_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases of Liger-Kernel before 0.5.10 have no `ce_weight`, and before 0.6.2 no `accum_dtype`."""

    class OfOld(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: object,
            x: Tensor,
            weight: Tensor,
            target: Tensor,
            bias: Tensor | None = None,
            ignore_index: int = -100,
            lse_square_scale: float = 0.0,
            label_smoothing: float = 0.0,
            reduction: str = "mean",
            softcap: float | None = None,
        ) -> Tensor:
            assert (ignore_index, lse_square_scale, label_smoothing, reduction, softcap) == (-100, 0.25, 0.5, "none", None)
            return (x @ weight.T).sum(-1)

    monkeypatch.setattr(liger, "_function", lambda *_: OfOld)
    x, weight = torch.ones(2, 3), torch.ones(4, 3)
    found = liger_losses._flce_each(x, weight, torch.zeros(2, dtype=torch.int64), None, smoothing=0.5, z=0.25, softcap=0.0)
    assert found.tolist() == [12.0, 12.0]
