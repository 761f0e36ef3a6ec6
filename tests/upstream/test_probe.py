"""The process that tries programs: what it sees, what it survives, and the witnesses that it is given."""

import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from mhc import Layout, default_case
from mhc.case import with_tensor
from mhc.upstream.program.script import Call, Script
from mhc.upstream.program.witness import COUNT, _other, witnesses
from mhc.upstream.reduce.probe import Probe
from mhc.upstream.source.text import Text
from mhc.upstream.trace.recording import record
from tests.support.exports import finding

KERNEL = """
def kernel(x, out):
    out.copy_(2 * x)
"""
BESIDE = """
def kernel(x, out):
    import ctypes
    out.fill_(ctypes.c_float.from_address(x.data_ptr() + AT).value * 0 + 1)
"""


def script(text: str, **changes: object) -> Script:
    call = Call(kernel="kernel", arguments={"x": "x", "out": "out"}, head="kernel")
    whole = Script(
        title="out: value", environment={"PLANTED": "here"}, imports=("import math",), device="cpu",
        definitions={"kernel": text.strip()}, calls=(call,), given={"x": Text("torch.ones(4)")},
        made={"out": Text("torch.full((4,), math.nan)")}, result="out", observed=("out",), end=("actual = out[0]",),
    )  # fmt: skip
    return replace(whole, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def probe() -> Iterator[Probe]:
    stored = io.BytesIO()
    torch.save([{"x": torch.full((4,), 3.0)}], stored)
    probe = Probe(script(KERNEL), stored.getvalue())
    probe.seconds = 20.0
    yield probe
    probe.close()


def test_a_program_is_seen_on_what_it_is_given_and_on_the_witnesses(probe: Probe) -> None:
    seen = json.loads(probe.observe(script(KERNEL)))["seen"]
    assert seen[0] == seen[1] != seen[2], "the same between other pages, another result on the witness"
    assert len(seen) == 3
    doubled = probe.observe(script(KERNEL.replace("2 * x", "x + x")))
    assert json.loads(doubled)["seen"] == seen
    other = probe.observe(script(KERNEL.replace("2 * x", "x + 1")), json.dumps({"seen": seen}))
    assert json.loads(other)["seen"][:2] == seen[:2]
    assert json.loads(other)["seen"][2:] != seen[2:], "right for what was found alone"
    early = probe.observe(script(KERNEL.replace("2 * x", "x")), json.dumps({"seen": seen}))
    assert len(json.loads(early)["seen"]) == 1, "the rest of it was not run"


@pytest.mark.parametrize("at", [16, -4])
def test_what_reads_beside_a_tensor_ends_where_that_would_not_be_seen_otherwise(probe: Probe, at: int) -> None:
    text = BESIDE.replace("AT", str(at))
    assert probe.observe(script(text)) == '{"died": "SIGSEGV"}'
    assert "seen" in probe.observe(script(BESIDE.replace("AT", "12")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise ValueError(f'no {id(x)}') from KeyError('under it 17')", {"raised": "KeyError: 'under it #'"}),
        ("import os; os._exit(3)", {"died": "exit 3"}),
        ("import mhc", {"raised": "ModuleNotFoundError: mhc is not there for a repro"}),
        ("import os; out.fill_(len(os.environ['PLANTED']))", None),
    ],
)
def test_what_else_becomes_of_a_program(probe: Probe, text: str, said: dict[str, str] | None) -> None:
    answer = json.loads(probe.observe(script(f"def kernel(x, out):\n    {text}")))
    assert "seen" in answer if said is None else answer == said


def test_what_does_not_end_is_ended(probe: Probe) -> None:
    probe.seconds, before = 1.0, probe.seconds
    try:
        assert probe.observe(script("def kernel(x, out):\n    while True: pass")) == '{"died": "hang"}'
    finally:
        probe.seconds = before


def test_a_function_around_the_launches_is_called_for_what_is_observed(probe: Probe) -> None:
    twice = script(KERNEL, around="def run(x):", observed=("run(x)", "run(x + 1)"), result="out")
    seen = json.loads(probe.observe(twice))["seen"]
    assert len(seen[0]) == 2
    assert seen[0][0] != seen[0][1]


def test_witnesses_have_zeros_where_there_are_zeros_and_no_more_digits() -> None:
    given = torch.tensor([0.0, 1.0, -0.375, math.pi, math.inf, math.nan])
    made = torch.stack([_other(given, torch.Generator().manual_seed(seed)) for seed in range(50)])
    assert bool((made[:, 0] == 0).all())
    assert set(made[:, 1].abs().tolist()) == {0.5, 1.0, 2.0}
    assert set((made[:, 2].abs() * 16).tolist()) <= {float(k) for k in (2, 3, 4, 6, 8, 12)}
    assert len(set(made[:, 3].tolist())) > 40
    assert bool((made[:, 4] == math.inf).all())
    assert bool(made[:, 5].isnan().all())


def test_witnesses_of_a_finding_have_its_shapes_and_strides_and_their_own_saved_tensors() -> None:
    case = with_tensor(default_case(S=2, n=2, D=3, dtype="float32"), "x", kind="normal", layout=Layout(step=2))
    found = finding("mhc.oracles.mutants.load:dx_without_gamma", "dx", case=case)
    recording = record(found, "cpu")
    made = witnesses(recording)
    assert len(made) == COUNT
    for one in made:
        assert one.keys() == {name for name, tensor in recording.given.items() if tensor is not None}
        assert all(tensor.stride() == recording.given[name].stride() for name, tensor in one.items())  # type: ignore[union-attr]
        x = one["x"].double().reshape(1, 2, -1)
        inv_rms = (x.square().mean(-1) + 1e-6).rsqrt()
        assert torch.allclose(one["inv_rms"].double(), inv_rms, rtol=1e-6)
    assert not torch.equal(made[0]["x"], made[1]["x"])
