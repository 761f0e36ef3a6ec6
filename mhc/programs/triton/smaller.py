"""Steps of the minimiser of Triton programs that make blocks, buffers and loops smaller."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from mhc.programs.triton.cuts import Body
from mhc.programs.triton.grammar import BlockLoad, BlockStore, Descriptor, For, Op, Statement, TritonProgram, walk
from mhc.programs.triton.replaced import changed, mapped, with_buffer


def sizes(program: TritonProgram) -> Iterator[TritonProgram]:
    """Make blocks, buffers and loops smaller: all of one size together, then single ones."""
    shapes = [one.shape for one in walk(program.body) if isinstance(one, Op)]
    shapes += [one.block for one in walk(program.body) if isinstance(one, Descriptor)]
    extents = sorted({size for shape in shapes for size in shape} | {one.size for one in program.buffers}, reverse=True)
    for size in extents:
        for smaller in dict.fromkeys((1, 2, 16, size // 4, size // 2)):
            if 0 < smaller < size:
                yield _resized(program, {size: smaller})
        if size % 2 == 0 and size > 2:
            yield _resized(program, {one: one // 2 for one in extents if one >= size})
    for shape in dict.fromkeys(one for one in shapes if len(one) > 1):
        for axis in range(len(shape)):
            yield _reshaped(program, shape, axis)
    for number, one in enumerate(program.buffers):
        for smaller in dict.fromkeys((1, 2, one.size // 2, one.size - 1)):
            if 0 < smaller < one.size:
                yield with_buffer(program, number, size=smaller)

    def change(node: Statement) -> Iterator[tuple[Body, Mapping[str, str]]]:
        if isinstance(node, Op):
            if node.op == "histogram" and len(node.args) > 1:
                yield (replace(node, args=node.args[:1]),), {}
            for axis, size in enumerate(node.shape):
                for smaller in dict.fromkeys((1, 2, size // 2)):
                    if 0 < smaller < size:
                        yield (replace(node, shape=(*node.shape[:axis], smaller, *node.shape[axis + 1 :])),), {}
                yield (replace(node, shape=(*node.shape[:axis], *node.shape[axis + 1 :])),), {}
        elif isinstance(node, Descriptor):
            for stride in dict.fromkeys((node.block[-1], node.stride // 4, node.stride // 2)):
                if 0 < stride < node.stride:
                    yield (replace(node, stride=stride),), {}
        elif isinstance(node, For):
            fewer = ({"end": node.begin + count * node.step} for count in (1, 2)) if node.step > 0 else ()
            known = {"bound": None, "first": None, "by": None}
            plainer: tuple[dict[str, Any], ...] = (
                *fewer,
                {"begin": node.end, "end": node.begin, "step": abs(node.step)} if node.step < 0 else {},
                {"begin": 0, "end": node.end - node.begin, **known},
                {"begin": 0, "end": node.end - node.begin, **known, "wide": False},
                {"wide": False, **known},
                {"end": node.begin},
                {"end": node.end - 1},
                {"begin": node.begin - 1},
                {"begin": 0},
                {"step": 1},
                {"stages": 0},
                {"unroll": 0},
                {"flags": node.flags[1:]},
                {"flags": node.flags[:-1]},
                {"kind": "range", "stages": 0, "unroll": 0, "flags": ()},
                {"kind": "tl.static_range", "stages": 0, "unroll": 0, "flags": ()},
                {"bound": None},
                {"first": None},
                {"by": None},
            )
            for changes in plainer:
                changed_to = any(getattr(node, name) != new for name, new in changes.items())
                if changed_to and changes.get("end", 0) >= 0 and changes.get("begin", 0) >= 0:
                    yield (replace(node, **changes),), {}

    for body, _ in changed(program.body, change):
        yield replace(program, body=body)


def _resized(program: TritonProgram, others: Mapping[int, int]) -> TritonProgram:
    """Return the program with other sizes wherever it has some, and constants that are such sizes with them."""

    def change(node: Op) -> Op:
        number = others.get(int(node.value), node.value) if node.dtype == "int32" and node.op == "full" else node.value
        return replace(node, shape=tuple(others.get(one, one) for one in node.shape), value=number)

    def described(node: Any) -> Any:
        if not isinstance(node, Descriptor):
            return node
        stride = others.get(node.stride, node.stride)
        return replace(node, block=tuple(others.get(one, one) for one in node.block), stride=stride)

    buffers = tuple(replace(one, size=others.get(one.size, one.size)) for one in program.buffers)
    return replace(program, buffers=buffers, body=mapped(program.body, change, described))


def _reshaped(program: TritonProgram, shape: tuple[int, ...], axis: int) -> TritonProgram:
    """Return the program without an axis wherever it names this shape."""

    def without(all_: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*all_[:axis], *all_[axis + 1 :])

    names = {one.name for one in walk(program.body) if isinstance(one, Descriptor) and one.block == shape}

    def described(node: Any) -> Any:
        if isinstance(node, Descriptor) and node.name in names:
            return replace(node, sizes=without(node.sizes), block=without(node.block), stride=0)
        if isinstance(node, (BlockLoad, BlockStore)) and node.descriptor in names:
            return replace(node, offsets=without(node.offsets))
        return node

    body = mapped(program.body, lambda one: replace(one, shape=without(shape)) if one.shape == shape else one, described)
    return replace(program, body=body)
