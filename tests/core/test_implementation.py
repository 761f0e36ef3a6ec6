"""Bring your own kernel: loading from a file, a module or an entry point, and every way in which that can go wrong."""

import importlib.metadata
import os
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest
import torch

from mhc import (
    Case,
    Implementation,
    ImplementationError,
    Refused,
    default_case,
    load,
    loading,
    materialise,
    observe,
    reference,
)
from mhc.fuzz.cli.options import load_all
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.registry import load_every
from tests.support.helpers import bits, observed, with_layout

GOOD = """
from mhc import Implementation, Refused, load

manual = load("manual")

def forward(x, phi, alpha, bias, gamma, *, norm_eps, hc_eps):
    h_in, h_post, h_res, *_ = manual.forward(x, phi, alpha, bias, gamma, norm_eps=norm_eps, hc_eps=hc_eps)
    return h_in, h_post, h_res, None, None, None

def backward(x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res, gamma, *, norm_eps, hc_eps):
    return None, None, None, None, None

IMPL = Implementation(
    name="mine", forward=forward, backward=backward,
    devices=("cpu", "cuda"), dtypes=("bfloat16", "float32"),
    supports=lambda case: Refused("n must be a power of two") if case.sizes["n"] & (case.sizes["n"] - 1) else True,
    env={"TRITON_INTERPRET": "1"},
)
NOT_ONE = 3
"""


@pytest.fixture
def good_file(tmp_path: Path) -> Path:
    path = tmp_path / "my_kernel.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


def test_the_promised_interface_loads_from_a_file(good_file: Path) -> None:
    implementation = load(f"{good_file}:IMPL")
    assert (implementation.name, implementation.origin) == ("mine", f"{good_file}:IMPL")
    assert dict(implementation.env) == {"TRITON_INTERPRET": "1"}
    case = default_case(B=1, S=2, n=2, D=3)
    observation = observed(implementation, case)
    assert observation.failure is None
    assert [name for name, value in observation.outputs.items() if value is None] == ["inv_rms", "h_mix", "h_pre"]
    assert set(observation.gradients.values()) == {None}


def test_it_loads_from_a_module_and_an_entry_point(good_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(good_file.parent))
    assert load("my_kernel:IMPL").name == "mine"
    point = EntryPoint(name="theirs", value="my_kernel:IMPL", group="mhc.implementations")
    monkeypatch.setattr(loading, "entry_points", lambda group: importlib.metadata.EntryPoints([point]).select(group=group))
    assert load("theirs").origin == "theirs (my_kernel:IMPL)"
    with pytest.raises(
        ImplementationError,
        match=r"known are triton, tilelang, manual, golden, .*, theirs, or give FILE\.py:NAME",
    ):
        load("ours")
    del sys.modules["my_kernel"]


def test_a_file_without_a_name_stands_for_all_of_its_own_that_run_on_the_device(good_file: Path) -> None:
    more = 'SAME = IMPL\nGPU = Implementation(name="gpu", forward=forward, devices=("cuda",))\n'
    good_file.write_text(f"{GOOD}{more}", encoding="utf-8")
    both = [(f"{good_file}:{name}", of) for name, of in (("IMPL", "mine"), ("GPU", "gpu"))]
    assert [(spec, one.name) for spec, one in load_every(str(good_file))] == both
    assert [one.origin for _, one in load_every(str(good_file))] == [spec for spec, _ in both]
    assert [spec for spec, _ in load_all([str(good_file)], "cpu")] == [f"{good_file}:IMPL"]
    assert [spec for spec, _ in load_all([str(good_file)], "cuda", here=False)] == [spec for spec, _ in both]
    good_file.write_text(f"{GOOD.partition('IMPL')[0]}{more.partition(chr(10))[2]}", encoding="utf-8")
    with pytest.raises(click.UsageError, match=r"my_kernel\.py:GPU: gpu runs on cuda, not on cpu"):
        load_all([str(good_file)], "cpu")
    good_file.write_text(GOOD.partition("def")[0], encoding="utf-8")
    with pytest.raises(click.UsageError, match=r"it has no mhc\.Implementation of its own"):
        load_all([str(good_file)], "cpu")


