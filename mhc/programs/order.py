"""Whether a result depends on the order of blocks, threads or parallel iterations: such a program has no one meaning."""

from collections.abc import Sequence

from mhc.programs import grammar
from mhc.programs.arithmetic import Invalid
from mhc.programs.grammar import Expr, Program

Key = tuple[str, int]


class Order:
    """What wrote and read which element.

    A statement outside of `T.Parallel` is run by every thread of a block, a tile operation by all of them together. The
    compiler orders accesses to shared memory between two statements, and nothing orders those to global memory.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._threads = program.threads
        self._blocks: dict[Key, object] = {}
        self._apart: dict[Key, bool] = {}
        self._writers: dict[Key, int] = {}
        self._readers: dict[Key, int] = {}
        self._iterations = 0
        self._depth = 0
        self.block: object = None
        self._outputs = {one.name for one in program.outputs}
        self._atomic = {one.buffer for one in grammar.walk(program) if isinstance(one, grammar.AtomicAdd)}

    # --- what a program may hold at all

    def may_store(self, name: str, at: Sequence[Expr], loops: Sequence[grammar.For]) -> None:
        """Check a store inside of the given parallel loops.

        Raises:
            Invalid: threads write it in an order of their own, or it lies in another thread.
        """
        one = self._program.buffer(name)
        if one.scope == "fragment" and not self._own(at, loops, one.shape, whole=True):
            raise Invalid(f"{name} is a fragment: an iteration has one element of it")
        if one.scope == "shared" and self._threads > 1 and not loops:
            raise Invalid(f"every thread writes {name}")
        self._not_atomic(name)

    def may_load(self, name: str, at: Sequence[Expr], loops: Sequence[grammar.For]) -> None:
        """Check a load inside of the given parallel loops; raises `Invalid` as for a store."""
        one = self._program.buffer(name)
        if one.scope == "fragment" and not self._own(at, loops, one.shape, whole=False):
            raise Invalid(f"{name} is a fragment: an iteration has one element of it")
        self._not_back(name)

    def may_assign(self, name: str, loops: Sequence[grammar.For]) -> None:
        """Check that a scalar is set outside of parallel loops; raises `Invalid`."""
        if loops:
            raise Invalid(f"{name} is set in T.Parallel: each thread has one of its own")

    def may_use(self, *names: str, loops: Sequence[grammar.For]) -> None:
        """Check the buffers of a tile operation; raises `Invalid`."""
        if loops:
            raise Invalid("a tile operation in T.Parallel")
        for name in names:
            if self._threads > 1 and self._program.buffer(name).scope in {"local", "var"}:
                raise Invalid(f"each thread has a {name} of its own")
            self._not_atomic(name)

    def may_read_back(self, name: str) -> None:
        """Check the source of a tile operation; raises `Invalid`."""
        self._not_back(name)

    def _own(self, at: Sequence[Expr], loops: Sequence[grammar.For], shape: Sequence[int], *, whole: bool) -> bool:
        extents = {one.var: one.extent for one in loops}
        names = [one.name for one in at if isinstance(one, grammar.Var)]
        given = list(extents)
        inside = [one for one in given if one in names] == names and len(set(names)) == len(shape)
        fits = inside and [extents[one] for one in names] == list(shape)
        return fits and (not whole or names == given)

    def _not_back(self, name: str) -> None:
        if self._threads > 1 and name in self._outputs:
            raise Invalid(f"{name} is read back, and nothing orders threads in global memory")
        self._not_atomic(name)

    def _not_atomic(self, name: str) -> None:
        if name in self._atomic:
            raise Invalid(f"{name} is also added to atomically")

    # --- what happens while it runs

    def enter(self) -> None:
        """Note that a parallel loop begins."""
        if self._depth == 0:
            self._writers.clear()
            self._readers.clear()
        self._depth += 1

    def iterate(self) -> None:
        """Note that an iteration of the innermost parallel loop begins."""
        self._iterations += 1

    def leave(self) -> None:
        """Note that a parallel loop ends."""
        self._depth -= 1

    def wrote(self, name: str, at: int, *, apart: bool = False) -> None:
        """Note a store.

        Args:
            apart: the threads share the elements of the statement.

        Raises:
            Invalid: another block or iteration writes or reads it too.
        """
        key, parallel = (name, at), self._depth > 0
        if name in self._outputs:
            if self._blocks.setdefault(key, self.block) != self.block:
                raise Invalid(f"two blocks write element {at} of {name}")
            apart = apart or parallel
            if self._threads > 1 and (self._apart.get(key, False) or (apart and key in self._apart)):
                raise Invalid(f"two threads write element {at} of {name}")
            self._apart[key] = apart
        if parallel:
            now = self._iterations
            if self._writers.setdefault(key, now) != now or self._readers.get(key, now) != now:
                raise Invalid(f"two iterations meet in element {at} of {name}")

    def read(self, name: str, at: int) -> None:
        """Note a load; raises `Invalid` where another block or iteration writes it."""
        key = name, at
        if self._blocks.get(key, self.block) != self.block:
            raise Invalid(f"element {at} of {name} is another block's")
        if self._depth > 0:
            now = self._iterations
            if self._writers.get(key, now) != now:
                raise Invalid(f"two iterations meet in element {at} of {name}")
            if self._readers.setdefault(key, now) != now:
                self._readers[key] = -1
