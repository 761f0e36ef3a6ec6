"""Memory layouts of views, simplest first."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from hypothesis import strategies as st

from mhc.recipe import Layout, Recipe
from mhc.strategies.choice import choice

OFFSETS = (0, 0, 1, 8, 3)
STEPS = (1, 1, 1, 2, 3)
PADS = (0, 0, 1, 8, 3)
GAPS = (0, 0, 0, 1, 5)
ORDERS = ("as it stands", "as it stands", "first two swapped", "backwards")
EXPANSIONS = ("none", "none", "none", "first", "last", "all")


@st.composite
def laid_out(
    draw: st.DrawFn,
    tensors: Mapping[str, Recipe],
    ranks: Mapping[str, int],
    *,
    expand: bool = True,
    different: Collection[str] = (),
    written: Collection[str] = (),
) -> dict[str, Recipe]:
    """Draw a layout (offset, stepped, padded, with gaps, transposed, expanded) for one or all tensors; return all recipes.

    Args:
        different: tensors that are not expanded along their last dimension, since its elements must differ.
        written: tensors that are not expanded, since an implementation may write them.
    """
    which = draw(st.sampled_from([*tensors, *([None] * len(tensors))]))
    base = Layout(step=draw(choice(STEPS)), pad=draw(choice(PADS)), offset=draw(choice(OFFSETS)))
    if any(rank > 2 for rank in ranks.values()):
        base = replace(base, gap=draw(choice(GAPS)))
    order, expansion = draw(choice(ORDERS)), draw(choice(EXPANSIONS)) if expand else "none"
    layouts = {name: _fitted(base, order, expansion, rank) for name, rank in ranks.items()}
    for name in different:
        kept = tuple(dim for dim in layouts[name].expand if dim != ranks[name] - 1)
        layouts[name] = replace(layouts[name], expand=kept)
    for name in written:
        layouts[name] = replace(layouts[name], expand=())
    return {
        name: replace(recipe, layout=layouts[name]) if which in {None, name} else recipe for name, recipe in tensors.items()
    }


def _fitted(base: Layout, order: str, expansion: str, rank: int) -> Layout:
    """Return the layout for a tensor of the given rank."""
    dims = tuple(range(rank))
    orders = {"as it stands": (), "first two swapped": (*dims[:2][::-1], *dims[2:]), "backwards": dims[::-1]}
    expansions = {"none": (), "first": dims[:1], "last": dims[-1:], "all": dims}
    return replace(base, gap=base.gap if rank > 2 else 0, order=orders[order], expand=expansions[expansion])
