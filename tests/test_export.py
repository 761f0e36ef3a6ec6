"""Export of a finding: the program, its verification by itself, and what is refused."""

import ast
import json
import math
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor

from mhc import default_case
from mhc.case import Case
from mhc.fuzz.depth import Depth
from mhc.fuzz.finding import Finding, Fingerprint
from mhc.fuzz.process import HarnessError
from mhc.inputs import materialise
from mhc.reference import reference as float64
from mhc.registry import load
from mhc.upstream import export as exporting
from mhc.upstream import verbs
from mhc.upstream.attribution import Attribution, Setting, attribute, settings
from mhc.upstream.errors import ExportError
from mhc.upstream.export import confirmed
from mhc.upstream.fold import Fold, Unroll, constant
from mhc.upstream.neighbours import Neighbour, neighbours, peers
from mhc.upstream.program import Program, make
from mhc.upstream.reference import reference
from mhc.upstream.script import Script, judge_class
from mhc.upstream.source import closure
from mhc.upstream.tensors import strided_text, tensor_text
from mhc.upstream.text import WIDTH, unparse, wrap
from mhc.upstream.verify import Outcome, run
from oracles.verdict import Status, Verdict

WRONG = 'print("x: expected 1.0, actual 2.0, bound 0.1"); print("REPRODUCED"); raise SystemExit(1)'


def finding(spec: str, subject: str, oracle: str = "bound", symptom: str = "value", case: Case | None = None) -> Finding:
    implementation = load(spec)
    print_ = Fingerprint(
        operator="mhc_pre", implementation=implementation.name, oracle=oracle, subject=subject, symptom=symptom
    )
    return Finding(
        fingerprint=print_, spec=spec, variables=implementation.env, case=case or default_case(), message="seen before"
    )


def program(text: str) -> Program:
    return Program(text=text, to="tilelang", form="whole", at="x", where="a kernel")


def repro(folder: Path, text: str) -> Path:
    path = folder / "repro.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def export_to(folder: Path, finding: Finding, *arguments: str) -> Result:
    path = folder / "finding.json"
    path.write_text(finding.to_json(), encoding="utf-8")
    return CliRunner().invoke(verbs.export_verb, [str(path), "--to", "tilelang", *arguments])


@pytest.mark.parametrize(
    ("mutant", "subject", "to", "case"),
    [
        ("c_post_without_its_2", "h_post", "tilelang", default_case()),
        ("c_dx_without_gamma", "dx", "tilelang", default_case(S=2, n=2, D=3, dtype="float32")),
        ("last_column_masked_off", "inv_rms", "triton", default_case()),
        ("hc_eps_in_the_slope", "dphi", "triton", default_case()),
    ],
)
def test_the_program_of_a_mutant_fails_by_itself_at_the_same_element(
    mutant: str, subject: str, to: str, case: Case, tmp_path: Path
) -> None:
    made = make(finding(f"oracles.mutants.load:{mutant}", subject, case=case), to, "cpu", "cut")
    assert not {"mhc", "oracles", "strategies"} & {word for line in imports(made.text) for word in line.split(".")}
    outcome = run(repro(tmp_path, made.text))
    assert outcome.reproduced, outcome.output
    assert outcome.values.startswith(f"{subject}[")
    healed = run(repro(tmp_path, made.text.replace(f"actual = {actual(made.text)}", "actual = expected")))
    assert healed.healed, healed.output


OUTSIDE = """
import tilelang
import tilelang.language as T
import torch

from mhc import Implementation

FACTOR = 2.0


def doubled(n):
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = x[i] * FACTOR

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def in_a_fragment(n):
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            values = T.alloc_fragment((n,), "float32")
            for i in T.serial(n):
                values[i] = x[i]
            for i in T.serial(n):
                y[i] = values[i]

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def wrong(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    B, S, n, D = x.shape
    h_res, given = torch.empty(n * n), bias[2 * n :].contiguous()
    doubled(n * n)(given, h_res)
    return x[:, :, 0], phi.new_zeros(B, S, n), h_res.expand(B, S, n * n).reshape(B, S, n, n), None, None, None


def raises(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    in_a_fragment(alpha.numel())(alpha, torch.empty_like(alpha))


def nothing(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    raise ValueError(f"no room for {x.numel()} in /tmp/{id(x)}")


WRONG, RAISES, NOTHING = (
    Implementation(name=one.__name__, forward=one, backward=None, devices=("cpu",), dtypes=("float32",))
    for one in (wrong, raises, nothing)
)
"""