def test_refusals_give_their_reason(good_file: Path) -> None:
    implementation = load(f"{good_file}:IMPL")
    reasons = {
        "n must be a power of two": (default_case(n=3), "cpu"),
        "takes bfloat16, float32, not float16": (default_case(dtype="float16"), "cpu"),
        "runs on cpu, cuda, not on tpu": (default_case(), "tpu"),
    }
    for reason, (case, device) in reasons.items():
        refusal = implementation.refusal(case, device)
        assert isinstance(refusal, Refused)
        assert refusal.reason == reason
        assert not refusal
    assert implementation.refusal(default_case(n=4), "cpu") is None


BAD_SPECS = {
    "{dir}/absent.py:IMPL": "absent.py: no such file",
    "{dir}/my_kernel.py:NOPE": "my_kernel.py: has no name 'NOPE'; it has manual, IMPL",
    "{dir}/my_kernel.py:NOT_ONE": "my_kernel.py: NOT_ONE is int; expected an mhc.Implementation",
    "{dir}/my_kernel.py:": "must be FILE.py:NAME or package.module:NAME",
    "{dir}/broken.py:IMPL": "broken.py: cannot be imported: ZeroDivisionError: division by zero (broken.py, line 1)",
    "{dir}/syntax.py:IMPL": "syntax.py: cannot be imported: SyntaxError",
    "{dir}/empty.py:IMPL": "empty.py: has no name 'IMPL'; it has no mhc.Implementation at all",
    "no.such.module:IMPL": "no.such.module: cannot be imported: ModuleNotFoundError",
    "golden[matmul=0.01]": "golden[matmul=0.01]: implementation 'golden': precision must map an operation to its",
    "golden[sum=tf32]": "precision must map an operation to its precision, out of matmul: float32, tf32",
    "nobody": "nobody: no such implementation; known are triton, tilelang, manual, golden",
}


def test_less_precision_is_declared_with_the_name(good_file: Path) -> None:
    for spec in (f"{good_file}:IMPL", "golden"):
        declared = load(f"{spec}[matmul=tf32]")
        assert (declared.declared.matmul, declared.origin) == ("tf32", f"{spec}[matmul=tf32]")
        assert declared.name == load(spec).name
        assert load(spec).declared.matmul == "float32"


@pytest.mark.parametrize("spec", BAD_SPECS)
def test_what_cannot_be_loaded_says_which_file_and_why(spec: str, good_file: Path) -> None:
    folder = good_file.parent
    (folder / "broken.py").write_text("1 / 0", encoding="utf-8")
    (folder / "syntax.py").write_text("def", encoding="utf-8")
    (folder / "empty.py").write_text("", encoding="utf-8")
    with pytest.raises(ImplementationError) as caught:
        load(spec.format(dir=folder))
    assert BAD_SPECS[spec] in str(caught.value)


def _nothing(*_: Any, **__: Any) -> Any:
    return None


BAD_RECORDS: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": ""}, "name must be a string of 1 to 200 printable characters"),
    "device": ({"devices": ("tpu",)}, r"devices must be a tuple out of cpu, cuda, was \('tpu',\)"),
    "devices": ({"devices": "cpu"}, "devices must be a tuple out of cpu, cuda, was 'cpu'"),
    "dtype": ({"dtypes": ("float8",)}, "dtypes must be a tuple out of bfloat16"),
    "operator": ({"operator": "nosuch"}, r"operator must be one of mhc_pre(, [\w.]+)*, was 'nosuch'"),
    "env": ({"env": {"A": 1}}, "env must map strings to strings"),
    "supports": ({"supports": 3}, "supports must be a function"),
    "precision": (
        {"precision": {"matmul": "fp8"}},
        "out of matmul: float32, tf32, bfloat16, float16, was {'matmul': 'fp8'}",
    ),
    "operation": ({"precision": {"sum": "tf32"}}, "precision must map an operation to its precision"),
    "neither": ({"forward": None}, "one of forward and backward must be given"),
    "not callable": ({"forward": 3}, "forward must be a function forward"),
    "arity": (
        {"forward": lambda x, phi: None},
        r"forward\(x, phi\) cannot be called as forward\(x, phi, alpha, bias, gamma, \*, norm_eps, hc_eps\)",
    ),
    "backward arity": (
        {"backward": lambda *args, norm_eps: None},
        r"backward\(\*args, norm_eps\) cannot be called as backward\(x, phi, alpha, bias, inv_rms",
    ),
}


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("name", BAD_RECORDS)
def test_a_record_that_does_not_fit_says_what_was_expected(name: str) -> None:
    fields, message = BAD_RECORDS[name]
    with pytest.raises(ImplementationError, match=message):
        Implementation(**{"name": "mine", "forward": _nothing, **fields})


