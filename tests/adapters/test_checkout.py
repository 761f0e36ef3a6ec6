"""Files of a checkout are loaded without the framework around them, and a checkout that is not there is said."""

import importlib
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from mhc import adapters, operator
from mhc.adapters.checkout import Checkout, stand_in
from mhc.case import default_case, with_sizes
from mhc.fuzz.check.check import check
from mhc.fuzz.cli.main import main
from mhc.registry import load

FAKE = Checkout("fake", "Fake", "kernels/twice.py")
OF_MHC = ("flaggems", "megatron", "sglang", "tilekernels", "tilelang", "transformerengine", "vllm")
LIBRARIES = (*OF_MHC, "cce", "mamba", "mlstm", "unsloth", "xformers")


@operator(x="[T] float32", T=(1, 8))
def doubled_in_a_checkout(x: Tensor) -> Tensor:
    return 2.0 * x


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kernels" / "twice.py"
    path.parent.mkdir()
    path.write_text("from no_such_framework.ops import add\n\n\ndef twice(x):\n    return add(x, x)\n")
    monkeypatch.setenv("MHC_CHECKOUT_FAKE", str(tmp_path))
    return path


def failures(name: str, scalars: dict[str, object], **sizes: int) -> set[str]:
    """What is found in a case of these scalars and sizes; the test is skipped where there is no checkout."""
    pytest.importorskip("triton")
    implementation = load(name)
    if implementation.unavailable() is not None:
        pytest.skip(str(implementation.unavailable()))
    case = with_sizes(default_case(operator=str(implementation.operator), dtype="float32", scalars=scalars), **sizes)
    return {f"{one.oracle}: {one.subject}" for one in check(implementation, case, "cpu").failures}


def twice(x: Tensor) -> Tensor:
    module = FAKE.load(FAKE.file, {"no_such_framework.ops": stand_in(add=torch.add)})
    return module.twice(x)  # type: ignore[no-any-return]


def test_a_file_is_judged_with_a_stand_in_for_what_it_imports(checkout: Path) -> None:
    (one,) = FAKE.on(("cpu",), "doubled", doubled_in_a_checkout, function=twice)
    case = default_case(operator="doubled_in_a_checkout", dtype="float32")
    assert (one.name, one.unavailable()) == ("fake:doubled", None)
    assert not check(one, case, "cpu").failures
    assert "no_such_framework.ops" not in sys.modules
    checkout.write_text(checkout.read_text().replace("add(x, x)", "add(x, 3 * x)"))
    assert check(one, case, "cpu").failures


def test_a_module_that_is_there_is_put_back(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = stand_in()
    monkeypatch.setitem(sys.modules, "no_such_framework.ops", there)
    assert twice(torch.ones(1)).tolist() == [2.0]
    assert sys.modules["no_such_framework.ops"] is there


def test_a_checkout_that_is_not_named_or_not_one_is_said(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.unlink()
    assert FAKE.unavailable() == f"MHC_CHECKOUT_FAKE={checkout.parents[1]} has no file kernels/twice.py"
    monkeypatch.delenv("MHC_CHECKOUT_FAKE")
    assert FAKE.unavailable() == "needs MHC_CHECKOUT_FAKE=DIR, a checkout of Fake"
    with pytest.raises(FileNotFoundError):
        FAKE.load(FAKE.file)


def test_modules_of_a_package_are_imported_without_its_first_file(checkout: Path) -> None:
    (checkout.parent / "__init__.py").write_text("import no_such_framework\n")
    (checkout.parent / "thrice.py").write_text("def thrice(x):\n    return 3 * x\n")
    FAKE.importable("mhc_fake_kernels", "kernels")
    assert importlib.import_module("mhc_fake_kernels.thrice").thrice(2) == 6


def test_a_module_is_imported_by_name_with_what_it_imports_relative_to_itself(checkout: Path) -> None:
    (checkout.parent / "__init__.py").write_text("import no_such_framework\n")
    (checkout.parent / "add.py").write_text("from no_such_framework.ops import add\n")
    (checkout.parent / "four.py").write_text(
        "from .add import add\n\n\ndef four(x):\n    return add(add(x, x), add(x, x))\n"
    )
    checkout.parent.rename(checkout.parents[1] / "mhc_fake_package")
    found = FAKE.imported("mhc_fake_package.four", "mhc_fake_package", {"no_such_framework.ops": stand_in(add=torch.add)})
    assert found.four(torch.ones(1)).tolist() == [4.0]
    assert "no_such_framework.ops" not in sys.modules


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("cce:linear_cross_entropy_uncapped", {"T": 3, "E": 5, "V": 7}),
        ("mamba:chunk_cumsum", {"B": 2, "S": 5, "H": 3}),
        ("mamba:selective_state_update", {"B": 2, "Gr": 2, "K": 3, "P": 5, "N": 3}),
        ("mlstm:step", {"B": 2, "H": 3, "K": 4, "V": 8}),
        ("unsloth:cross_entropy", {"T": 3, "V": 8}),
        ("unsloth:geglu", {"D": 5}),
        ("unsloth:layernorm", {"D": 5}),
        ("xformers:index_select_cat", {"T": 5, "D": 3}),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of functions that Triton deprecates
def test_a_library_in_a_checkout_is_right_where_it_is(name: str, sizes: dict[str, int]) -> None:
    assert failures(name, {}, **sizes) == set()


@pytest.mark.parametrize(
    ("name", "sizes"), [("cce:linear_cross_entropy", {"T": 1, "E": 16, "V": 3}), ("unsloth:cross_entropy", {"T": 1, "V": 3})]
)
def test_a_softcap_before_padding_is_found(name: str, sizes: dict[str, int]) -> None:
    """When this fails, the checkout has it mended: docs/results/field/triton-libraries.md."""
    assert "bound: y" in failures(name, {"softcap": 2.0}, **sizes)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_list_names_the_variable(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(f"MHC_CHECKOUT_{library.upper()}", raising=False)
    rows = CliRunner().invoke(main, ["list"]).output.splitlines()
    rows = [row for row in rows if row.startswith(f"{library}:")]
    assert len(rows) == len(adapters.kernels(library))
    assert all(f"not available: needs MHC_CHECKOUT_{library.upper()}=DIR, a checkout of " in row for row in rows)