def outside(folder: Path, name: str) -> str:
    (folder / "outside.py").write_text(OUTSIDE)
    return f"{folder / 'outside.py'}:{name}"


def test_a_kernel_from_outside_is_exported_with_its_host_code(tmp_path: Path) -> None:
    found = finding(outside(tmp_path, "WRONG"), "h_res", case=default_case(n=2, dtype="float32"))
    with pytest.raises(ExportError, match="launched 0 kernels of tilelang, and 0 others"):
        make(found, "tilelang", "cpu", "cut")
    made = make(found, "tilelang", "cpu", "host")
    assert "Implementation" not in made.text
    assert "in_a_fragment" not in made.text
    outcome = run(repro(tmp_path, made.text))
    assert outcome.reproduced, outcome.output
    assert run(repro(tmp_path, "import sys\nsys.modules['triton'] = None\n" + made.text)).reproduced


def test_what_cannot_be_lowered_raises_the_same_by_itself(tmp_path: Path) -> None:
    symptom = "raises InternalError"
    case = default_case(dtype="float32")
    found = finding(outside(tmp_path, "RAISES"), "forward", "liveness", symptom, case)
    with pytest.raises(ExportError, match="raises InternalError while it is recorded"):
        make(replace(found, fingerprint=replace(found.fingerprint, symptom="raises KeyError")), "tilelang", "cpu", "host")
    made = make(found, "tilelang", "cpu", "host")
    outcome = run(repro(tmp_path, made.text))
    assert outcome.reproduced, outcome.output
    assert "expected no exception, actual " in outcome.values
    healed = run(repro(tmp_path, made.text.replace("T.alloc_fragment", "T.alloc_local")))
    assert healed.healed, healed.output
    another = run(repro(tmp_path, made.text.replace("T.alloc_fragment", "T.alloc_nothing")))
    assert another.status == 2, another.output
    assert another.said.startswith("OTHER: AttributeError")


def test_numbers_and_paths_in_what_is_raised_may_differ(tmp_path: Path) -> None:
    case = default_case(dtype="float32")
    found = finding(outside(tmp_path, "NOTHING"), "forward", "liveness", "raises ValueError", case)
    text = make(found, "torch", "cpu", "host").text
    assert run(repro(tmp_path, text)).reproduced
    changed = text.replace("raise ValueError(f'no room", "raise ValueError(f'no time")
    assert changed != text
    assert run(repro(tmp_path, changed)).said.startswith("OTHER: ValueError: no time")


def test_a_wrong_class_must_be_the_one_that_was_found(tmp_path: Path) -> None:
    judge = judge_class(math.nan)
    script = Script(
        title="x", where="x", environment={}, imports=frozenset(), definitions=(), inputs=("expected = 1.0",),
        run=("actual = math.nan",), judge=judge,
    )  # fmt: skip
    assert run(repro(tmp_path, script.text())).reproduced
    assert run(repro(tmp_path, replace(script, run=("actual = 2.0",)).text())).healed
    assert run(repro(tmp_path, replace(script, run=("actual = math.inf",)).text())).said == "OTHER: inf"


def imports(text: str) -> list[str]:
    return [
        name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    ]


def actual(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("actual = ")).removeprefix("actual = ")


def test_what_a_repro_must_not_lean_on_cannot_be_imported(tmp_path: Path) -> None:
    outcome = run(repro(tmp_path, f"import mhc\n{WRONG}"))
    assert not outcome.reproduced
    assert "ModuleNotFoundError: mhc is not there for a repro" in outcome.output
    assert run(repro(tmp_path, WRONG)).reproduced


