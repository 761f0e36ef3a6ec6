"""The evaluator: what a program computes, bit for bit, and whether it is one whose result every compiler must keep.

Nothing here comes from a compiler. What single operations give is in `mhc.programs.arithmetic`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mhc.programs import arithmetic, grammar, tiles
from mhc.programs.arithmetic import Invalid
from mhc.programs.grammar import Buffer, Expr, Program, Statement, bits_of
from mhc.programs.order import Order
from mhc.programs.tiles import flat, written

POISON = 0x5A
"""The byte of which all elements of an output consist before the program runs."""
TURNS = 1000
"""Most turns of a `while` loop."""
_SPECIAL = np.nan, np.nan, np.nan, np.inf, -np.inf, -0.0
"""What half of the elements of a special input are."""
_STEPS = 200_000
_DTYPES = {name: np.dtype(name) for name in grammar.DTYPES}
_READS = (grammar.Var, grammar.Load)
_WRITES = (grammar.Assign, grammar.Store, grammar.AtomicAdd)
_Env = dict[str, Any]


class Left(Exception):
    """An iteration of a loop ends early. Attributes: last: and the loop with it."""

    def __init__(self, *, last: bool) -> None:
        super().__init__()
        self.last = last


_Run = Callable[[_Env], Any]


def inputs_of(program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """Return the elements of the parameters before the program runs, by name: inputs by the seed, outputs poisoned."""
    made = {}
    for number, one in enumerate(program.parameters):
        dtype = _DTYPES[one.dtype]
        if one.written:
            made[one.name] = poisoned(one)
            continue
        rng = np.random.default_rng([program.seed, number])
        values = rng.integers(one.least, one.most, size=one.shape, endpoint=True, dtype=np.int64)
        made[one.name] = values.astype(dtype)
        if one.special and one.dtype in grammar.FLOATS:  # a step of the minimiser changes the dtype first
            drawn = rng.integers(2 * len(_SPECIAL), size=one.shape)
            for at, value in enumerate(_SPECIAL):
                made[one.name][drawn == at] = value
    return made


def passed_of(program: Program) -> dict[str, int | float]:
    """Return what the caller passes by value, by name: sizes that are symbols, and scalars, by the seed.

    The front end gives one that is bound to a name that name, also where it folds the value to it, as in `b = n0 + 0`.
    """
    found: dict[str, int | float] = dict(program.symbols)
    for number, one in enumerate(program.buffers):
        if one.scope == "value":
            rng = np.random.default_rng([program.seed, number, 1])
            drawn = int(rng.integers(one.least, one.most, endpoint=True, dtype=np.int64))
            found[one.name] = float(drawn) if one.dtype in grammar.FLOATS else drawn
    dtypes = {one.name: one.dtype for one in program.buffers}
    for node in grammar.walk(program) if found else ():
        if isinstance(node, grammar.Assign) and node.name not in found:
            read = {one.name for one in grammar.walk(node.value) if isinstance(one, grammar.Var)}
            dtype = dtypes.get(next(iter(read), ""), "int32")
            if len(read) == 1 and read <= found.keys() and dtypes.get(node.name) == dtype:
                found[node.name] = found[read.pop()]
    return found


def poisoned(buffer: Buffer) -> np.ndarray[Any, Any]:
    """Return an output before it is written."""
    if buffer.dtype == "bool" or buffer.zeroed:
        return np.zeros(buffer.shape, dtype=_DTYPES[buffer.dtype])
    raw = np.full(buffer.size * _DTYPES[buffer.dtype].itemsize, POISON, dtype=np.uint8)
    return raw.view(_DTYPES[buffer.dtype]).reshape(buffer.shape)


def evaluate(
    program: Program, given: Mapping[str, np.ndarray[Any, Any]] | None = None, machine: "type[Machine] | None" = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the elements of the outputs, by name.

    Args:
        given: the parameters before the program runs; by default `inputs_of`.
        machine: what makes functions of nodes; by default `Machine`.

    Raises:
        Invalid: an index out of bounds, a division by 0, a signed overflow, an element read that was not written, a float
            that is not exact, a result that depends on the order of blocks, threads or parallel iterations, or more than
            200,000 steps.
    """
    if given is None and machine is None:
        return dict(_results(program))
    return _outputs(program, inputs_of(program) if given is None else given, machine or Machine)


