"""Draws a few operations in a row on few operands of a Triton program: what rewritings of expressions and views look for."""

import math
from collections.abc import Callable

from mhc.programs.grammar import INTEGERS, SIGNED, bits_of, range_of
from mhc.programs.triton.grammar import COMPARISONS, FLOATS
from mhc.strategies.programs.triton_operations import Operations

_WHOLE = ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "shl", "shr", "minimum", "maximum")
_REAL = ("add", "sub", "mul", "minimum", "maximum")
_TRUTHS = ("and", "or", "xor", "eq", "ne")
_LARGEST = 512
"""No block of a chain of views becomes larger."""


class Chains(Operations):
    """Draws such rows into a program."""

    def kinds(self) -> list[Callable[[], None]]:
        """Return what draws a statement without a body each."""
        return [*super().kinds(), *[self._expression] * 9, *[self._views] * 5]

    # --- expressions

    def _expression(self) -> None:
        """Draw operations of which each takes what came before it; one number comes again in them."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype != "bool" or blocks.pick(False, True))
        if a is None:
            return
        one = blocks.value(a)
        terms = [a, self._like(one, broadcast=False)]
        number = 1 if one.dtype == "bool" else self._number_for("mul", one.dtype)
        for _ in range(blocks.pick(3, 2, 4, 5)):
            made = self._step(terms, number)
            if made is not None:
                terms.append(made)
        blocks.pool += [one for one in terms[2:][-2:] if one not in blocks.pool]

    def _step(self, terms: list[str], number: float) -> str | None:
        """Add an operation of some of the terms, most often of the last, and return its name."""
        blocks = self._blocks
        a = terms[-1] if blocks.pick(True, True, False) else blocks.pick_late(terms)
        dtype = blocks.value(a).dtype
        if dtype == "bool":
            return self._of_truth(terms, a)
        match blocks.pick(*["two"] * 4, *["number"] * 4, "compare", "one", "cast"):
            case "number":
                return self._by(a, blocks.pick(*(_REAL[:3] if dtype in FLOATS else _WHOLE[:-2])), number)
            case "compare":
                b = self._term(terms, dtype)
                if blocks.pick(True, False):
                    return blocks.op(blocks.pick(*COMPARISONS), a, b, keep=False)
                return blocks.op(blocks.pick(*COMPARISONS), a, value=number, flag=True, keep=False)
            case "one":
                return blocks.op(blocks.pick("neg", "abs", *([] if dtype in FLOATS else ["invert"])), a, keep=False)
            case "cast":
                return self._recast(terms, a)
        op, b = blocks.pick(*(_REAL if dtype in FLOATS else _WHOLE)), self._term(terms, dtype)
        if op in {"floordiv", "mod"}:
            b = blocks.must("or", b, value=1, flag=True)
        if op in {"shl", "shr"}:
            b = blocks.must("and", b, value=bits_of(dtype) - 1, flag=True)
        return blocks.op(op, *blocks.pick((a, b), (b, a)), keep=False)

    def _term(self, terms: list[str], dtype: str) -> str:
        """Return one of the terms of a dtype; the first of them are the simplest."""
        return str(self._blocks.pick(*(one for one in terms if self._blocks.value(one).dtype == dtype)))

    def _by(self, a: str, op: str, number: float) -> str | None:
        """Add an operation of a value and a number, or what belongs to it: the other part of a shift, a power of two."""
        blocks = self._blocks
        dtype = blocks.value(a).dtype
        if dtype in FLOATS:
            number = number if abs(number) <= 4 else 2.0
        else:
            size, (least, most) = bits_of(dtype), range_of(dtype)
            number = min(max(int(number), least), most)
            if op in {"shl", "shr"}:
                number = abs(number) % (size // 2) or 1
                number = blocks.pick(number, number, size - number)
            elif op == "and":
                number = blocks.pick(number, (1 << abs(number) % (size - 1)) - 1)
            elif op in {"floordiv", "mod"}:
                number = number or 3
        if blocks.pick(True, True, False) or blocks.in_function:
            return blocks.op(op, a, value=number, flag=True, axis=blocks.pick(0, 0, 0, 1), keep=False)
        return blocks.op(op, a, blocks.full(blocks.value(a), number), keep=False)

    def _of_truth(self, terms: list[str], a: str) -> str | None:
        """Add an operation of a bool: a choice between two of the terms, or a bool of it and of another one."""
        blocks = self._blocks
        values = [one for one in terms if blocks.value(one).dtype != "bool"]
        match blocks.pick(*["choice"] * 4, "logic", "not", "cast", "compare"):
            case "not":
                return blocks.op("invert", a, keep=False)
            case "cast" if values:
                return blocks.op("cast", a, dtype=blocks.value(values[0]).dtype, keep=False)
            case "choice" if values:
                b = blocks.pick_late(values)
                c = self._term(terms, blocks.value(b).dtype)
                return blocks.op("where", a, *blocks.pick((b, c), (c, b)), keep=False)
            case "compare" if values:
                b = blocks.pick_late(values)
                other = blocks.op(blocks.pick(*COMPARISONS), b, self._term(terms, blocks.value(b).dtype), keep=False)
                return other and blocks.op(blocks.pick(*_TRUTHS), a, other, keep=False)
        return blocks.op(blocks.pick(*_TRUTHS), a, self._term(terms, "bool"), keep=False)

    def _recast(self, terms: list[str], a: str) -> str | None:
        """Cast a term to another dtype, now and then after another one, and return its name."""
        blocks = self._blocks
        now = blocks.value(a).dtype
        family = FLOATS[:3] if now in FLOATS else [one for one in INTEGERS if (one in SIGNED) == (now in SIGNED)]
        others = [one for one in (*family, blocks.value(terms[0]).dtype) if one not in {now, "bool", "bfloat16"}]
        dtype = blocks.pick(*reversed(others))
        if blocks.pick(True, False):
            other = blocks.op("cast", self._term(terms, now), dtype=dtype, keep=False)
            terms += [other] if other is not None else []
        return blocks.op("cast", a, dtype=dtype, keep=False)

    # --- views

    def _views(self) -> None:
        """Draw views of views, with an operation of elements in between, and what they give together with an earlier one."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: len(one.shape) > 0 and 1 < one.data.size <= _LARGEST)
        if a is None:
            return
        made = [a]
        for _ in range(blocks.pick(2, 3, 4)):
            after = self._view(made[-1])
            if after is not None:
                made.append(after)
        last = blocks.value(made[-1])
        alike = [one for one in made[:-1] if blocks.value(one).shape == last.shape and blocks.value(one).dtype == last.dtype]
        if alike and blocks.pick(True, False):
            op = "xor" if last.dtype not in FLOATS else blocks.pick("add", "maximum", "sub")
            made.append(blocks.op(op, made[-1], blocks.pick_late(alike), keep=False) or made[-1])
        if made[-1] not in blocks.pool:
            blocks.pool.append(made[-1])

    def _view(self, a: str) -> str | None:
        """Add an operation that moves elements, now and then one of each element, and return its name."""
        blocks = self._blocks
        one = blocks.value(a)
        rank, size = len(one.shape), one.data.size
        if not rank:
            return None
        kinds = ["permute"] * 3 * (rank > 1) + ["reshape", "reshape", "flip", "expand", "each"]
        kinds += ["halves"] * 3 * (one.shape[-1] == 2) + ["join", "interleave"] * (2 * size <= _LARGEST and rank < 4)
        kinds += ["axis"] * (one.dtype != "bool")
        match blocks.pick(*kinds):
            case "permute":
                axes = list(range(rank))
                return blocks.op("permute", a, axes=tuple(blocks.shuffled(axes)), keep=False)
            case "reshape":
                return blocks.op("reshape", a, shape=self._several(size), keep=False)
            case "flip":
                return blocks.op("flip", a, axis=blocks.integer(0, rank - 1), keep=False)
            case "expand" if rank < 4:
                at = blocks.integer(0, rank)
                wide = blocks.must("expand_dims", a, axis=at)
                if size > _LARGEST // 2 or blocks.pick(True, False):
                    return wide
                shape = tuple(2 if axis == at else extent for axis, extent in enumerate(blocks.value(wide).shape))
                return blocks.op("broadcast_to", wide, shape=shape, keep=False)
            case "halves":
                halves = [blocks.must("split", a, value=which) for which in blocks.pick((0, 1), (1, 0))]
                op = blocks.pick("join", "xor" if one.dtype not in FLOATS else "sub", *(["interleave"] if rank > 1 else []))
                return blocks.op(op, *halves, keep=False)
            case "join" | "interleave" as op:
                other = self._like(one, broadcast=False) if blocks.pick(True, False) else a
                return blocks.op(op, *blocks.pick((a, other), (other, a)), keep=False)
            case "axis":
                op = blocks.pick("sum", "max", "min", "cumsum")
                return blocks.op(op, a, axis=blocks.integer(0, rank - 1), flag=blocks.pick(False, True), keep=False)
        if one.dtype == "bool":
            return blocks.op("invert", a, keep=False)
        return self._by(a, blocks.pick("add", "mul", "sub"), blocks.pick(1, 2, 3))

    def _several(self, size: int) -> tuple[int, ...]:
        """Draw a shape of so many elements, a power of two, of up to four axes."""
        blocks, shape = self._blocks, []
        for _ in range(blocks.pick(1, 0, 2, 3)):
            shape.append(2 ** blocks.integer(0, int(math.log2(size))))
            size //= shape[-1]
        return (*shape, size)