def test_caches_are_empty_and_a_run_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    text = f"""
    import os
    for name in ("TRITON_CACHE_DIR", "TILELANG_CACHE_DIR", "MHC_CACHE", "HOME"):
        assert not os.listdir(os.environ[name]), name
        open(os.path.join(os.environ[name], "left"), "w").close()
    {WRONG}
    """
    assert [run(repro(tmp_path, text)).reproduced for _ in range(2)] == [True, True]
    assert not (tmp_path / "left").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('NOT REPRODUCED')", "exit 0, NOT REPRODUCED"),
        ("print('OTHER: TypeError: no'); raise SystemExit(2)", "exit 2, OTHER: TypeError: no"),
        ("raise TypeError('another reason')", "exit 1, nothing said"),
        ("print('REPRODUCED')", "exit 0, REPRODUCED"),
    ],
)
def test_a_program_that_does_not_reproduce_or_for_another_reason_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="run 1 of 3 of its program by itself: " + said):
        confirmed(repro(tmp_path, text))


def test_each_of_three_runs_must_reproduce(tmp_path: Path) -> None:
    count = tmp_path / "count"
    text = f"""
    with open({str(count)!r}, "a+") as file:
        file.write("x"); file.seek(0); runs = len(file.read())
    if runs == 3:
        print("NOT REPRODUCED"); raise SystemExit(0)
    {WRONG}
    """
    with pytest.raises(ExportError, match="run 3 of 3"):
        confirmed(repro(tmp_path, text))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of the program that export makes, its only entry; nothing else runs but that."""
    text = [WRONG]
    monkeypatch.setattr(exporting, "make", lambda *_: program(text[0]))
    monkeypatch.setattr(exporting, "generated", lambda *_: "dx[0] = 1;")
    monkeypatch.setattr(exporting, "attribute", lambda *_: Attribution({"-O0": Outcome(1, "", "REPRODUCED", "")}))
    around = [
        Neighbour("as found", default_case(), "x = 2"),
        Neighbour("D = 2", default_case(D=2), None),
    ]
    monkeypatch.setattr(exporting, "neighbours", lambda *_: around)
    monkeypatch.setattr(exporting, "peers", lambda *_: ["golden passes"])
    return text


def test_export_writes_a_folder_and_says_what_would_file_it(made: list[str], tmp_path: Path) -> None:
    result = export_to(tmp_path, finding("tilelang-c", "dx"))
    assert result.exit_code == 0, result.output
    folder = tmp_path / "finding-tilelang"
    assert (folder / "repro.py").read_text() == WRONG
    document = json.loads((folder / "export.json").read_text())
    assert {"finding", "case", "to", "spec", "symptom", "created", "environment"} <= set(document)
    assert Case.from_json(json.dumps(document["case"])) == default_case()
    issue = (folder / "issue.md").read_text()
    assert issue.startswith("# [BUG][Fuzzer] wrong value: x, a kernel\n")
    for part in (
        "3 of 3 runs in fresh processes with empty caches; deterministic",
        "with D = 2 it passes",
        "| as found | **fails** | x = 2 |",
        "| D = 2 | passes |  |",
        "the program is the first suspect",
        "Other implementations on the same case: golden passes.",
        "dx[0] = 1;",
        "gh issue create --repo tile-ai/tilelang --title '[BUG][Fuzzer] wrong value: x, a kernel' --body-file issue.md",
    ):
        assert part in issue


def test_a_refusal_says_what_it_saw_and_leaves_nothing(made: list[str], tmp_path: Path) -> None:
    made[0] = "print('saw this'); print('NOT REPRODUCED')"
    result = export_to(tmp_path, finding("tilelang-c", "dx"))
    assert result.exit_code == 1
    assert "refused: run 1 of 3 of its program by itself: exit 0, NOT REPRODUCED" in result.output
    assert "saw this" in result.output
    assert not (tmp_path / "finding-tilelang").exists()


def test_a_folder_that_is_there_is_not_written_to(made: list[str], tmp_path: Path) -> None:
    result = export_to(tmp_path, finding("tilelang-c", "dx"), "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "is there already" in result.output


def test_a_fault_of_the_harness_is_not_a_refusal(made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise HarnessError("out of paper")

    monkeypatch.setattr(exporting, "neighbours", broken)
    assert export_to(tmp_path, finding("tilelang-c", "dx")).exit_code == 3


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"oracle": "determinism"}, "no program is made for the gate determinism"),
        ({"subject": "process", "oracle": "liveness", "symptom": "SIGSEGV"}, "no program is made for the gate liveness"),
    ],
)
def test_gates_that_no_program_shows_are_refused(changed: dict[str, str], reason: str) -> None:
    found = finding("tilelang-c", "dx")
    with pytest.raises(ExportError, match=reason):
        make(replace(found, fingerprint=replace(found.fingerprint, **changed)), "tilelang", "cpu", "cut")


def test_what_does_not_fail_is_refused() -> None:
    with pytest.raises(ExportError, match="h_post does not fail while it is recorded: pass"):
        make(finding("tilelang-c", "h_post"), "tilelang", "cpu", "cut")


def test_kernels_of_another_language_are_refused() -> None:
    with pytest.raises(ExportError, match="launched 0 kernels of triton, and 1 others"):
        make(finding("oracles.mutants.load:c_post_without_its_2", "h_post"), "triton", "cpu", "cut")


def test_what_the_host_code_made_is_refused() -> None:
    case = default_case(S=6, D=14, dtype="bfloat16")
    tiny = replace(case, tensors={**case.tensors, "x": replace(case.tensors["x"], scale=2.0**-30)})
    with pytest.raises(ExportError, match="the host code around them has made it"):
        make(finding("oracles.mutants.load:c_h_in_through_float16", "h_in", case=tiny), "tilelang", "cpu", "cut")


@pytest.mark.parametrize("subject", ["h_in", "h_res", "inv_rms", "dx", "dphi", "dalpha", "dbias", "dgamma"])
@pytest.mark.parametrize("absent", [frozenset[str](), frozenset({"gamma"})])
def test_the_reference_in_a_program_is_the_formula(subject: str, absent: frozenset[str]) -> None:
    if subject == "dgamma" and absent:
        return
    case = default_case(absent=absent, S=3, n=2, D=5, dtype="float32")
    inputs = materialise(case)
    function, names = reference(case, subject, {name: one is not None for name, one in inputs.tensors.items()})
    namespace: dict[str, object] = {"torch": torch}
    exec("\n".join(unparse([function])), namespace)  # noqa: S102  what is tested is a program's text
    tensors = [tensor.double() for tensor in (inputs.tensors[name] for name in names) if tensor is not None]
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
    lines = [*sorted(text.imports), f"v = {text.expression}", *(line.format("v") for line in text.after)]
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
    made = ast.fix_missing_locations(Unroll().visit(function))
    assert ast.unparse(made) == "def f():\n" + textwrap.indent(unrolled, "    ")


def test_definitions_of_one_name_get_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one_apart.py").write_text("import torch\nSIZE = 2\ndef helper(x):\n    return torch.ones(SIZE) * x\n")
    (tmp_path / "two_apart.py").write_text(
        "import one_apart as far\nfrom one_apart import SIZE as OTHER\nSIZE = 3\n"
        "def helper(x):\n    '''Doc.'''\n    size = SIZE + OTHER\n    return far.helper(x).sum() + size\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    whole = closure([("two_apart", "helper")])
    text = "\n".join([*sorted(whole.imports), *unparse(whole.statements())])
    namespace: dict[str, object] = {}
    exec(text, namespace)  # noqa: S102  what is tested is a program's text
    assert "Doc." not in text
    assert "apart" not in text
    assert float(namespace[whole.name(("two_apart", "helper"))](10)) == 25.0  # type: ignore[operator]


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


def test_a_run_that_does_not_end_is_no_reproduction(tmp_path: Path) -> None:
    outcome = run(repro(tmp_path, "import time; time.sleep(60)"), seconds=1)
    assert outcome == Outcome(None, "", "", "")
    assert not outcome.reproduced


BROKEN = """
import sys
import tilelang
import tilelang.language as T
import torch

