"""Evaluates a function of TVM's IR, of the few kinds of nodes that a program becomes on a CPU, with exact integers."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from mhc.programs import arithmetic, grammar
from mhc.programs.arithmetic import Invalid
from mhc.programs.evaluate import TURNS, Left
from mhc.programs.tvm_arithmetic import computed

Node = Any
"""A node of TVM's IR."""
_Memory = dict[Any, Any]
_Run = Callable[[_Memory], Any]
_NOTHING = {"DeclBuffer", "AllocBuffer", "Evaluate"}
"""Statements without a body of their own that compute nothing."""
_AROUND = {"LetStmt", "Allocate", "DeclBuffer", "AllocBuffer", "AttrStmt", "AssertStmt"}
"""Statements that may hold another one, in releases where they do."""


def evaluate_function(
    function: Node, given: Mapping[str, np.ndarray[Any, Any]], symbols: Mapping[str, int | float] = MappingProxyType({})
) -> dict[str, np.ndarray[Any, Any]]:
    """Return what the parameters hold after a call.

    Args:
        given: what they hold before, by name. symbols: what is passed by value, by name.

    Raises:
        NotImplementedError: the function has a node that is not evaluated here.
        Invalid: it reads or writes out of bounds, or reads what was not written.
        ZeroDivisionError: it divides by 0.
    """
    memory: _Memory = {}
    shared: dict[str, list[Any]] = {}
    for parameter in function.params:
        buffer = function.buffer_map.get(parameter)
        data = parameter if buffer is None else buffer.data
        if buffer is None and data.name in symbols:
            memory[data] = symbols[data.name]
            continue
        for size in () if buffer is None else buffer.shape:
            if getattr(size, "name", "") in symbols:
                memory[size] = symbols[size.name]
        if data.name not in given:
            raise NotImplementedError(f"there is no parameter {data.name}")
        shared[data.name] = memory[data] = given[data.name].ravel().tolist()
    _statement(function.body)(memory)
    return {
        name: np.array(shared[name], dtype=before.dtype).reshape(before.shape)
        for name, before in given.items()
        if name in shared
    }


def _statement(node: Node) -> _Run:
    kind = type(node).__name__
    match kind:
        case "SeqStmt":
            return _each([_statement(one) for one in node.seq])
        case "For":
            return _loop(node)
        case "While":
            return _while(node)
        case "IfThenElse":
            condition, then = _expression(node.condition), _statement(node.then_case)
            otherwise = _statement(node.else_case) if node.else_case is not None else _each([])
            return lambda memory: (then if condition(memory) else otherwise)(memory)
        case "BufferStore":
            return _store(node)
        case "BlockRealize" | "SBlockRealize":
            if len(node.iter_values):
                raise NotImplementedError("a block with iterators")
            return _statement(node.block.body)
        case "Bind" | "LetStmt":
            value = _expression(node.value)
            bind: _Run = lambda memory: memory.__setitem__(node.var, value(memory))  # noqa: E731
            return _each([bind, _statement(node.body)]) if kind == "LetStmt" else bind
        case "Evaluate" if _leaves(node) is not None:
            return _leave(last=bool(_leaves(node)))
        case "Evaluate" if type(node.value).__name__ == "Call" and not node.value.op.name.endswith((".ret", ".assume")):
            raise NotImplementedError(f"a call of {node.value.op.name}")
    if kind == "AttrStmt" and node.attr_key == "thread_extent":
        raise NotImplementedError("threads")
    body = getattr(node, "body", None)
    if kind in _AROUND and body is not None:
        return _statement(body)
    if kind in _NOTHING:
        return _each([])
    raise NotImplementedError(kind)


def _each(runs: list[_Run]) -> _Run:
    def run(memory: _Memory) -> None:
        for one in runs:
            one(memory)

    return run


def _leaves(node: Node) -> bool | None:
    """Return whether a statement leaves a loop; False: an iteration; None: neither."""
    name = node.value.op.name if type(node.value).__name__ == "Call" else ""
    return True if name.endswith("break_loop") else False if name.endswith("continue_loop") else None


def _leave(*, last: bool) -> _Run:
    def leave(memory: _Memory) -> None:
        raise Left(last=last)

    return leave


