"""Operators from definitions of FlashInfer-Bench: what becomes of axes, constraints and scalars, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mhc import DeclarationError, Implementation
from mhc.definition import from_definition, read_definition
from tests.support.helpers import ROOT
from tests.support.outside import failing

FOLDER = ROOT / "tests" / "support" / "definitions"
NORM, ROWS = FOLDER / "rms_norm_h8.json", FOLDER / "scaled_rows.json"
INDEX = "[tokens] int64 in 0..table"


def test_a_norm_with_a_constant_width_is_judged() -> None:
    table = from_definition(NORM, tokens="rows")
    assert [(one.name, one.symbols, one.role.value) for one in table.inputs] == [
        ("hidden_states", ("rows", "hidden"), "storage"),
        ("weight", ("hidden",), "storage"),
    ]
    assert dict(table.scalars) == {"eps": 1e-6}
    assert [(one.name, one.least, one.most) for one in table.axes] == [("rows", 1, 8192), ("hidden", 8, 8)]
    assert read_definition(NORM).dtype == "bfloat16"

    def right(x: torch.Tensor, weight: torch.Tensor, *, eps: float) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x.float(), (8,), weight.float(), eps).to(x.dtype)

    def wrong(x: torch.Tensor, weight: torch.Tensor, *, eps: float) -> torch.Tensor:
        return right(x, weight, eps=eps) * 1.1

    fields: dict[str, Any] = {"operator": table, "dtypes": ("bfloat16",)}
    assert failing(Implementation(name="right", forward=right, **fields)) == []
    assert "y: value (bound)" in failing(Implementation(name="wrong", forward=wrong, **fields))


def test_constraints_between_sizes_become_formulas_and_ranges() -> None:
    table = from_definition(ROWS, index=INDEX, name="scaled")
    assert dict(table.formulas) == {"marks": "tokens + 1"}
    assert {one.name: (one.least, one.most) for one in table.axes} == {
        "table": (2, 8192),
        "width": (24, 24),
        "tokens": (1, 8192),
    }
    assert table.scalars == {}, "a boolean has one value"
    assert [one.role.value for one in table.inputs] == ["storage", "int64", "accumulate"]
    rows, scale = torch.randn(5, 24), torch.rand(4)
    (y,) = table.forward(rows, torch.tensor([4, 0, 1]), scale)
    assert torch.equal(y, rows[[4, 0, 1]] * scale[1:, None])


def changed(tmp_path: Path, source: Path, **fields: Any) -> Path:
    document = json.loads(source.read_text(encoding="utf-8"))
    for name, value in fields.items():
        document[name] = {**document[name], **value} if isinstance(value, dict) else value
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"constraints": ["tokens == index[-1].item()"]}, "is about values of tensors"),
        ({"constraints": ["width % groups == 1"]}, "does not hold for its constant axes"),
        ({"constraints": ["tokens * 2 == table * 3"]}, "cannot be declared"),
        ({"constraints": ["tokens >"]}, "cannot be declared"),
        ({"constraints": ["nowhere > 1"]}, "cannot be declared"),
        ({"inputs": {"rows": {"shape": ["table", "width"], "dtype": "float8_e4m3fn"}}}, "rows is float8_e4m3fn"),
        ({"inputs": {"gain": {"shape": None, "dtype": "float32"}}}, "does not take its inputs"),
        ({"axes": {"width": {"type": "const", "value": 2**25}}}, "rows has at least 67,108,864 elements"),
        ({"axes": {"width": {"type": "const"}}}, "axis width is constant, and has no value"),
        ({"reference": "def run(:"}, "cannot be executed: SyntaxError"),
        ({"reference": "raise RuntimeError('no')"}, "cannot be executed: RuntimeError: no"),
        ({"reference": "x = 1"}, "has no function `run`"),
        ({"name": "import"}, "'import' is no name"),
        ({"inputs": {"rows": {"shape": ["depth"], "dtype": "float16"}}}, "depth is no axis of it"),
        ({"axes": 3}, "is no definition"),
    ],
)
def test_what_cannot_be_declared_is_refused_with_one_sentence(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    path = changed(tmp_path, ROWS, **fields)
    with pytest.raises(DeclarationError) as caught:
        from_definition(path, index=INDEX)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert message in text
    assert "\n" not in text


def test_integers_need_a_range_and_scalars_a_value(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"give index='\[tokens\] int64 in 0\.\.N'"):
        from_definition(ROWS)
    reference = json.loads(NORM.read_text(encoding="utf-8"))["reference"].replace("eps=1e-6", "eps")
    path = changed(tmp_path, NORM, reference=reference)
    with pytest.raises(DeclarationError, match=r"give it, as in eps=\(1e-6, 1e-5\)"):
        from_definition(path)
    assert from_definition(path, eps=(1e-5, 0.0), name="norm_given").scalar_choices["eps"] == (1e-5, 0.0)


def test_nothing_is_executed_before_the_file_is_known_to_be_a_definition(tmp_path: Path) -> None:
    told = tmp_path / "told"
    source = f"from pathlib import Path\nPath({str(told)!r}).write_text('executed')\ndef run(rows, index, scale, flip): ..."
    path = changed(tmp_path, ROWS, reference=source)
    read_definition(path)
    assert not told.exists()
    with pytest.raises(DeclarationError):
        from_definition(path, index=INDEX, flip=True)
    assert told.exists()