@functools.lru_cache(maxsize=1000)
def _results(program: Program) -> dict[str, np.ndarray[Any, Any]]:
    """Return what a program computes; kept, since it is asked for when it is drawn, lowered and judged."""
    results = _outputs(program, inputs_of(program), Machine)
    for one in results.values():
        one.flags.writeable = False
    return results


def _outputs(
    program: Program, before: Mapping[str, np.ndarray[Any, Any]], machine: "type[Machine]"
) -> dict[str, np.ndarray[Any, Any]]:
    memory: _Env = {}
    for one in program.buffers:
        if one.scope == "global" and not one.written:
            memory[one.name] = before[one.name].ravel().tolist()
        else:
            memory[one.name] = [0 if one.zeroed else None] * one.size
    for name, value in passed_of(program).items():
        memory[name] = [value]
    memory["#"] = 0
    for name, value in program.symbols.items():
        if not any(value in one.shape for one in program.parameters):
            raise Invalid(f"no parameter has the size {name}")
        memory[name] = value
    made = machine(program)
    body = made.block(program.body)
    for block in np.ndindex(*program.grid):
        made.order.block = block
        for axis, index in enumerate(block):
            memory[block_name(axis)] = index
        for one in program.buffers:
            if one.scope not in {"global", "value", "index"}:
                memory[one.name] = [None] * one.size
        body(memory)
    results = {}
    for one in program.outputs:
        array = before[one.name].copy()
        elements = array.reshape(-1)
        for at, value in enumerate(memory[one.name]):
            if value is not None:
                elements[at] = value
        results[one.name] = array
    return results


def block_name(axis: int) -> str:
    """Return the name of a block's index along an axis of the grid."""
    return ("bx", "by", "bz")[axis]


def _in_tiles(program: Program) -> set[str]:
    """Return the names of the buffers that statements read or write as a whole, or a part of them."""
    tiles = (one for one in grammar.walk(program) if isinstance(one, grammar.TILES))
    return {name for one in tiles for name in grammar.tile_buffers(one)}