def _is_last(body: _Run, memory: _Memory) -> bool:
    """Run the body of a loop, and return whether that leaves the loop."""
    try:
        body(memory)
    except Left as left:
        return left.last
    return False


def _loop(node: Node) -> _Run:
    begin, extent, body, var = _expression(node.min), _expression(node.extent), _statement(node.body), node.loop_var

    def run(memory: _Memory) -> None:
        first = begin(memory)
        for index in range(first, first + extent(memory)):
            memory[var] = index
            if _is_last(body, memory):
                return

    return run


def _while(node: Node) -> _Run:
    condition, body = _expression(node.condition), _statement(node.body)

    def run(memory: _Memory) -> None:
        for _ in range(TURNS):
            if not condition(memory) or _is_last(body, memory):
                return
        raise Invalid("a loop that does not end")

    return run


def _store(node: Node) -> _Run:
    value, place, data = _expression(node.value), _place(node), node.buffer.data

    def store(memory: _Memory) -> None:
        result, at = value(memory), place(memory)
        elements = memory.setdefault(data, {})
        if isinstance(elements, list) and not 0 <= at < len(elements):
            raise Invalid(f"{data.name} has no element {at}")
        elements[at] = result

    return store


def _place(node: Node) -> _Run:
    """Return what computes the flat index of a load or store."""
    indices = [_expression(one) for one in node.indices]
    shape = [_expression(one) for one in node.buffer.shape]

    def place(memory: _Memory) -> int:
        at = 0
        for index, size in zip(indices, shape, strict=True):
            at = at * size(memory) + index(memory)
        return at

    return place


def _expression(node: Node) -> _Run:
    return computed(node, _leaf)


def _leaf(node: Node) -> _Run | None:
    dtype = getattr(node, "dtype", "")
    if "x" in str(dtype):
        raise NotImplementedError(f"a vector: {dtype}")
    match type(node).__name__:
        case "Var":
            return _variable(node)
        case "FloatImm":
            value = float(node.value)
            return lambda memory: value
        case "BufferLoad":
            return _load(node)
        case "Let":
            bound, inner, var = _expression(node.value), _expression(node.body), node.var

            def let(memory: _Memory) -> Any:
                memory[var] = bound(memory)
                return inner(memory)

            return let
        case "Call":
            return _call(node)
    return None


def _call(node: Node) -> _Run | None:
    """Return what computes a function of floats, or the bits of a value; None of other calls."""
    name, below = node.op.name.rpartition(".")[2], list(node.args)
    if name == "call_pure_extern":  # C's, such as floorf
        name, below = below[0].value.removesuffix("f"), below[1:]
    if name == "reinterpret":
        (inner,) = below
        before = str(inner.dtype)
        wrap = arithmetic.converter(before, before) if before in grammar.INTEGERS else float
        a, bits = _expression(inner), arithmetic.reinterpreted(before, str(node.dtype))
        return lambda memory: bits(wrap(a(memory)))
    if name == "shift_left" and str(node.dtype) in grammar.SIGNED:  # a constant may be shifted into the sign
        (a, by), wrap = map(_expression, below), arithmetic.converter(str(node.dtype), str(node.dtype))
        return lambda memory: wrap(a(memory) << by(memory))
    name = "abs" if name == "fabs" else name
    if name in grammar.FUNCTIONS or (name == "abs" and str(node.dtype) in grammar.FLOATS):
        (a,), compute = map(_expression, below), arithmetic.UNARY[name]
        return lambda memory: compute(a(memory))
    return None


def _variable(node: Node) -> _Run:
    def read(memory: _Memory) -> Any:
        if node not in memory:
            raise NotImplementedError(f"{node.name} is bound by a statement that is not evaluated")
        return memory[node]

    return read


def _load(node: Node) -> _Run:
    place, data, whole = _place(node), node.buffer.data, str(node.buffer.dtype) in (*grammar.INTEGERS, "bool")

    def load(memory: _Memory) -> Any:
        at, elements = place(memory), memory.get(data, {})
        inside = 0 <= at < len(elements) if isinstance(elements, list) else at in elements
        if not inside:
            raise Invalid(f"{data.name} has no element {at}, or it was not written")
        return int(elements[at]) if whole else elements[at]

    return load