def test_supports_must_answer_true_or_refused() -> None:
    implementation = Implementation(name="mine", forward=_nothing, supports=lambda case: "no")  # type: ignore[arg-type,return-value]
    with pytest.raises(ImplementationError, match=r"supports must return True or Refused\(reason\), was 'no'"):
        implementation.refusal(default_case(), "cpu")


def returning(spoil: Any, stage: str = "forward") -> tuple[Implementation, Case]:
    """The manual implementation with one stage's result passed through `spoil`."""
    manual = MANUAL
    run = getattr(manual, stage)
    stages: Any = {stage: lambda *args, **kwargs: spoil(run(*args, **kwargs))}
    return Implementation(name="mine", origin="mine.py:IMPL", **stages), default_case(B=2, S=3, n=2, D=5)


BAD_RETURNS: dict[str, tuple[str, Any, str]] = {
    "arity": (
        "forward",
        lambda r: r[:5],
        "mine.forward returned 5 values; expected 6: h_in, h_post, h_res, inv_rms, h_mix, h_pre",
    ),
    "backward arity": ("backward", lambda r: (*r, None), "mine.backward returned 6 values; expected 5: dx, dphi"),
    "nothing": ("forward", lambda _: None, "mine.forward returned NoneType; expected 6 values"),
    "a tensor": ("forward", lambda r: r[0], "mine.forward returned Tensor; expected 6 values"),
    "none": (
        "forward",
        lambda r: (None, *r[1:]),
        "mine.forward returned None for h_in, which every implementation must return",
    ),
    "a number": (
        "backward",
        lambda r: (1.0, *r[1:]),
        "mine.backward returned float for dx; expected [B, S, n, D] = (2, 3, 2, 5)",
    ),
    "shape": (
        "forward",
        lambda r: (r[0].mT, *r[1:]),
        "returned h_in of shape (2, 5, 3), torch.bfloat16, on cpu; expected [B, S, D] = (2, 3, 5), torch.bfloat16, on cpu",
    ),
    "dtype": ("backward", lambda r: (r[0].float(), *r[1:]), "returned dx of shape (2, 3, 2, 5), torch.float32, on cpu"),
    "device": ("backward", lambda r: (r[0].to("meta"), *r[1:]), "torch.bfloat16, on meta; expected"),
}


@pytest.mark.parametrize("name", BAD_RETURNS)
def test_a_wrong_arity_or_shape_coming_back_names_the_file(name: str) -> None:
    stage, spoil, message = BAD_RETURNS[name]
    implementation, case = returning(spoil, stage)
    failure = observed(implementation, case).failure
    assert failure is not None
    assert (failure.type, failure.stage) == ("ContractError", stage)
    assert failure.message.startswith("mine.py:IMPL: ")
    assert message in failure.message


def test_an_exception_is_recorded_not_raised() -> None:
    def boom(_: Any) -> Any:
        raise RuntimeError("out of luck")

    implementation, case = returning(boom)
    observation = observed(implementation, case)
    assert observation.failure is not None
    assert (observation.failure.type, observation.failure.message) == ("RuntimeError", "out of luck")
    assert "boom" in observation.failure.traceback
    line = boom.__code__.co_firstlineno + 1
    assert observation.failure.place == f"test_implementation.py, line {line}"


def test_writing_into_an_input_is_recorded_even_beside_the_view() -> None:
    def forward(x: torch.Tensor, *args: Any, **scalars: Any) -> Any:
        x.untyped_storage()[0] = 1 + x.untyped_storage()[0] % 2
        assert MANUAL.forward is not None
        return MANUAL.forward(x, *args, **scalars)

    inputs = materialise(with_layout(default_case(), "x", offset=1))
    before = bits(inputs.storages["x"])
    implementation = Implementation(name="mine", forward=forward)
    assert observe(implementation, inputs, reference(inputs).saved).written == ("x",)
    assert bits(inputs.storages["x"]) == before  # what it was given is a copy


