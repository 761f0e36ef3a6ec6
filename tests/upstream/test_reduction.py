"""Programs made smaller: what may go, what must stay, and when nothing is tried. Probes are stubs that run Python here."""

import ast
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from mhc.upstream.program.script import Call, Script
from mhc.upstream.reduce.edits import edits, free, sites, without
from mhc.upstream.reduce.probe import Probe
from mhc.upstream.reduce.reduction import reduced
from mhc.upstream.source.flat import Flat
from mhc.upstream.source.inline import statements
from mhc.upstream.source.shrink import shrink
from mhc.upstream.source.simplify import Simplify
from mhc.upstream.source.text import Text

KERNEL = """
def kernel(x, y, out):
    a = x[0] * 2.0
    b = y[0] + 1.0
    c = b * 3.0
    if a > 100.0:
        a = 0.0
    for i in range(2):
        a = a + 0.0 * i
    out[0] = a
    out[0] += y[0]
"""


def script(text: str = KERNEL, x: float = 3.0, y: float = 0.0, needs: Sequence[str] = ("x",)) -> Script:
    call = Call(kernel="kernel", arguments={"x": "x", "y": "y", "out": "out"}, head="kernel")
    return Script(
        title="out: value", environment={}, imports=(), device="cpu", definitions={"kernel": textwrap.dedent(text).strip()},
        calls=(call,), given={"x": Text(f"[{x}]"), "y": Text(f"[{y}]")}, made={"out": Text("[-1.0]")}, result="out",
        observed=("out",), end=("actual = out[0]", "wrong = True"), needs=needs,
    )  # fmt: skip


class Stub:
    """A probe without a process.

    Args:
        compiled: what becomes of a text before it runs. unsteady: what is seen is another thing each time.
    """

    guarded = True
    seconds = 0.0

    def __init__(
        self, others: Sequence[dict[str, list[float]]] = (), compiled: Callable[[str], str] = str, unsteady: bool = False
    ) -> None:
        self._others, self._compiled, self._unsteady = others, compiled, unsteady
        self.tries = 0

    def observe(self, script: Script, wanted: str = "") -> str:
        del wanted
        self.tries += 1
        seen = []
        for other in ({}, *self._others):
            namespace: dict[str, object] = {}
            try:
                exec(self._compiled("\n".join(script.definitions.values())), namespace)  # noqa: S102  a program's text
                exec("\n".join(script.given_lines), namespace)  # noqa: S102
                namespace |= {name: list(value) for name, value in other.items()}
                exec("\n".join(script.body), namespace)  # noqa: S102
                seen.append(repr(namespace["out"]))
            except Exception as error:
                return json.dumps({"raised": repr(error)})
        return json.dumps({"seen": [*seen, str(self.tries)] if self._unsteady else seen})


def smallest(whole: Script, *probes: Stub, seconds: float = 60.0) -> str:
    return "\n".join(reduced(whole, cast("list[Probe]", list(probes)), seconds=seconds).definitions.values())


def test_what_changes_nothing_goes_and_what_is_read_stays() -> None:
    stub = Stub([{"x": [-5.0], "y": [0.0]}])
    assert smallest(script(), stub) == "def kernel(x, out):\n    a = x[0] * 2.0\n    out[0] = a"


def test_one_input_is_no_witness_of_a_branch() -> None:
    assert "100.0" in smallest(script(), Stub([{"x": [500.0], "y": [0.0]}]))
    assert "100.0" not in smallest(script(), Stub())


def test_an_input_that_the_reference_reads_is_read() -> None:
    """x changes nothing where it is not compared, but the wrong result is one of x."""
    text = "def kernel(x, y, out):\n    a = 0.0 * x[0]\n    out[0] = 0.0\n    out[0] += a"
    assert "x[0]" not in smallest(script(text, needs=()), Stub())
    assert "x[0]" in smallest(script(text), Stub())


def test_what_a_compiler_loses_is_not_deleted_where_something_else_says_what_it_means() -> None:
    """The compiler loses the last line. Without a second opinion the reducer does too, and blames the program."""

    def losing(text: str) -> str:
        return re.sub(r"\n    out\[0\] \+= y\[0\]", "", text)

    whole = script(y=4.0, needs=("x", "y"))
    assert "y[0]" in smallest(replace(whole, needs=("x",)), Stub(compiled=losing), Stub())
    assert "y[0]" not in smallest(replace(whole, needs=("x",)), Stub(compiled=losing))
    assert "y[0]" in smallest(whole, Stub(compiled=losing)), "even so it is read"


@pytest.mark.parametrize(("stub", "seconds", "tries"), [(Stub(unsteady=True), 60.0, 4), (Stub(), 0.0, 2)])
def test_what_differs_from_run_to_run_or_has_no_time_stays_as_it_is(stub: Stub, seconds: float, tries: int) -> None:
    assert smallest(script(), stub, seconds=seconds) == script().definitions["kernel"]
    assert stub.tries == tries


