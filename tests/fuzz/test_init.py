"""`python -m mhc.fuzz init`: what it finds in a file, the shapes that it guesses, the file that it writes, bad inputs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mhc import load
from mhc.fuzz.cli.init.plan import kernel_of, plan_of, reference_of
from mhc.fuzz.cli.init.survey import survey
from mhc.fuzz.cli.init.text import Plan, text_of
from mhc.fuzz.cli.main import main
from tests.support.helpers import ROOT
from tests.support.outside import failing

TRITON = """
import torch, triton
@triton.jit
def _kernel(x, y): pass
"""
FILES = {
    "softmax": TRITON
    + """
def naive(x):
    return torch.softmax(x.float(), dim=1).to(x.dtype)
def softmax(x):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    _kernel[(n_rows,)](x, y)
    return y
def test_softmax(rows=3):
    assert torch.allclose(softmax(torch.ones(rows, 5)), naive(torch.ones(rows, 5)))
""",
    "matmul": TRITON
    + """
def matmul(a, b, activation=""):
    (M, K), (_, N) = a.shape, b.shape
    c = torch.empty((M, N))
    _kernel[(1,)](a, b, c, a.stride(0), b.stride(1))
    return c
def matmul_ref(a, b):
    return a @ b
""",
    "attention": TRITON
    + """