def test_a_pinned_schedule_reaches_the_kernel() -> None:
    seen = []

    def forward(*args: Any, schedule: Any, **scalars: Any) -> Any:
        seen.append(None if schedule is None else dict(schedule))
        assert MANUAL.forward is not None
        return MANUAL.forward(*args, **scalars)

    implementation = Implementation(name="mine", forward=forward, schedule={"block": (16, 32)})
    for schedules in ({}, {"mine": {"block": 32}}):
        assert observed(implementation, default_case(schedules=schedules)).failure is None
    assert seen == [None, {"block": 32}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import sys; sys.exit(0)", r"it calls exit\(0\)"),
        ("import os; os._exit(0)", r"it calls exit\(0\)"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("class Mute(BaseException):\n    def __str__(self): raise ValueError\nraise Mute", "Mute: its text cannot be read"),
    ],
)
def test_a_file_that_would_end_the_process_is_one_that_cannot_be_imported(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "ends.py"
    file.write_text(text, encoding="utf-8")
    end = os._exit
    with pytest.raises(ImplementationError, match=rf"ends\.py: cannot be imported: {why}"):
        load(f"{file}:IMPL")
    assert os._exit is end


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "a\nb"}, "printable characters"),
        ({"name": "caf\udce9"}, "printable characters"),
        ({"name": "x" * 201}, "1 to 200"),
        ({"name": ""}, "1 to 200"),
        ({"forward": lambda x: x}, "forward.* cannot be called as forward"),
        ({"env": {"A=B": "1"}}, "without '='"),
        ({"env": {"A": "\0"}}, "no NUL"),
        ({"schedule": {"BLOCK": 32}}, "a tuple of values"),
        ({"schedule": {"BLOCK": ()}}, "not empty"),
    ],
)
def test_a_record_that_no_run_could_keep_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ImplementationError, match=words):
        replace(load("manual"), **fields)


@pytest.mark.parametrize(
    ("aliases", "words"),
    [
        ([("h_in", "x")], "aliases must be a tuple of pairs of names"),
        ((("h_in",),), "aliases must have pairs of two names, the first out of "),
        ((["h_in", "x"],), "aliases must have pairs of two names"),
        ((("x", "h_in"),), "aliases must have pairs of two names"),
        ((("h_in", "z"),), "aliases must have pairs of two names"),
        ((("h_in", "h_in"),), "the second another out of "),
    ],
)
def test_aliases_are_pairs_of_a_result_and_another_tensor(aliases: Any, words: str) -> None:
    with pytest.raises(ImplementationError, match=words):
        replace(load("manual"), aliases=aliases)
    taken = (("h_in", "x"), ("dx", "dh_in"), ("dx", "dphi"))
    assert replace(load("manual"), aliases=taken).aliases == taken


def test_a_record_is_taken_up_to_its_limits_and_does_not_change() -> None:
    env, schedule = {"A": ""}, {"BLOCK": [32], "SPLIT": (True, False)}
    made = Implementation(
        name="x" * 200, forward=_nothing, dtypes=("float64",), devices=("cuda", "cpu"), env=env, schedule=schedule
    )
    env["B"] = schedule["MORE"] = ()  # type: ignore[assignment]
    assert (dict(made.env), dict(made.schedule)) == ({"A": ""}, {"BLOCK": [32], "SPLIT": (True, False)})
    with pytest.raises(TypeError):
        made.env["C"] = "1"  # type: ignore[index]
    assert (made.stages(["backward", "forward"]), made.stages(["backward"])) == (["forward"], [])
    for fields in ({"devices": ()}, {"dtypes": ()}, {"compiles": 3}, {"name": 3}, {"env": {"": "1"}}, {"env": {"\0": "1"}}):
        with pytest.raises(ImplementationError):
            Implementation(**{"name": "mine", "forward": _nothing, **fields})  # type: ignore[arg-type]
    refusals = [
        (made.refusal(default_case(dtype=dtype), device), dtype, device)
        for dtype, device in (("float64", "cpu"), ("float32", "cpu"), ("float64", "tpu"))
    ]
    assert [None if one is None else one.reason for one, _, _ in refusals] == [
        None,
        "takes float64, not float32",
        "runs on cuda, cpu, not on tpu",
    ]
    case = default_case(dtype="float64")
    for schedule_of, refused in (({"BLOCK": 32}, False), ({"BLOCK": 64}, True), ({"WARPS": 32}, True)):
        found = made.refusal(replace(case, schedules={made.name: schedule_of, "other": {"Z": 1}}), "cpu")
        assert (found is not None) is refused


def test_a_module_that_fails_when_it_is_looked_into_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "fails.py"
    file.write_text("def __getattr__(name):\n    raise RuntimeError(name)\n", encoding="utf-8")
    with pytest.raises(ImplementationError, match=r"fails\.py: cannot be imported: RuntimeError: IMPL"):
        load(f"{file}:IMPL")
    with pytest.raises(ImplementationError, match="File name too long"):
        load(f"{'a' * 5000}.py:IMPL")