def definition(text: str) -> ast.stmt:
    return ast.parse(textwrap.dedent(text).strip()).body[0]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(x):\n    y = x + z\n    return y", {"z"}),
        ("def f(x):\n    b = T.alloc_local((1,), 'float32')\n    x[0] = b[0]", None),
        ("def f(x):\n    b = T.alloc_local((1,), 'float32')\n    T.fill(b, 0)\n    x[0] = b[0]", {"T"}),
        ("def f(x):\n    b = T.alloc_local((1,), 'float32')\n    b[0] = 1.0\n    x[0] = b[0]", {"T"}),
    ],
)
def test_names_that_nobody_binds_and_buffers_that_nobody_fills(text: str, names: set[str] | None) -> None:
    assert free(definition(text)) == names


def test_what_is_empty_without_a_statement_goes_with_it() -> None:
    whole = {"f": definition("def f(x):\n    for i in range(3):\n        if i:\n            x[i] = 1\n    return x")}
    inner = next(site for site in sites(whole) if "x[i]" in ast.unparse(node_at(whole, site)).splitlines()[0])
    assert ast.unparse(without(whole, [inner])["f"]) == "def f(x):\n    return x"
    assert "x[i] = 1" in ast.unparse(whole["f"]), "the definitions themselves stay"


def node_at(whole: dict[str, ast.stmt], site: tuple[str, int]) -> ast.AST:
    return list(ast.walk(whole[site[0]]))[site[1]]


@pytest.mark.parametrize(("addresses", "count"), [(False, 3), (True, 7)])
def test_edits_that_may_reach_beside_a_tensor_are_made_only_where_that_would_be_seen(addresses: bool, count: int) -> None:
    text = """
    def f(p, n):
        s = q
        t = tl.minimum(n, 3)
        v = tl.load(p + t, t < n, 0.0)
        w = tl.where(t < n, v, 0.0) + s
    """
    assert len(list(edits({"f": definition(text)}, addresses=addresses))) == count


def flattened(text: str, *entries: str) -> str:
    made = Flat(set(), {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)})
    shrink(made, entries)
    return "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in made.definitions.values())


SPLICED = """
def helper(a, b, k):
    t = a * 2
    for i in range(k):
        t = t + b
    return (t, a)
def kernel(x, t, out):
    y, z = helper(x + t, t, 1)
    out[0] = y + t
"""


def test_a_function_that_is_called_once_is_written_out_under_names_that_are_free() -> None:
    made = flattened(SPLICED, "kernel")
    assert "helper" not in made
    results = []
    for text in (SPLICED, made):
        namespace: dict[str, Callable[..., None]] = {}
        exec(text, namespace)  # noqa: S102  what is tested is a program's text
        out = [0]
        namespace["kernel"](3, 5, out)
        results.append(out)
    assert results == [[26], [26]]


def test_names_that_mean_something_else_in_the_caller_keep_a_function_apart() -> None:
    text = (
        "def helper(a):\n    b = scale(a)\n    return b + b\ndef kernel(scale, out):\n    y = helper(scale)\n    out[0] = y"
    )
    whole = Flat(set(), {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)})
    statements(whole, ["kernel"])
    assert "helper" in whole.definitions


def test_results_that_no_caller_reads_are_not_returned() -> None:
    text = """
def split(v):
    h = v + 1
    m = h * 2
    l = m * 3
    return (h, m, l)
def kernel(x, out):
    a, _, _ = split(x)
    b, _, _ = split(a)
    c, _, _ = split(b)
    out[0] = c
"""
    assert flattened(text, "kernel") == "def kernel(x, out):\n    a = x + 1\n    b = a + 1\n    c = b + 1\n    out[0] = c"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("k = 3\nn = k\ny = x[n]", "y = x[3]"),
        ("k = 3\nfor i in range(2):\n    y[i] = k\n    k = k + 1", "for i in range(2):\n    y[i] = k\n    k = k + 1"),
        ("p = tl.program_id(0)\nq = tl.program_id(1)\ny = x[p * 16 + q]", "q = tl.program_id(1)\ny = x[q]"),
        ("n = tl.num_programs(1)\ny = x[n]", "y = x[4]"),
        ("s = ()\ns = s + (f(x),)\ny = s[0]", "s_0 = f(x)\ns = (s_0,)\ny = s_0"),
        ("a = b\nb = 2\ny = a", "a = b\nb = 2\ny = a"),
        ("k = 1\nf = lambda k: k + n\ny = k", "f = lambda k: k + n\ny = 1"),
        ("for i in range(0):\n    y = 1", ""),
    ],
)
def test_names_are_written_out_as_far_as_they_hold(text: str, made: str) -> None:
    function = definition("def f():\n" + textwrap.indent(text, "    "))
    folded = Simplify(grid=(1, 4)).visit(function)
    left = [line for line in ast.unparse(ast.fix_missing_locations(folded)).splitlines()[1:] if line.strip() != "pass"]
    whole = textwrap.dedent("\n".join(left))
    assert whole.endswith(made)
    assert set(whole.splitlines()) - set(made.splitlines()) <= {
        "k = 3",
        "n = 3",
        "p = 0",
        "n = 4",
        "k = 1",
        "s = ()",
        "s = (s_0,)",
    }
