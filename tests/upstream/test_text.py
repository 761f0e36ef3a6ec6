"""What exported programs are made of: the reference, tensors, folded and gathered definitions, lines."""

import ast
import math
import textwrap
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mhc import default_case
from mhc.inputs import materialise
from mhc.reference import reference as float64
from mhc.upstream.program.kernels import viewed
from mhc.upstream.program.reference import reference
from mhc.upstream.program.script import heading, wrapped
from mhc.upstream.source.definitions import closure
from mhc.upstream.source.fold import Fold, constant
from mhc.upstream.source.simplify import Simplify
from mhc.upstream.source.text import WIDTH, strided_text, tensor_text, unparse, wrap
from mhc.upstream.trace.capture import Capture, Variable
from mhc.upstream.verify import ExportError

SUBJECTS = ("h_in", "h_res", "inv_rms", "dx", "dphi", "dalpha", "dbias")


@pytest.mark.parametrize(
    ("subject", "absent"),
    [
        *((subject, frozenset[str]()) for subject in (*SUBJECTS, "dgamma")),
        *((subject, frozenset({"gamma"})) for subject in SUBJECTS),
    ],
)
def test_the_reference_in_a_program_is_the_formula(subject: str, absent: frozenset[str]) -> None:
    case = default_case(absent=absent, S=3, n=2, D=5, dtype="float32")
    inputs = materialise(case)
    formula = reference(case, subject, {name: one is not None for name, one in inputs.tensors.items()})
    namespace: dict[str, object] = {"torch": torch}
    exec(formula.text, namespace)  # noqa: S102  what is tested is a program's text
    tensors = [tensor.double() for tensor in (inputs.tensors[name] for name in formula.parameters) if tensor is not None]
    got = namespace["reference"](*tensors)  # type: ignore[operator]
    wanted = float64(inputs)
    right = {**wanted.outputs, **wanted.gradients}[subject]
    assert right is not None
    assert torch.equal(got, right)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 5, 300])
def test_tensors_are_written_bit_for_bit(dtype: torch.dtype, count: int) -> None:
    values = torch.randn(count, 2, generator=torch.Generator().manual_seed(count), dtype=torch.float64).to(dtype)
    if count:
        values[0, 0], values[-1, 1] = math.nan, -math.inf
    for value in (values, torch.zeros_like(values), -torch.zeros_like(values), torch.full_like(values, math.inf)):
        assert torch.equal(bits(made_of(value)), bits(value))


def test_one_value_with_exceptions_is_not_packed() -> None:
    value = torch.ones(40, 40)
    value[3, 4], value[5, 6] = -0.0, 7.0
    assert len(tensor_text(value).after) == 2
    assert torch.equal(bits(made_of(value)), bits(value))


def test_memory_that_a_kernel_reads_as_if_it_were_dense_is_passed_so() -> None:
    x = torch.arange(12.0).view(3, 4).t()
    capture = Capture({"x": x, "dense": x.contiguous(), "copied": x + 1})
    names = [capture.variable(one, "x").name for one in (x, capture.given["dense"], capture.given["copied"].contiguous())]
    assert (names[:2], [capture.strided(name) for name in capture.given]) == (["x", "dense"], [True, False, False])
    passed = eval(viewed(Variable("x"), None, (4, 3)), {"x": x})
    assert passed.is_contiguous()
    assert torch.equal(passed.reshape(-1), torch.arange(12.0))
    assert viewed(Variable("x"), (4, 3), (4, 3)) == "x"


def test_strides_are_kept() -> None:
    value = torch.arange(12.0).view(3, 4).t()[:, ::2]
    namespace: dict[str, object] = {"torch": torch, "math": math, "v": value.contiguous()}
    for line in strided_text(value, value.shape):
        exec(line.format("v"), namespace)  # noqa: S102  what is tested is a program's text
    got = namespace["v"]
    assert isinstance(got, Tensor)
    assert got.stride() == value.stride()
    assert torch.equal(got, value)


def made_of(value: Tensor) -> Tensor:
    text = tensor_text(value)
    lines = [*sorted(text.imports), *wrapped([f"v = {text.expression}", *(line.format("v") for line in text.after)])]
    assert max(map(len, lines)) <= WIDTH
    namespace: dict[str, object] = {"torch": torch, "math": math}
    exec("\n".join(lines), namespace)  # noqa: S102  what is tested is a program's text
    made = namespace["v"]
    assert isinstance(made, Tensor)
    assert made.shape == value.shape
    assert made.dtype == value.dtype
    return made


def bits(value: Tensor) -> Tensor:
    return value.contiguous().reshape(-1).view(torch.uint8)