def reference(q, k, v, sm_scale=0.5, causal=True):
    B, H, S, D = q.shape
    k, v = (one.repeat_interleave(H // one.shape[1], 1).float() for one in (k, v))
    s = q.float() @ k.transpose(-1, -2) * sm_scale
    if causal:
        s = s.masked_fill(torch.ones(S, k.shape[2], dtype=torch.bool).triu(1), float("-inf"))
    return (s.softmax(-1) @ v).to(q.dtype)
class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, sm_scale):
        _kernel[(1,)](q, k, v)
        return q
    @staticmethod
    def backward(ctx, do):
        return do, do, do, None, None
attention = _Attention.apply
""",
    "swiglu": TRITON
    + """
def swiglu_torch(xy):
    x, y = xy.chunk(2, dim=-1)
    return torch.nn.functional.silu(x.float()).to(x.dtype) * y
def swiglu_fwd(xy):
    rows = xy.reshape(-1, xy.shape[-1])
    _kernel[(1,)](rows, rows)
    return rows
def swiglu_bwd(xy, dout):
    _kernel[(1,)](xy, dout)
    return dout
""",
    "cross_entropy": TRITON
    + """
def loss_torch(logits, target):
    return torch.nn.functional.cross_entropy(logits.float(), target, reduction="none")
def loss(logits, target):
    _kernel[(1,)](logits, target)
    return logits
""",
    "embedding": TRITON
    + """
def embedding_ref(ids: torch.Tensor, table: torch.Tensor):
    return table[ids]
def embedding(ids, table):
    _kernel[(1,)](ids, table)
    return table
""",
    "linear": TRITON
    + """
def linear_ref(x, w, b=None):
    y = x.float() @ w.float().t()
    return (y if b is None else y + b.float()).to(x.dtype)
def linear(x, w, b=None):
    _kernel[(1,)](x, w)
    return x
""",
    "quantise": TRITON
    + """
def scales_ref(x, group_size=64):
    return x.float().view(x.shape[0], -1, group_size).abs().amax(-1)
def scales(x, group_size=64):
    _kernel[(1,)](x, x)
    return x
""",
    "gate": TRITON
    + """
from torch import Tensor
from jaxtyping import Float
def gate_ref(a: Float[Tensor, "T H"], b: Float[Tensor, "T H"], s, alpha=2.0):
    return torch.sigmoid(a) * b * s[:, None] * alpha
def gate(a, b, s, alpha=2.0):
    _kernel[(1,)](a, b)
    return a
""",
    "rows": TRITON
    + """
def rows_ref(x, s):
    return x * s.unsqueeze(-1)
def rows(x, s):
    _kernel[(1,)](x, s)
    return x
""",
}
GUESSES = {
    "softmax": ({"x": "[n_rows, n_cols] storage"}, {"tokens": "n_rows"}),
    "matmul": ({"a": "[M, K] storage", "b": "[K, N] storage"}, {"tokens": "M"}),
    "attention": (
        {"q": "[B, H, S, D] storage", "k": "[B, K, N, D] storage", "v": "[B, K, N, M] storage"},
        {"H": "K*G", "tokens": "B"},
    ),
    "swiglu": ({"xy": "[*T, D] storage"}, {"D": "2*D_2", "tokens": "*T"}),
    "cross_entropy": ({"logits": "[T, D] storage", "target": "[T] int64 in 0..D"}, {"tokens": "T"}),
    "embedding": ({"ids": "[D] int64 in 0..T", "table": "[T, N] storage"}, {}),
    "linear": ({"x": "[T, D] storage", "w": "[B, D] storage", "b": "[B] storage optional"}, {"tokens": "T"}),
    "quantise": ({"x": "[T, D] storage"}, {"D": "64*D_64", "tokens": "T"}),
    "rows": ({"x": "[T, D] storage", "s": "[T] storage"}, {"tokens": "T"}),  # not [B, D], which broadcasts too
    "gate": ({"a": "[T, H] storage", "b": "[T, H] storage", "s": "[T] storage"}, {"tokens": "T"}),
}


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    before = set(sys.modules), [*sys.path]
    yield
    sys.path[:] = before[1]
    for name in set(sys.modules) - before[0]:
        if name.startswith(("made_", "mhc_outside_")):
            del sys.modules[name]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / f"made_{name}.py"
    path.write_text(text, encoding="utf-8")
    return path


def planned(path: Path) -> Plan:
    found = survey(path.read_text(encoding="utf-8"), str(path))
    kernel = kernel_of(found, None, None, path, asks=False)
    reference = reference_of(found, None, kernel, path, asks=False)
    return plan_of(path, path.with_name("out.py"), found, kernel, reference, "cpu")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["init", *map(str, arguments)])


@pytest.mark.parametrize("name", FILES)
def test_the_shapes_that_are_guessed(tmp_path: Path, name: str) -> None:
    guess = planned(written(tmp_path, name, FILES[name])).guess
    assert (dict(guess.tensors), dict(guess.keywords)) == GUESSES[name]


def test_which_functions_are_taken(tmp_path: Path) -> None:
    for name, kernel, reference, differentiable in (
        ("softmax", "softmax", "naive", False),  # and not the test, which calls both
        ("attention", "attention", "reference", True),
        ("swiglu", "swiglu_fwd", "swiglu_torch", False),  # and not the backward
    ):
        plan = planned(written(tmp_path, name, FILES[name]))
        assert plan.reference is not None
        assert (plan.kernel.name, plan.reference.name, plan.kernel.differentiable) == (kernel, reference, differentiable)
    assert plan.names == {"xy": "xy"}


def test_arguments_in_another_order_an_output_argument_and_a_further_result(tmp_path: Path) -> None:
    plan = planned(written(tmp_path, "order", FILES["attention"]))
    assert "    return source.attention(q, k, v, True, sm_scale)\n" in text_of(plan)
    assert "    return source.reference(q, k, v, sm_scale, True)\n" in text_of(plan)
    out = TRITON + "def relu(out, x):\n    _kernel[(1,)](x, out)\ndef relu_ref(x):\n    return x.clamp_min(0)\n"
    text = text_of(planned(written(tmp_path, "out", out)))
    assert '    out = torch.full_like(x, float("nan"))' in text
    assert "    source.relu(out, x)\n    return out\n" in text
    more = TRITON + "def f(a):\n    _kernel[(1,)](a, a)\n    return a, a.sum(-1)\ndef f_ref(a):\n    return a + a\n"
    assert "    return source.f(a)[0]  #" in text_of(planned(written(tmp_path, "more", more)))


def test_what_is_written_can_be_loaded_and_finds_a_mistake(tmp_path: Path) -> None:
    text = """
import torch
def add_norm_ref(x, residual, weight, eps=1e-6):
    v = x.float() + residual.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight
def {name}(x, residual, weight, eps=1e-6):
    return add_norm_ref(x, residual, weight, eps) * {factor}
"""
    for factor, wanted in ((1.0, False), (1.01, True)):
        path = written(tmp_path, f"norm{wanted}", text.format(factor=factor, name=f"norm_{wanted}".lower()))
        done = run(path, "--no-run")
        assert done.exit_code == 0, done.output
        made = path.with_name(f"{path.stem}_fuzz.py")
        for line in ("x = [T, D] storage", "residual = [T, D] storage", "weight = [D] storage", "tokens = T"):
            assert f"    {line}\n" in done.output
        assert "eps=(1e-06, 1e-05)" in made.read_text(encoding="utf-8")
        assert len(made.read_text(encoding="utf-8").splitlines()) < 40
        found = failing(load(f"{made}:IMPL"), dtypes=("float32",))
        assert ("y: value (bound)" in found) is wanted, found


def test_without_a_reference_a_skeleton_is_written(tmp_path: Path) -> None:
    text = TRITON + "def gelu(x, alpha):\n    M, N = x.shape\n    _kernel[(1,)](x, x)\n    return x\n"
    path = written(tmp_path, "gelu", text)
    done = run(path)
    made = tmp_path / "made_gelu_fuzz.py"
    assert done.exit_code == 2
    assert f"has no reference: write one in place of the line `raise NotImplementedError` in {made}" in done.output
    assert "python -m mhc.fuzz --impl" in done.output
    written_text = made.read_text(encoding="utf-8")
    assert '    x="[M, N] storage",\n' in written_text
    assert "raise NotImplementedError(" in written_text
    with pytest.raises(Exception, match="fill in: plain PyTorch that computes what gelu computes"):
        load(f"{made}:IMPL")
    right = written_text.replace(written_text[written_text.index("raise Not") :].splitlines()[0], "return x + alpha")
    made.write_text(right, encoding="utf-8")
    assert load(f"{made}:IMPL").name == "gelu"


def test_a_file_is_never_overwritten_unasked(tmp_path: Path) -> None:
    path = written(tmp_path, "again", FILES["softmax"])
    target = tmp_path / "mine.py"
    target.write_text("mine", encoding="utf-8")
    done = run(path, "--output", target, "--no-run")
    assert done.exit_code == 2
    assert f"{target} exists; give --force to overwrite it, or --output" in done.output
    assert target.read_text(encoding="utf-8") == "mine"
    assert run(path, "--output", target, "--no-run", "--force").exit_code == 0
    assert "Implementation(" in target.read_text(encoding="utf-8")


def test_a_file_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    done = run(written(tmp_path, "nowhere", FILES["softmax"]), "--output", tmp_path / "made_nowhere.py" / "a.py", "--no-run")
    assert done.exit_code == 2
    assert f"Error: --output {tmp_path / 'made_nowhere.py' / 'a.py'}: [Errno" in done.output


TWO = TRITON + "def a(x):\n    _kernel[(1,)](x)\n    return x\ndef b(x):\n    _kernel[(1,)](x)\n    return x\n"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("def f(:\n", (), "is no Python: invalid syntax, line 1"),
        ("x = 1\n", (), "has no kernel; give --kernel and --reference for two plain functions"),
        (TRITON, (), "has a kernel, but no function at the top level that launches it"),
        (TWO, (), "has 2 functions that it could be, a, b; give --kernel"),
        (TWO, ("--kernel", "c"), "--kernel c: there is no such function at the top level; there are a, b"),
        (TWO, ("--kernel", "_kernel"), "--kernel _kernel: is compiled; give the Python function that launches it"),
        (TWO, ("--kernel", "a", "--reference", "b"), "--reference b: launches a kernel; a reference is plain PyTorch"),
        (TWO, ("--kernel", "a", "--reference", "a"), "--reference a: is the kernel, and nothing is compared with itself"),
        (
            TWO + "def c(x):\n    return x\ndef d(x):\n    return x + 1\n",
            ("--kernel", "a"),
            "has 2 functions that it could be, c, d; give --reference",
        ),
        ("import not_there_at_all\n" + FILES["softmax"], (), "cannot be imported: ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n" + FILES["softmax"], (), "cannot be imported: it calls exit(3)"),
        (
            TRITON + "def f(x, rows):\n    _kernel[(1,)](x)\n    return x\ndef f_ref(x):\n    return x\n",
            (),
            "f needs rows, which f_ref does not have",
        ),
        (
            TRITON + "def f(x):\n    _kernel[(1,)](x)\ndef f_ref(x):\n    assert False, 'never'\n    return x\n",
            (),
            "no shapes were found in which f_ref can be called; the last call raised AssertionError: never",
        ),
    ],
)
def test_bad_inputs_give_one_sentence(tmp_path: Path, text: str, options: tuple[str, ...], message: str) -> None:
    path = written(tmp_path, "bad", text)
    done = run(path, *options)
    assert done.exit_code == 2, done.output
    (line,) = [one for one in done.output.splitlines() if one.startswith("Error: ")]
    assert message in line
    assert not (tmp_path / "made_bad_fuzz.py").exists()


def test_another_module_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "colorsys.py"  # of the standard library, and not imported by anything here
    import colorsys  # noqa: F401, PLC0415

    path.write_text(FILES["softmax"], encoding="utf-8")
    done = run(path)
    assert done.exit_code == 2
    assert "give the file another name" in done.output


@pytest.mark.slow
def test_the_campaign_runs_from_another_folder(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "examples" / "norm_with_bug.py").read_text(encoding="utf-8")
    written(tmp_path, "norm", text)
    command = [sys.executable, "-m", "mhc.fuzz", "init", "sub/../made_norm.py", "--yes", "--seed", "1", "--cases", "15"]
    (tmp_path / "sub").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FOUND rms_norm: y: value (bound)" in done.stdout