@T.prim_func
def kernel(x: T.Tensor((4,), "float32"), y: T.Tensor((4,), "float32")):
    with T.Kernel(1, is_cpu=True):
        for i in T.serial(4):
            y[i] = x[i]

x, y = torch.full((4,), FILL), torch.zeros(4)
made = tilelang.compile(kernel, target="c", execution_backend="cython", OPTIONS)
made(x, y)
wrong = FAULT
print(f"y[0]: expected 1.0, actual {y[0].item()}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(1 if wrong else 0)
"""


@pytest.mark.parametrize(
    ("options", "fault", "heals"),
    [
        ('compile_flags=["-O3"]', 'not made.pass_configs.get("tir.disable_vectorize")', ("vectorisation off",)),
        (
            'pass_configs={"tl.disable_out_of_bound_warning": True}',
            'made.pass_configs.get("tl.disable_out_of_bound_warning")',
            ("no pass configs of its own",),
        ),
        ("", "True", ()),
    ],
)
def test_what_heals_a_planted_fault_of_the_compiler_is_named(
    options: str, fault: str, heals: tuple[str, ...], tmp_path: Path
) -> None:
    text = BROKEN.replace("OPTIONS", options).replace("FAULT", fault).replace("FILL", "1.0")
    chosen = {"vectorisation off", "no pass configs of its own"}
    tried = [one for one in settings("tilelang", "cpu") if one.name in chosen]
    made = attribute(repro(tmp_path, text), tried)
    assert made.heals == heals
    assert made.suspect == ("compiler" if heals else "program")
    assert ("the program is the first suspect" in made.text()) == (not heals)


def test_flags_of_the_c_compiler_are_attributed(tmp_path: Path) -> None:
    kept = "y[i] = T.if_then_else(x[i] < 1.0, 0.0, T.if_then_else(x[i] >= 1.0, 1.0, 2.0))"
    text = BROKEN.replace("y[i] = x[i]", kept).replace("FILL", "float('nan')")
    text = text.replace("OPTIONS", 'compile_flags=["-O3", "-ffast-math"]').replace("FAULT", "y[0].item() != 2.0")
    assert run(repro(tmp_path, text)).reproduced
    made = attribute(repro(tmp_path, text), [Setting(name="-O0", flags=("-O0",)), Setting(name="same")])
    assert made.heals == ("-O0",)


def test_a_setting_under_which_it_fails_otherwise_heals_nothing() -> None:
    made = Attribution({"a": Outcome(2, "", "OTHER: TypeError: no", ""), "b": Outcome(1, "", "REPRODUCED", "")})
    assert made.heals == ()
    assert "| a | fails otherwise: exit 2, OTHER: TypeError: no |" in made.text()
    assert Attribution({}).suspect == "program"


def test_neighbours_differ_in_one_thing_and_say_where_it_passes() -> None:
    """A stub in place of worker processes: it fails from D = 2 on, and refuses float64."""
    wrong = Verdict(oracle="bound", subject="dx", status=Status.FAIL, symptom="value", message="dx = 2")
    fine = Verdict(oracle="bound", subject="dx", status=Status.PASS)
    refused = Verdict(oracle="refusal", subject="case", status=Status.PASS)

    class Stub:
        retired = False

        def start(self, case: Case, depth: Depth) -> None:
            self.case = case

        def finish(self) -> list[Verdict]:
            return [refused if self.case.dtype == "float64" else wrong if self.case.D > 1 else fine]

        def stop(self) -> None:
            pass

    case = default_case(D=2, scalars={"norm_eps": 0.5, "hc_eps": 1e-6})
    made = neighbours(finding("tilelang-c", "dx", case=case), lambda _: Stub())
    assert made[0] == Neighbour("as found", case, "dx = 2")
    by = {one.change: one.passes for one in made}
    assert by["D = 1"]
    assert not by["D = 3"]
    assert not by["norm_eps = 1e-06"]
    assert "dtype = float64" not in by
    assert "dtype = float16" in by


def test_peers_pass_where_the_finding_s_implementation_is_at_fault(tmp_path: Path) -> None:
    found = finding("oracles.mutants.load:c_post_without_its_2", "h_post")
    assert {"golden passes", "manual passes"} <= set(peers(found, "cpu", tmp_path / "log"))