@pytest.mark.parametrize(
    ("text", "known", "folded"),
    [
        ("if A:\n    x = 1\nelse:\n    x = 2", {"A": False}, "x = 2"),
        ("if A and b:\n    x = 1", {"A": True}, "if b:\n    x = 1"),
        ("if A and b:\n    x = 1", {"A": False}, ""),
        ("x = b or A", {"A": True}, "x = b or True"),
        ("x = p if not A else q", {"A": True}, "x = q"),
        ("x = A // B * c", {"A": 7, "B": 2}, "x = 3 * c"),
        ("x = 1 // A", {"A": 0}, "x = 1 // 0"),
        ("M: tl.constexpr = A * 2\nx = M + k", {"A": 3}, "x = 6 + k"),
        ("if tl.float32 == tl.float64:\n    x = 1\nelse:\n    x = 2", {}, "x = 2"),
    ],
)
def test_folding(text: str, known: dict[str, object], folded: str) -> None:
    function = ast.parse("def f():\n" + textwrap.indent(text, "    ")).body[0]
    made = Fold({name: constant(value) for name, value in known.items()}).visit(function)
    want = textwrap.indent(folded or "pass", "    ")
    assert ast.unparse(ast.fix_missing_locations(made)) == "def f():\n" + want


@pytest.mark.parametrize(
    ("text", "unrolled"),
    [
        ("for i in T.serial(1):\n    y[n + i] = x[i]", "y[n] = x[0]"),
        ("for i, j in T.grid(1, 1):\n    y[i * 3 + j] = 1", "y[0] = 1"),
        ("for i in T.serial(2):\n    y[i] = 1", "for i in T.serial(2):\n    y[i] = 1"),
        ("for i in T.serial(1):\n    i += 1\n    y[i] = 1", "for i in T.serial(1):\n    i += 1\n    y[i] = 1"),
        ("for i in T.serial(1):\n    if i < 1:\n        y[T.min(i, 4)] = x[i] * 0", "y[0] = x[0] * 0"),
        ("for i in T.serial(1):\n    y[T.ceildiv(i, 3)] = T.if_then_else(i == 1, a, b)", "y[0] = b"),
    ],
)
def test_loops_that_run_once(text: str, unrolled: str) -> None:
    function = ast.parse("def f():\n" + textwrap.indent(text, "    ")).body[0]
    made = ast.fix_missing_locations(Simplify().visit(function))
    assert ast.unparse(made) == "def f():\n" + textwrap.indent(unrolled, "    ")


def test_definitions_of_one_name_get_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one_apart.py").write_text("import torch\nSIZE = 2\ndef helper(x):\n    return torch.ones(SIZE) * x\n")
    (tmp_path / "two_apart.py").write_text(
        "import one_apart as far\nfrom one_apart import SIZE as OTHER\nSIZE = 3\n"
        "def helper(x):\n    '''Doc.'''\n    size = SIZE + OTHER\n    return far.helper(x).sum() + size\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    whole = closure([("two_apart", "helper")])
    text = "\n".join([*sorted(whole.imports), *unparse(whole.definitions.values())])
    namespace: dict[str, object] = {}
    exec(text, namespace)  # noqa: S102  what is tested is a program's text
    assert "Doc." not in text
    assert "apart" not in text
    assert float(namespace[whole.names["two_apart", "helper"]](10)) == 25.0  # type: ignore[operator]


def test_a_name_that_no_module_binds_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lost_apart.py").write_text("def helper(x):\n    return lost(x)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ExportError, match="lost_apart: nothing at its top level is called lost"):
        closure([("lost_apart", "helper")])


def test_long_lines_are_broken_within_brackets() -> None:
    line = "    result = function(" + ", ".join(f"'argument, {i}'" for i in range(30)) + ")"
    lines = wrap(line)
    assert len(lines) > 1
    assert all(len(one) <= WIDTH for one in lines)
    assert ast.dump(ast.parse(textwrap.dedent("\n".join(lines)))) == ast.dump(ast.parse(line.strip()))


def test_a_dtype_that_no_tensor_has_decides_branches() -> None:
    text = "def f(v):\n    if v.dtype == tl.float64:\n        return 1\n    elif v.dtype == tl.float32:\n        return 2"
    function = ast.parse(text).body[0]
    made = Fold({}, absent=frozenset({"tl.float64"})).visit(function)
    assert ast.unparse(made) == "def f(v):\n    if v.dtype == tl.float32:\n        return 2"


def test_the_first_line_of_a_program_fits() -> None:
    for title in ("dx: value", "dphi: repeated tokens, on the case's inputs with repeated tokens"):
        lines = heading(title)
        assert max(map(len, lines)) <= WIDTH
        assert ast.get_docstring(ast.parse("\n".join(lines)))


@pytest.mark.parametrize(
    "title",
    [
        'dx: value"""\nraise SystemExit\n"""',
        'dx: ""' + '""" + print() + """',
        "dx: \\",
        "dx: \\" + '"""\nprint()',
        "dx: \x1b]52;c;QQ\x07 \u202e \ud800",
        '"dx"' * 60,
    ],
)
def test_a_title_is_nothing_but_a_docstring(title: str) -> None:
    """It has the words of a finding, which may be somebody else's."""
    program = ast.parse("\n".join(heading(title)))
    (only,) = program.body
    assert isinstance(only, ast.Expr)
    assert isinstance(only.value, ast.Constant)
    assert isinstance(only.value.value, str)
    assert all(line.isprintable() for line in heading(title))