class Machine:
    """Makes Python functions of the nodes of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._buffers = {one.name: one for one in program.buffers}
        self._loops: list[grammar.For] = []  # the parallel ones around the statement
        self._may_leave = False
        self.order = Order(program)
        self._bound: dict[str, bool] = {}  # names that were bound, and whether they may be read here
        for one in program.buffers:
            if one.special and (one.written or one.dtype not in grammar.FLOATS or one.name in _in_tiles(program)):
                raise Invalid(f"{one.name} has NaN, and is no input of floats, or is read outside of a comparison")

    def block(self, body: Sequence[Statement]) -> _Run:
        runs = [self.statement(one) for one in body]
        if any(isinstance(one, grammar.Leave) for one in body[:-1]):
            raise Invalid("statements that nothing reaches")
        for one in body:
            if isinstance(one, grammar.Assign) and one.name in self._bound:
                self._bound[one.name] = False

        def run(memory: _Env) -> None:
            for one in runs:
                one(memory)

        return run

    def statement(self, node: Statement) -> _Run:
        match node:
            case grammar.For():
                return self._loop(node)
            case grammar.While():
                return self._while(node)
            case grammar.Leave():
                return self._leave(node)
            case grammar.Store():
                return self._store(node)
            case grammar.Assign():
                value, name = self._value(node.value, node.name), node.name
                if self._buffers[name].scope in {"value", "index"}:
                    raise Invalid(f"{name} is a parameter or an index")
                if self._buffers[name].scope == "let":
                    self._bind(node)
                else:
                    self.order.may_assign(name, self._loops)

                def assign(memory: _Env) -> None:
                    memory[name][0] = value(memory)

                return assign
            case grammar.If(then=()):
                raise Invalid("a branch without a body")
            case grammar.If():
                condition = self._condition(node.condition, *grammar.INTEGERS)
                then, otherwise = self.block(node.then), self.block(node.otherwise)

                def branch(memory: _Env) -> None:
                    (then if condition(memory) else otherwise)(memory)

                return branch
            case grammar.Assume():
                return self._assume(node)
            case grammar.AtomicAdd():
                return self._atomic_add(node)
            case grammar.Copy():
                at = [self._start(one) for one in node.source_at], [self._start(one) for one in node.target_at]
                self.order.may_use(node.source, node.target, loops=self._loops)
                self.order.may_read_back(node.source)
                return tiles.copy(node, self._buffers, self.order, *at)
            case grammar.Fill() | grammar.Reduce() | grammar.Scan() | grammar.Gemm():
                self.order.may_use(*grammar.tile_buffers(node), loops=self._loops)
                return tiles.operation(node, self._buffers)
        raise AssertionError(node)

    def _bind(self, node: grammar.Assign) -> None:
        """Note that a name is bound from here on.

        The front end folds a constant, and gives an index or a parameter the new name; neither binds anything.
        """
        again = isinstance(node.value, grammar.Var) and getattr(self._buffers.get(node.value.name), "scope", "") != "var"
        if node.name in self._bound or again or not any(isinstance(one, _READS) for one in grammar.walk(node.value)):
            raise Invalid(f"{node.name} is bound twice, to a constant, or to a name")
        self._bound[node.name] = True

    def _start(self, node: int | Expr) -> _Run:
        """Return what computes where a part begins."""
        return self.expression(grammar.Const(node) if isinstance(node, int) else node)

    def _loop(self, node: grammar.For) -> _Run:
        var, indices, order = node.var, node.indices, self.order
        first, count = self._first(node), self._count(node)
        parallel = node.kind in {"Parallel", "vectorized"}
        if node.kind == "Parallel":
            self._loops.append(node)
        body = self._repeated(node.body, plain=node.kind in {"serial", "unroll"})
        if node.kind == "Parallel":
            self._loops.pop()
        if node.extent < 1 or not node.body:
            raise Invalid("a loop without an iteration or a body")
        if node.step != 1 and (node.kind not in {"serial", "unroll"} or node.count is not None):
            raise Invalid("only a serial or unrolled loop has a step, and not one whose iterations are computed")
        if self._program.index_dtype(node) != "int32" and (node.kind not in {"serial", "unroll"} or count is not None):
            raise Invalid("only a plain loop has an index of int64")
        if var in self._buffers and (self._buffers[var].scope, self._buffers[var].dtype) != ("index", "int64"):
            raise Invalid(f"{var} is no index of a loop")
        if not node.step or node.rest >= abs(node.step):
            raise Invalid("a step of 0, or a rest that is no rest of it")
        if node.kind == "Parallel" and node.begin:
            raise Invalid("T.Parallel that does not begin at 0")
        if node.kind == "Parallel" and any(self._buffers[name].scope == "local" for name in grammar.buffers_in(node)):
            raise Invalid("a local buffer in T.Parallel: each thread has one of its own")

        def run(memory: _Env) -> None:
            if parallel:
                order.enter()
            number = len(indices) if count is None else count(memory)
            for index in indices[:number] if first is None else range(begin := first(memory), begin + number):
                if parallel:
                    order.iterate()
                memory["#"] += 1
                if memory["#"] > _STEPS:
                    raise Invalid(f"more than {_STEPS} steps")
                memory[var] = index
                if body(memory):
                    break
            if parallel:
                order.leave()

        return run

    def _repeated(self, body: Sequence[Statement], *, plain: bool) -> Callable[[_Env], bool]:
        """Return what runs the body of a loop, and whether that was the last iteration.

        Args:
            plain: it may be left early.
        """
        around, self._may_leave = self._may_leave, plain and not self._loops
        block = self.block(body)
        self._may_leave = around
        leaves = any(isinstance(one, grammar.Leave) for statement in body for one in grammar.walk(statement))

        def run(memory: _Env) -> bool:
            try:
                block(memory)
            except Left as left:
                return left.last
            return False

        return run if leaves else lambda memory: bool(block(memory))

    def _leave(self, node: grammar.Leave) -> _Run:
        if not self._may_leave:
            raise Invalid(f"{node.how} outside of a plain loop, or in T.Parallel")
        last = node.how == "break"

        def leave(memory: _Env) -> None:
            raise Left(last=last)

        return leave

    def _assume(self, node: grammar.Assume) -> _Run:
        condition = self._condition(node.condition)
        if not any(isinstance(one, _READS) for one in grammar.walk(node.condition)):
            raise Invalid("an assumption that is constant")

        def run(memory: _Env) -> None:
            if not condition(memory):
                raise Invalid("an assumption that does not hold")

        return run

    def _while(self, node: grammar.While) -> _Run:
        condition, body = self._condition(node.condition), self._repeated(node.body, plain=True)
        if not node.body or not any(isinstance(one, _READS) for one in grammar.walk(node.condition)):
            raise Invalid("a loop without a body, or whose condition is constant")

        def run(memory: _Env) -> None:
            for _ in range(TURNS):
                if not condition(memory) or body(memory):
                    return
            raise Invalid(f"a loop of more than {TURNS} turns")

        return run

    def _first(self, node: grammar.For) -> _Run | None:
        """Return what computes where a loop begins; None where that is known."""
        if node.first is None:
            return None
        if node.count is None or node.begin or self._dtype(node.first) != "int32":
            raise Invalid("only a loop whose number of iterations is computed has a begin that is computed, in int32")
        return self.expression(node.first)

    def _count(self, node: grammar.For) -> _Run | None:
        """Return what computes how many iterations a loop has; None where that is its extent."""
        if node.count is None:
            return None
        if node.kind != "serial" or self._dtype(node.count) != "int32":
            raise Invalid("only a serial loop has a number of iterations that is computed, in int32")
        below = list(grammar.walk(node))
        written = {one.name if isinstance(one, grammar.Assign) else one.buffer for one in below if isinstance(one, _WRITES)}
        read = {
            one.name if isinstance(one, grammar.Var) else one.buffer
            for ends in (node.first, node.count)
            for one in (grammar.walk(ends) if ends is not None else ())
            if isinstance(one, _READS)
        }
        if read & written:
            raise Invalid("a loop changes its own number of iterations")
        compute, most = self.expression(node.count), node.extent

        def count(memory: _Env) -> int:
            number: int = compute(memory)
            if not 0 <= number <= most:
                raise Invalid(f"{number} iterations, from 0 to {most} are allowed")
            return number

        return count

    def _store(self, node: grammar.Store) -> _Run:
        place, value, name = self.place(node.buffer, node.at), self._value(node.value, node.buffer), node.buffer
        if self._buffers[name].scope == "global" and not self._buffers[name].written:
            raise Invalid(f"{name} is an input")
        self.order.may_store(name, node.at, self._loops)
        wrote = self.order.wrote

        def store(memory: _Env) -> None:
            result, at = value(memory), place(memory)
            wrote(name, at)
            memory[name][at] = result

        return store

    def _atomic_add(self, node: grammar.AtomicAdd) -> _Run:
        place, value, name = self.place(node.buffer, node.at), self._value(node.value, node.buffer), node.buffer
        buffer = self._buffers[name]
        if not (buffer.scope == "global" and buffer.zeroed and self._loops):
            raise Invalid(f"an atomic addition to {name}, or outside of T.Parallel")
        fit, size = arithmetic.fitting(buffer.dtype), f"# {name}"

        def add(memory: _Env) -> None:
            at, more = place(memory), value(memory)
            sizes = memory.setdefault(size, {})
            sizes[at] = fit(sizes.get(at, 0) + abs(more))  # in any order
            memory[name][at] = fit(memory[name][at] + more)

        return add

    def _value(self, node: Expr, name: str) -> _Run:
        if self._dtype(node) != self._buffers[name].dtype:
            raise Invalid(f"{self._dtype(node)} is stored in {name}")
        return self.expression(node)

    def _condition(self, node: Expr, *more: str) -> _Run:
        if self._dtype(node) not in {"bool", *more}:
            raise Invalid(f"a condition of {self._dtype(node)}")
        return self.expression(node)

    def place(self, name: str, at: Sequence[Expr]) -> _Run:
        shape = self._buffers[name].shape
        if len(shape) != len(at):
            raise Invalid(f"{name} has {len(shape)} axes")
        if any(self._dtype(one) not in {"int32", "int64"} for one in at):
            raise Invalid(f"{name} has an index that is none")
        indices = [self.expression(one) for one in at]
        if len(indices) == 1:
            only, size = indices[0], shape[0]

            def place(memory: _Env) -> int:
                index: int = only(memory)
                if not 0 <= index < size:
                    raise Invalid(f"{name} has no element {index}")
                return index

            return place
        return lambda memory: flat([one(memory) for one in indices], shape)

    def expression(self, node: Expr) -> _Run:
        match node:
            case grammar.Const():
                value = arithmetic.constant(node)
                return lambda memory: value
            case grammar.Var():
                name = node.name
                if name in self._buffers and self._buffers[name].scope != "index":
                    if self._buffers[name].scope == "let" and not self._bound.get(name, False):
                        raise Invalid(f"{name} is read where it is not bound")
                    return lambda memory: written(memory[name][0], name)
                return lambda memory: memory[name]
            case grammar.Load():
                if self._buffers[node.buffer].special:
                    raise Invalid(f"{node.buffer} has NaN, and is read outside of a comparison")
                return self._load(node)
            case grammar.Binary():
                return self._binary(node)
            case grammar.Unary():
                return self._unary(node)
            case grammar.Cast():
                convert, a = arithmetic.converter(self._dtype(node.a), node.dtype), self.expression(node.a)
                return lambda memory: convert(a(memory))
            case grammar.Bits():
                return self._bits(node)
            case grammar.Select():
                condition, a, b = self._condition(node.condition), self.expression(node.a), self.expression(node.b)
                if self._dtype(node.a) != self._dtype(node.b):
                    raise Invalid("a select of two dtypes")
                return lambda memory: a(memory) if condition(memory) else b(memory)
        raise AssertionError(node)

    def _side(self, node: Expr) -> _Run:
        """Return a side of a comparison, which alone may be NaN or infinite."""
        return self._load(node) if isinstance(node, grammar.Load) else self.expression(node)

    def _load(self, node: grammar.Load) -> _Run:
        name, place, read = node.buffer, self.place(node.buffer, node.at), self.order.read
        self.order.may_load(name, node.at, self._loops)

        def load(memory: _Env) -> Any:
            at = place(memory)
            read(name, at)
            return written(memory[name][at], name)

        return load

    def _dtype(self, node: Expr) -> str:
        return grammar.dtype_of(node, self._program)

    def _binary(self, node: grammar.Binary) -> _Run:
        dtype = self._dtype(node.a)
        if dtype != self._dtype(node.b):
            raise Invalid(f"{node.op} of {dtype} and {self._dtype(node.b)}")
        if node.op == "<<" and isinstance(node.a, grammar.Const) and isinstance(node.b, grammar.Const):
            return self._shifted(node.a, node.b)
        make = self._side if node.op in arithmetic.COMPARE else self.expression
        a, b = make(node.a), make(node.b)
        if node.op in grammar.LOGIC and dtype != "bool":
            raise Invalid(f"{node.op} of {dtype}")
        if node.op == "and":
            return lambda memory: a(memory) and b(memory)
        if node.op == "or":
            return lambda memory: a(memory) or b(memory)
        if node.op in arithmetic.COMPARE:
            compare = arithmetic.COMPARE[node.op]
            return lambda memory: int(compare(a(memory), b(memory)))
        compute = arithmetic.operation(node.op, dtype)
        return lambda memory: compute(a(memory), b(memory))

    def _shifted(self, a: grammar.Const, b: grammar.Const) -> _Run:
        """Return a shift of constants, which the front end folds."""
        if a.dtype not in grammar.INTEGERS:
            raise Invalid(f"<< of {a.dtype}")
        value = arithmetic.shifted_constant(int(arithmetic.constant(a)), int(arithmetic.constant(b)), a.dtype)
        return lambda memory: value

    def _unary(self, node: grammar.Unary) -> _Run:
        dtype, a = self._dtype(node.a), self.expression(node.a)
        if node.op == "not" and dtype != "bool":
            raise Invalid(f"not of {dtype}")
        if node.op == "not" or (node.op, dtype) == ("~", "bool"):
            return lambda memory: 1 - a(memory)
        of_floats = dict.fromkeys(grammar.FUNCTIONS, grammar.INTEGERS)
        unfit = {"~": grammar.FLOATS, "abs": grammar.UNSIGNED, **of_floats}.get(node.op, ())
        if dtype == "bool" or dtype in unfit:
            raise Invalid(f"{node.op} of {dtype}")
        fit, compute = arithmetic.fitting(dtype), arithmetic.UNARY[node.op]
        return lambda memory: fit(compute(a(memory)))

    def _bits(self, node: grammar.Bits) -> _Run:
        before, a = self._dtype(node.a), self.expression(node.a)
        if bits_of(before) != bits_of(node.dtype) or "bool" in (before, node.dtype):
            raise Invalid(f"the bits of {before} as {node.dtype}")
        bits, fit = arithmetic.reinterpreted(before, node.dtype), arithmetic.fitting(node.dtype)

        def reinterpret(memory: _Env) -> Any:
            value = a(memory)
            if value == 0 and before in grammar.FLOATS:
                raise Invalid("the bits of a float that is 0: its sign is left open")
            return fit(bits(value))

        return reinterpret
